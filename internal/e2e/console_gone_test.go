//go:build linux

package e2e

import (
	"net/http"
	"testing"

	"github.com/picket-dev/picket"
)

// A page whose matter has been deleted under it stays, and says for as long as
// somebody looks at it that it is not kept up to date: its switch is not green.
// One that never was there goes on counting who waits, and is loaded when it is.
func pageGone(t *testing.T, s *consoleFixture) {
	b := s.otherTab("/console/tasks/" + s.submit("gone-"+s.role(), "Here for a moment").TaskID)
	b.forgive("status of 404")
	b.live()
	b.until("an answer of a server that has deleted it",
		`(window.fetch = async () => new Response('<main><div class="box bad">Not found: it was deleted</div></main>', {status: 404}))`)
	s.ask(s.role(), "An event that every page gets")
	b.reads("#over", "it was deleted What you see here is no longer brought up to date.")
	b.reads("h1", "Here for a moment")
	b.sees("#live[data-state=gone]")
	b.press("p")
	b.reads("#live", "Not updated")
	b.click("#over a")
	b.live()

	b.open("/console/agents/not-yet-" + s.role())
	b.reads("[role=alert]", "there is no such agent")
	b.mark()
	b.until("who waits", `window.waiting = document.title`)
	s.ask(s.role(), "One more that waits")
	b.until("one more", `document.title !== window.waiting`)
	b.until("the same page", samePage)
	b.readsNo("#live", "Not updated")
	s.w.into(&picket.Agent{}, http.MethodPost, "/agents", map[string]any{"agent_id": "not-yet-" + s.role()})
	s.ask(s.role(), "And one that waits too")
	b.reads("#head", "active")
	b.readsNo("main", "there is no such agent")
}
