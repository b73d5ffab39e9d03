//go:build linux

package e2e

import (
	"net/http"
	"strings"
	"syscall"
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/picket-dev/picket"
)

// samePage is true as long as the page was not loaded again.
const setMark, samePage = `window.same = true`, `window.same === true`

func (b *tab) mark() {
	b.t.Helper()
	if _, err := eval[bool](b, setMark); err != nil {
		b.t.Fatal(err)
	}
}

// A task that is submitted elsewhere appears, and moves, without the page being
// loaded again; times tick.
func aTaskAppears(t *testing.T, s *consoleFixture) {
	b := s.signedInTab("/console/tasks?role=" + s.role())
	b.live()
	b.mark()
	s.submit(s.role(), "It has just come")
	b.reads("#list", "It has just come")
	s.take(s.role(), "taker")
	b.reads("#list", "leased")
	b.until("the same page", samePage)
	b.until("a time", `window.tick1 = document.querySelector("#list time[data-how=ago]").innerText`)
	b.until("a later time", `document.querySelector("#list time[data-how=ago]").innerText !== window.tick1`)
}

// A pause holds updates back and counts them; it lasts over pages.
func pauseUpdates(t *testing.T, s *consoleFixture) {
	b := s.signedInTab("/console/tasks?role=" + s.role())
	b.live()
	b.click("#live")
	b.sees("#live[data-state=paused]")
	s.submit(s.role(), "Held back")
	b.until("an update that waits", `Number(document.querySelector("#live").dataset.waiting) >= 1`)
	b.reads("#live", "wait")
	if text := b.text("#list"); text == "" || contains(text, "Held back") {
		t.Errorf("a paused page shows %q", text)
	}
	b.click(`#nav [href$=leases]`)
	b.at("/console/leases")
	b.sees("#live[data-state=paused]")
	b.open("/console/tasks?role=" + s.role())
	b.reads("#list", "Held back")
	s.submit(s.role(), "Another")
	b.until("an update that waits", `Number(document.querySelector("#live").dataset.waiting) >= 1`)
	b.press("p")
	b.reads("#list", "Another")
	b.live()
}

// What somebody types, unfolds and looks at is left alone while the rest of the
// page goes on.
func writing(t *testing.T, s *consoleFixture) {
	task, handoff := s.ask(s.role(), "Do not disturb")
	b := s.signedInTab("/console/handoffs/" + handoff)
	b.live()
	b.mark()
	b.fill("#answer", "half a sent")
	b.until("unfolded", `(document.querySelector("details:has(form[action$='/cancel'])").open = true)`)
	s.w.into(&picket.Handoff{}, http.MethodPost, "/handoffs/"+handoff+"/claim", map[string]bool{"takeOver": true})
	b.reads("#facts", "Looked after")
	b.readsNo("#facts", "by nobody yet")
	b.until("what was typed",
		`document.querySelector("#answer").value === "half a sent" && document.activeElement.id === "answer"`)
	b.until("what was unfolded", `document.querySelector("details:has(form[action$='/cancel'])").open`)
	b.press("e", "n", "c", "e")
	b.until("all that was typed", `document.querySelector("#answer").value === "half a sentence"`)
	s.w.into(&picket.Task{}, http.MethodPost, "/handoffs/"+handoff+"/cancel",
		map[string]string{"reason": "no longer needed"})
	b.reads(".held", "changed while you were writing")
	b.until("still there", `document.querySelector("#answer").value === "half a sentence"`)
	b.click(".held button")
	b.reads("main", "cancelled")
	b.until("the same page", samePage)
	if got := s.w.task(task); got.State != picket.TaskCancelled {
		t.Errorf("the task is %s", got.State)
	}
}

// The log of a run grows on its page.
func liveLog(t *testing.T, s *consoleFixture) {
	l := s.leased(s.role(), "logger", "Write a log")
	s.log(l, "stdout", "the first line\n")
	b := s.signedInTab("/console/tasks/" + l.TaskID)
	b.reads("pre.log", "the first line")
	b.live()
	b.mark()
	more := s.say("stdout", "the second line") + "\n"
	s.logAt(l, "stdout", len("the first line\n"), more)
	b.reads("pre.log", "the second line")
	b.reads("pre.log", "onerror=") // as text
	// A line that is written over and over reads as on a terminal, and nothing
	// turns its direction, as when the page is loaded.
	s.logAt(l, "stdout", len("the first line\n")+len(more), "10 %\r\x1b[32m20 %\r")
	b.reads("pre.log", "20 %")
	s.logAt(l, "stdout", len("the first line\n")+len(more)+len("10 %\r\x1b[32m20 %\r"), "done \u202ebackwards\n")
	b.reads("pre.log", "\ndone backwards")
	b.readsNo("pre.log", "20 %")
	b.until("the same page", samePage)
}

// What somebody has unfolded and looks at in a list stays that, however many
// rows come before it: each is another one, though all lead to one task.
func unfolding(t *testing.T, s *consoleFixture) {
	l := s.leased(s.role(), "unfolder", "Unfold what it does")
	const report = "/v1/tools/report_progress"
	s.with(l, report, s.report("before"))
	b := s.signedInTab("/console/tasks/" + l.TaskID)
	b.live()
	b.mark()
	b.until("an event unfolded, and the run chosen", `(() => {
		const all = [...document.querySelectorAll("#events li")];
		window.one = all.at(-1).querySelector(".kind").innerText; // the oldest
		const details = all.at(-1).querySelector("details");
		details.open = true;
		details.querySelector("summary").focus();
		return all.length >= 2;
	})()`)
	s.with(l, report, s.report("one more"))
	s.with(l, report, s.report("and another"))
	b.reads("#reports", "and another")
	b.until("the same event unfolded", `(() => {
		const open = [...document.querySelectorAll("#events li:has(details[open])")];
		return open.length === 1 && open[0].querySelector(".kind").innerText === window.one && open[0].contains(document.activeElement);
	})()`)
	b.until("the same page", samePage)
}

// More tabs than a browser opens connections to a server: all of them are live,
// and pages still load.
func openManyTabs(t *testing.T, s *consoleFixture) {
	b := s.signedInTab("/console/leases")
	b.live()
	context := chromedp.FromContext(b.ctx).BrowserContextID
	tabs := []*tab{b}
	for range 7 {
		ctx, end := chromedp.NewContext(b.ctx, chromedp.WithExistingBrowserContext(context),
			chromedp.WithListener(b.listen))
		next := &tab{t: t, w: b.w, ctx: ctx, console: b.console}
		t.Cleanup(end)
		if err := chromedp.Do(ctx, chromedp.EmulateViewport(800, 600)); err != nil {
			t.Fatal(err)
		}
		next.open("/console/tasks?role=" + s.role())
		next.live()
		tabs = append(tabs, next)
	}
	s.submit(s.role(), "Seen by all")
	for _, next := range tabs[1:] {
		next.reads("#list", "Seen by all")
	}
}

// A key that is revoked ends its session under the open page.
func sessionEnds(t *testing.T, s *consoleFixture) {
	b := s.signedInTab("/console/tasks")
	b.forgive("status of 401")
	b.live()
	s.w.into(&struct{}{}, http.MethodDelete, "/keys/"+b.keyID, nil)
	s.submit(s.role(), "Unseen")
	b.reads("#over", "Sign in again")
	b.sees("#live[data-state=over]")
	b.click("#over a")
	b.at("/console/login")
}

// Somebody signs in with another key in another tab of the same browser. Each
// login has a host name of its own, so both go on as who they are.
func anotherSignsIn(t *testing.T, s *consoleFixture) {
	b := s.signedInTab("/console/leases")
	b.live()
	other := b.beside()
	other.signIn("/console/leases", picket.ScopeReviewer)
	other.reads("header .menu", strings.ToLower(strings.ReplaceAll(t.Name(), "/", "-"))[:20])
	other.readsNo("#nav", "Agents")
	if other.console == b.console {
		t.Errorf("two logins share the address %s", b.console)
	}
	s.leased(s.role(), "next", "Leased to see who looks")
	b.reads("#list", "Leased to see who looks")
	b.open("/console/leases")
	b.reads("#nav", "Agents")
}

// Where all logins share one host, the other person takes the place of the first:
// the open page becomes theirs and offers what they may do, unless something is
// written in it. Nothing else is different there.
func TestConsoleOnOneHost(t *testing.T) {
	s := newConsoleFixture(t, asWritten, "console: {host_per_login: false}")
	s.startWorker()
	if said := s.w.processes[0].err.text(); !strings.Contains(said, "every port of the host") {
		t.Errorf("the start does not say what this gives up: %s", said)
	}
	t.Run("SignsInAndOut", func(t *testing.T) { signOut(t, s.of(t)) })
	t.Run("Approve", func(t *testing.T) { approve(t, s.of(t)) })
	t.Run("AnotherTakesThePlace", func(t *testing.T) { anotherTakesThePlace(t, s.of(t)) })
}

func anotherTakesThePlace(t *testing.T, s *consoleFixture) {
	b := s.signedInTab("/console/leases")
	b.live()
	var made struct {
		Key string `json:"key"`
	}
	s.w.into(&made, http.MethodPost, "/keys",
		picket.KeyRequest{Name: "somebody-else", Scopes: []picket.Scope{picket.ScopeReviewer}})
	b.until("a second sign-in",
		`(window.asked ??= fetch("/console/login", {method: "POST", body: new URLSearchParams({key: "`+made.Key+
			`"})}).then((answer) => (window.signed = answer.ok))) && window.signed`)
	s.leased(s.role(), "next", "Leased to see who looks")
	b.reads("header .menu", "somebody-else")
	b.readsNo("#nav", "Agents")
}

// The server is stopped under an open page and started again: the page reports it,
// and catches up on its own. What waits for people is counted all along.
func TestConsoleOutlivesItsServer(t *testing.T) {
	s := newConsoleFixture(t, asWritten)
	w := s.w
	server := w.processes[0]
	b := w.browse(t)
	b.forgive("Failed to load resource", "net::ERR")
	b.signIn("/console/tasks")
	b.live()
	b.mark()
	b.until("a title without a number", `document.title === "Tasks · Picket"`)
	s.ask("asking", "The first that asks")
	b.until("a title that counts", `document.title === "(1) Tasks · Picket"`)
	b.reads("#nav [href$=handoffs] .count", "1")
	b.reads("#toast", "1 task waits for a person")
	w.submit(spec("before the stop", 60))
	b.reads("#list", "before the stop")
	server.signal(syscall.SIGTERM)
	server.wait()
	b.sees("#live[data-state=lost]")
	b.reads("#live", "Disconnected")
	server = w.up()
	w.submit(spec("after the stop", 60))
	b.reads("#list", "after the stop")
	b.live()
	server.kill()
	b.sees("#live[data-state=lost]")
	w.up()
	w.submit(spec("after the kill", 60))
	b.reads("#list", "after the kill")
	b.live()
	s.resultOf("coder", "the-first", "The first to review")
	b.until("a title that counts both", `document.title === "(2) Tasks · Picket"`)
	b.until("the same page", samePage)
}
