//go:build linux

package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/picket-dev/picket"
)

func contains(text, part string) bool { return strings.Contains(text, part) }

// A person decides without touching the mouse, and no key does anything while
// they type.
func keyboard(t *testing.T, s *consoleFixture) {
	// Of a role of their own, so that the queue can be narrowed down to them.
	for _, title := range []string{"First by keyboard", "Second by keyboard"} {
		l := s.leased(s.role(), "keys", title)
		s.with(l, "/v1/tools/mark_complete", map[string]any{"output": s.say("output", "done")})
	}
	b := s.signedInTab("/console/")
	b.live()
	b.press("?")
	b.sees("#help")
	b.reads("#help", "go to Hand-offs")
	b.press("Escape")
	b.until("no help", `!document.querySelector("#help")`)
	b.goTo("t", "/console/tasks")
	b.press("/")
	b.until("the search", `document.activeElement.matches("[data-search]")`)
	b.press("j", "g", "p", "?")
	b.until("what was typed",
		`document.querySelector("[data-search]").value === "jgp?" && !document.querySelector("#help") && document.querySelector("#live").dataset.state === "live"`)
	b.press("Escape")
	b.goTo("r", "/console/reviews")
	b.open("/console/reviews?role=" + s.role())
	b.live()
	b.press("j")
	b.until("the first row",
		`document.activeElement.matches("[data-row]") && document.activeElement.innerText.includes("First by keyboard")`)
	b.press("j", "j", "k")
	b.until("the first row again", `document.activeElement.innerText.includes("First by keyboard")`)
	b.press("j", "Enter")
	b.at("/console/reviews/task_")
	b.reads("h1", "Second by keyboard")
	b.press("a")
	b.until("the button", `document.activeElement.matches("[data-key=a]")`)
	second := strings.TrimPrefix(b.path(), "/console/reviews/")
	if got := s.w.task(second); got.State != picket.TaskReview {
		t.Fatalf("one key has decided: %s", got.State)
	}
	b.press("Enter")
	b.reads("[role=status]", "Approved.")
	if got := s.w.task(second); got.State != picket.TaskCompleted {
		t.Errorf("the task is %s", got.State)
	}
	b.open("/console/reviews?role=" + s.role())
	b.live()
	b.press("j")
	b.until("the row that is left", `document.activeElement.innerText.includes("First by keyboard")`)
	b.press("Enter")
	b.reads("h1", "First by keyboard")
	first := strings.TrimPrefix(b.path(), "/console/reviews/")
	b.press("r", "Enter")
	b.reads("[role=status]", "Rejected.")
	if got := s.w.task(first); got.State != picket.TaskRejected {
		t.Errorf("the task is %s", got.State)
	}
}

// goTo presses g and a letter until the page is there: the second key counts for
// a moment only, which is short on a busy machine.
func (b *tab) goTo(letter, path string) {
	b.t.Helper()
	is := fmt.Sprintf(`document.readyState === "complete" && location.pathname === %q`, path)
	for range 10 {
		b.press("g", letter)
		if b.becomes(3*time.Second, is) == nil {
			return
		}
	}
	b.t.Fatalf("g %s does not lead to %s; the page is %s", letter, path, b.where())
}

// path is the address of the page on its server.
func (b *tab) path() string {
	b.t.Helper()
	path, err := eval[string](b, `location.pathname`)
	if err != nil {
		b.t.Fatal(err)
	}
	return path
}
