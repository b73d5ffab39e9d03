package console_test

import (
	"net/url"
	"regexp"
	"strings"
	"testing"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/orchestrator/console"
)

// canary is a script in the words of an agent, in every way in which it could
// get out of them: out of text, an attribute, a textarea and a script.
const canary = `"'></textarea></script><script>window.__xss=1</script><img src=x onerror=window.__xss=1>` +
	"\u202egnirts\u2066{{.Nonce}}"

// typedScript is what a person types, or is sent in a link: it stays as it was typed,
// and is text as well.
var typedScript = canary[:strings.Index(canary, "\u202e")]

// plantScripts fills every field that an agent writes with it.
func (o *fixture) plantScripts() (handoff, review string) {
	o.t.Helper()
	ctx := o.t.Context()
	spec := picket.TaskSpec{Title: canary, Input: quoteJSON(canary)}
	work := func() (string, picket.LeaseCredential) {
		id, held := o.startRun(spec)
		_, err := o.Report(ctx, held, "",
			picket.Progress{
				Summary:   canary,
				Beliefs:   []string{canary},
				Attempted: []picket.Attempted{{Action: canary, Outcome: canary}},
				NextStep:  canary,
				Blockers:  []string{canary},
			})
		must(o.t, err)
		_, err = o.RunLog(ctx, held,
			picket.LogWrite{Stream: "stdout", Data: []byte(canary + "\n\x1b]0;title\x07\x1b[31mred\n")})
		must(o.t, err)
		must(o.t, o.RunEvidence(ctx, held,
			picket.Evidence{
				Repository: "/x" + canary,
				Branch:     canary,
				Base:       canary,
				Diffstat:   canary,
				Diff:       "+" + canary + "\n-" + canary + "\ndiff " + canary + "\n@@" + canary + "\n",
				Files:      []picket.ChangedFile{{Path: canary}},
			}))
		return id, held
	}
	_, held := work()
	h, err := o.RequestHelp(ctx, held, picket.HelpRequest{Question: canary, Options: []string{canary}})
	must(o.t, err)
	review, held = work()
	_, err = o.Complete(ctx, held, picket.Completion{Output: quoteJSON(canary), Summary: canary})
	must(o.t, err)
	_, held = work()
	_, err = o.Fail(ctx, held, canary, false)
	must(o.t, err)
	return h.HandoffID, review
}

var ourTags = regexp.MustCompile(`<(script|img)\b[^>]*>`)

// wantNoScript checks that no word of an agent has become anything but text.
func (p response) wantNoScript(t *testing.T, where string) {
	t.Helper()
	if p.status >= 500 {
		t.Errorf("%s: %d", where, p.status)
	}
	for _, tag := range ourTags.FindAllString(p.body, -1) {
		if strings.Contains(tag, "xss") || strings.Contains(tag, "onerror") ||
			!strings.Contains(tag, "/console/assets/") {
			t.Errorf("%s: planted %s", where, tag)
		}
	}
	for _, out := range []string{"<script>window", "onerror=window.__xss=1>", "\u202e", "\u2066", "\x1b", `"'>`} {
		if strings.Contains(p.body, out) {
			t.Errorf("%s: %q has come through", where, out)
		}
	}
}

func TestAgentTextStaysText(t *testing.T) {
	virtual(t, func(t *testing.T, o *fixture) {
		s := o.signedIn(picket.ScopeAdmin)
		handoff, review := o.plantScripts()
		ask, done := "/console/handoffs/"+handoff, "/console/reviews/"+review
		seen := 0
		look := func(where string, p response) {
			p.wantNoScript(t, where)
			seen += strings.Count(p.body, "window.__xss=1&lt;/script&gt;")
		}
		for _, path := range []string{"/console/", "/console/handoffs", ask, ask + "?edit=1", "/console/reviews", done,
			"/console/reviews/approve", "/console/reviews?role=" + url.QueryEscape(typedScript),
			"/console/reviews?label=" + url.QueryEscape("a="+typedScript),
			"/console/reviews?did=" + url.QueryEscape(typedScript),
			"/console/login?next=" + url.QueryEscape("/console/"+typedScript),
			"/console/" + url.PathEscape(typedScript)} {
			look(path, s.get(path))
		}
		once := s.mustGet(ask).nonce(t)
		look("the form of the repair", s.post(done+"/fix", "note", typedScript))
		look("a refused form", s.post(ask+"/answer", "answer", typedScript, "edit", "1", "input", typedScript,
			"inputAs", "json",
			"once", once))
		look("answered", s.follow(s.post(ask+"/answer", "choice", "0", "answer", typedScript, "edit", "1", "input",
			typedScript,
			"inputAs", "text", "once", once)))
		look("a lost race", s.post(ask+"/finish", "output", typedScript, "once", s.newNonce()))
		look("approved", s.follow(s.submit(done, done+"/approve", "note", typedScript)))
		look("answers of a hand-off that was decided", s.mustGet("/console/handoffs?state=answered"))
		for _, part := range []string{"question", "diffstat", "answer", "report", "input"} {
			if p := s.get(ask + "/full/" + part); !strings.HasPrefix(p.header.Get("Content-Type"), "text/plain") ||
				strings.ContainsAny(p.body, "\u202e\u2066\x1b") {
				t.Errorf("%s is %s", part, p.header.Get("Content-Type"))
			}
		}
		if seen < 60 {
			t.Errorf("the canary was seen %d times only: is it in every field?", seen)
		}
		t.Logf("planted words: %d times on the pages, as text", seen)
	})
}

// An event whose data cannot be read leaves its place empty. An error here would take the
// whole page away, with all the other events.
func TestAnEventThatCannotBeReadIsLeftEmpty(t *testing.T) {
	for data, shown := range map[string]bool{`{"reason":"x"}`: true, `{"reason":`: false, `{"a":1,"a":2}`: false} {
		ev := picket.Event{Seq: 7, Type: picket.EventPaused, Data: picket.RawJSON(data)}
		if got := console.EventJSON(ev); (got != "") != shown {
			t.Errorf("data %s is shown as %q", data, got)
		}
	}
}
