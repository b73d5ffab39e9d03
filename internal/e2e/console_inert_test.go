//go:build linux

package e2e

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// planted is what an agent writes that wants its words to be run as a script.
func planted(field, words string) string {
	if field == "label" { // they are short
		return words + `"><img src=x onerror=__xss=1>`
	}
	return words + " " + canaryIn(field) +
		`</textarea></pre></title>'"--><svg/onload="window.__xss='svg'"><a href="javascript:window.__xss='link'">x</a>`
}

func canaryIn(field string) string {
	return fmt.Sprintf(`<img src=x onerror="window.__xss='%s'"><script>window.__xss='%s'</script>`, field, field)
}

// smuggled selects what only an agent can have put into a page.
const smuggled = `document.querySelectorAll("[onerror],[onload],[onclick],[src=x],script:not([src]),svg[onload],a[href^='javascript:'],iframe,object,embed,style,base,meta[http-equiv]").length`

// everyPageIsInert opens every page, with all that can be unfolded, and checks
// that each planted text is shown somewhere, as text.
func (s *consoleFixture) everyPageIsInert(t *testing.T) {
	t.Helper()
	b := s.signedInTab("/console/")
	b.forgive("status of 404")
	var shown strings.Builder
	pages := s.pages()
	for name, path := range s.textPages() {
		pages[name] = path
	}
	for name, path := range pages {
		b.open(path)
		b.until("a page at rest", `document.readyState === "complete"`)
		text, err := eval[string](b,
			`document.querySelectorAll("details").forEach(d => d.open = true), document.body.innerText`)
		if err != nil {
			t.Fatal(err)
		}
		shown.WriteString(text)
		if n, err := eval[int](b, smuggled); err != nil || n != 0 {
			t.Errorf("%s has %d elements that an agent wrote (%v)", name, n, err)
		}
	}
	all := strings.ReplaceAll(shown.String(), `\"`, `"`) // JSON is shown as JSON
	missing := slices.DeleteFunc(slices.Clone(plantedIn),
		func(field string) bool { return strings.Contains(all, canaryIn(field)) })
	if len(missing) > 0 {
		t.Errorf("no page shows what was planted in: %s", strings.Join(missing, ", "))
	}
	if !strings.Contains(shown.String(), `onerror=__xss=1`) {
		t.Error("no page shows what was planted in a label")
	}
	t.Logf("%d pages, %d fields with planted scripts", len(pages), len(plantedIn)+1)
}

// plantedIn are the fields that a page shows.
var plantedIn = []string{
	"title", "input", "agent name", "metadata", "workspace", "report", "belief", "action", "outcome", "next step",
	"blocker", "stdout", "stderr",
	"subtask title", "subtask input", "option", "question", "failure", "output", "summary", "diff", "branch",
	"diffstat", "file", "prompt", "answer", "prompt reason", "policy", "policy summary",
}

// textPages show long texts whole.
func (s *consoleFixture) textPages() map[string]string {
	task, review := "/console/tasks/"+s.running, "/console/reviews/"+s.reviews[0]
	pages := map[string]string{
		"log-stderr":    task + "/log?stream=stderr",
		"reports":       task + "/reports",
		"input":         task + "/input",
		"diff":          "/console/tasks/" + s.reviews[0] + "/diff",
		"output":        "/console/tasks/" + s.reviews[0] + "/output",
		"subtask-input": "/console/tasks/" + s.child + "/input",
		"ledger-task":   "/console/ledger?of=" + s.running,
		"events-task":   "/console/events?task=" + s.running,
	}
	for _, part := range []string{"output", "summary", "input", "diff", "reports"} {
		pages["review-"+part] = review + "/full/" + part
	}
	for kind, id := range s.handoffs {
		pages["question-"+string(kind)] = "/console/handoffs/" + id + "/full/question"
	}
	return pages
}
