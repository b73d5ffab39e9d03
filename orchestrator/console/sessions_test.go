package console_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/orchestrator"
)

// keptSession is a session with the adapter that keeps it.
type keptSession struct {
	*fixture
	agent       string
	incarnation int64
	id          string
}

var adapter = picket.Caller{Actor: "test"}

// addSession registers an agent of a name that keeps one idle session.
func (o *fixture) addSession(agent, name string) keptSession {
	o.t.Helper()
	a, err := o.Register(o.t.Context(), adapter, picket.Registration{AgentID: agent, RoleID: "coder",
		Metadata: picket.RawJSON(`{"agent_name":"` + name + `"}`)})
	must(o.t, err)
	k := keptSession{o, agent, a.Incarnation, newSessionID()}
	k.report(k.idle())
	return k
}

func newSessionID() string { return "asession_" + ulid.Make().String() }

func (k keptSession) page() string { return "/console/sessions/" + k.id }

func (k keptSession) idle() picket.SessionReport {
	return picket.SessionReport{SessionID: k.id, Kind: picket.SessionResumable, Preset: "claude",
		State: picket.SessionIdle}
}

// report reports a whole list of sessions.
func (k keptSession) report(list ...picket.SessionReport) {
	k.t.Helper()
	must(k.t, k.ReportSessions(k.t.Context(), adapter, k.agent,
		picket.SessionsReport{Incarnation: k.incarnation, Sessions: list}))
}

// prompt sends a prompt.
func (k keptSession) prompt(text string) string {
	k.t.Helper()
	somebody := picket.Caller{Actor: "key_of_somebody"}
	p, err := k.PromptSession(k.t.Context(), somebody, k.id, picket.PromptRequest{Text: text})
	must(k.t, err)
	return p.PromptID
}

// say reports what became of a prompt, with a piece of the answer behind offset bytes.
func (k keptSession) say(prompt string, state picket.PromptState, output string, offset int, reason string) {
	k.t.Helper()
	_, err := k.CommandResult(k.t.Context(), adapter, k.agent, prompt, picket.CommandResult{
		Incarnation: k.incarnation, State: state, Output: output, Offset: offset, Reason: reason})
	must(k.t, err)
}

// addManySessions makes 64 sessions, of which one has more prompts than a page, each with texts as long as
// they may be. It returns the id of that one.
func (o *fixture) addManySessions() string {
	o.t.Helper()
	k := o.addSession("keeper", "ann")
	all := []picket.SessionReport{k.idle()}
	for len(all) < picket.MaxAgentSessions {
		next := k.idle()
		next.SessionID = newSessionID()
		all = append(all, next)
	}
	k.report(all...)
	for range maxPrompts + 5 {
		p := k.prompt(expensiveText(picket.MaxPromptText))
		k.say(p, picket.PromptAnswered, expensiveText(picket.MaxAnswerText), 0, "")
	}
	return k.id
}

const maxPrompts = 10 // on a page

func TestSessionsAreListed(t *testing.T) {
	virtual(t, func(t *testing.T, o *fixture) {
		operator, reviewer := o.signedIn(picket.ScopeOperator), o.signedIn(picket.ScopeReviewer)
		operator.mustGet("/console/sessions").wantText(t, "No session is kept.", "picket adapter --as NAME",
			`aria-current="page">Sessions`)
		k := o.addSession("a1", "ann")
		o.addSession("a2", "ben")
		k.prompt("first")
		for _, s := range []*browser{operator, reviewer} {
			p := s.mustGet("/console/sessions")
			p.wantText(t, "healthy", "ann", "resumable", "claude", "It waits for a prompt.", "idle", "a1", "ben")
			if n := strings.Count(p.body, "<tr data-row"); n != 2 {
				t.Errorf("%d rows", n)
			}
			one := s.mustGet("/console/sessions?agent=a2")
			one.wantText(t, "of agent a2", "ben")
			one.wantNoText(t, ">ann<")
		}
		reviewer.mustGet("/console/sessions").wantNoText(t, "/console/agents")
		operator.mustGet("/console/agents/a1").wantText(t, "Sessions", k.page(), "It waits for a prompt.")
		if p := operator.get("/console/sessions?agent=no+such!"); p.status != http.StatusBadRequest {
			t.Errorf("no name of an agent: %d", p.status)
		}
	})
}

// Each health is said in a sentence, and not by a colour alone.
func TestTheHealthOfASessionIsExplained(t *testing.T) {
	virtual(t, func(t *testing.T, o *fixture) {
		s := o.signedIn(picket.ScopeReviewer)
		k := o.addSession("a1", "ann")
		look := func(words ...string) {
			t.Helper()
			s.mustGet(k.page()).wantText(t, words...)
			s.mustGet("/console/sessions").wantText(t, words[:2]...)
		}
		look("healthy", "It waits for a prompt.", "health allows wakes yes", "attachable yes")
		under := k.idle()
		under.State, under.PromptID = picket.SessionPrompting, k.prompt("go")
		k.report(under)
		look("prompting", "A prompt is under way.", "session_prompt_active", "health allows wakes no")
		under.Silent = true
		k.report(under)
		look("degraded", "has shown no activity for too long", "session_unhealthy health_hung")
		lost := k.idle()
		lost.State, lost.DetachedBecause = picket.SessionDetached, picket.ConversationLost
		k.report(lost)
		look("detached", "or the conversation is lost", "session_not_attachable")
		o.advanceStoreTime(3 * time.Minute)
		look("stale", "The last report is older than wake.session_health_stale_after", "health_stale")
		k.report()
		s.mustGet(k.page()).wantText(t, "dead", "The session has ended, or its agent", "health_dead")
		s.mustGet("/console/sessions").wantText(t, "No session is kept.")
	})
}

// An operator prompts a session once, sees the answer as it comes, and stops the session. A reviewer reads.
func TestASessionIsPrompted(t *testing.T) {
	virtual(t, func(t *testing.T, o *fixture) {
		operator, reviewer := o.signedIn(picket.ScopeOperator), o.signedIn(picket.ScopeReviewer)
		k := o.addSession("a1", "ann")
		page := k.page()
		operator.mustGet(page).wantText(t, "No prompts.", "Prompt to this session", `value="600"`)
		form := append(operator.mustGet(page).hidden(page+"/prompts"), "text", "first <b>line</b>\r\nsecond",
			"timeoutSeconds", "60")
		for range 2 { // the second press of the button is the same prompt
			operator.follow(operator.post(page+"/prompts", form...)).wantText(t, "Sent. The page shows the answer",
				"first &lt;b&gt;line&lt;/b&gt;", "you", "queued", "has not begun", "ends in 1 min")
		}
		got, err := o.SessionPrompts(t.Context(), k.id, 0, 0)
		must(t, err)
		if len(got.Prompts) != 1 || got.Prompts[0].Text != "first <b>line</b>\nsecond" ||
			got.Prompts[0].By != operator.key.KeyID {
			t.Fatalf("prompts: %+v", got.Prompts)
		}
		prompt := got.Prompts[0].PromptID
		k.say(prompt, picket.PromptAccepted, "half of ä", 0, "")
		answer := page + "/prompts/" + prompt + "/answer"
		p := reviewer.mustGet(page)
		p.wantText(t, "is answering", "half of ä", `data-log="`+answer+`" data-offset="10" data-state="accepted"`,
			operator.key.KeyID)
		p.wantNoText(t, "Prompt to this session", page+"/stop")
		k.say(prompt, picket.PromptAnswered, "nd the rest", 10, "")
		rest := reviewer.mustGet(answer + "?offset=10")
		if rest.body != "nd the rest" || rest.header.Get("X-Picket-Next") != "21" ||
			rest.header.Get("X-Picket-Log") != "closed" {
			t.Errorf("the script reads %q %v", rest.body, rest.header)
		}
		p = reviewer.mustGet(page)
		p.wantText(t, "answered", "half of änd the rest")
		p.wantNoText(t, "data-log", "is answering")

		operator.follow(operator.submit(page, page+"/stop")).wantText(t, "Asked. The session ends as soon as")
		p = operator.submit(page, page+"/prompts", "text", "too late", "timeoutSeconds", "7")
		if p.status != http.StatusConflict {
			t.Errorf("a prompt to a session that is being stopped: %d", p.status)
		}
		p.wantText(t, "the session is being stopped", ">too late</textarea>", `value="7"`)
		k.report()
		p = operator.mustGet(page)
		p.wantText(t, "stopped", "half of änd the rest")
		p.wantNoText(t, "Prompt to this session", page+"/stop")
	})
}

// What is refused stays in its form, and its field is marked.
func TestAPromptThatIsRefusedIsKept(t *testing.T) {
	virtual(t, func(t *testing.T, o *fixture) {
		s := o.signedIn(picket.ScopeOperator)
		k := o.addSession("a1", "ann")
		page := k.page()
		for _, c := range []struct{ text, seconds, problem, wrong string }{
			{" ", "600", "text is required", "text"},
			{strings.Repeat("x", picket.MaxPromptText+1), "600", "at most 16384 are allowed", "text"},
			{"go", "0", "timeoutSeconds is 0", "timeout"},
			{"go", "soon", "the time is not a number", "timeout"},
		} {
			p := s.submit(page, page+"/prompts", "text", c.text, "timeoutSeconds", c.seconds)
			if p.status != http.StatusBadRequest && p.status != http.StatusRequestEntityTooLarge {
				t.Errorf("%s: %d", c.problem, p.status)
			}
			p.wantText(t, c.problem, ">"+c.text+"</textarea>", `value="`+c.seconds+`"`,
				`<div class="field wrong"><label for="`+c.wrong+`"`)
		}
		for range picket.MaxOpenPrompts {
			k.prompt("wait")
		}
		s.submit(page, page+"/prompts", "text", "one too many").wantText(t, "prompts of this session have not ended",
			">one too many</textarea>")
		if n := strings.Count(s.mustGet(page).body, "data-log="); n != 1 {
			t.Errorf("the script follows %d answers", n)
		}
		if p := s.get("/console/sessions/" + newSessionID()); p.status != http.StatusNotFound {
			t.Errorf("no such session: %d", p.status)
		} else {
			p.wantText(t, "there is no such session", "kept for a week")
		}
	})
}

// Why a prompt was not answered is said in a sentence, beside what the adapter said.
func TestTheReasonOfAPromptIsExplained(t *testing.T) {
	virtual(t, func(t *testing.T, o *fixture) {
		s := o.signedIn(picket.ScopeReviewer)
		k := o.addSession("a1", "ann")
		k.say(k.prompt("a"), picket.PromptFailed, "some of it", 0, "agent_ended: exit status 7")
		k.say(k.prompt("b"), picket.PromptRefused, "", 0, "conversation_lost")
		k.say(k.prompt("c"), picket.PromptFailed, "", 0, "a reason of its own")
		k.prompt("d")
		o.advanceStoreTime(11 * time.Minute)
		s.mustGet(k.page()).wantText(t, "some of it", "The process of the agent ended.", "exit status 7",
			"There is no conversation to resume.", "The agent did not answer.", "a reason of its own",
			"expired", "Nobody took it before its deadline.")
	})
}

// The prompt of a wake has no sender: Picket has sent it.
func TestAWakeIsShownAsThatOfPicket(t *testing.T) {
	virtual(t, func(t *testing.T, o *fixture) {
		s := o.signedIn(picket.ScopeReviewer)
		k := o.addSession("a1", "ann")
		key := "pk:{default}:prompt:" + k.prompt("Look at your inbox.")
		must(t, o.redis.HSet(t.Context(), key, "wake", "wake_1", "by", "").Err())
		s.mustGet(k.page()).wantText(t, "Picket wake just now", "Look at your inbox.")
	})
}

// Each prompt is on exactly one page, and what a page has cut is there at full length.
func TestTheConversationHasPages(t *testing.T) {
	virtual(t, func(t *testing.T, o *fixture) {
		s := o.signedIn(picket.ScopeOperator)
		k := o.addSession("a1", "ann")
		long := strings.Repeat("<b>words</b>\n", 900)
		for i := range 25 {
			p := k.prompt(fmt.Sprintf("ask-%02d %s", i, long))
			k.say(p, picket.PromptAnswered, fmt.Sprintf("said-%02d %s", i, long), 0, "")
		}
		pages, all := 0, ""
		for path := k.page(); path != ""; pages++ {
			p := s.mustGet(path)
			all, path = all+p.body, nextOf(p)
			if len(p.body) > 640<<10 {
				t.Errorf("a page has %d KiB", len(p.body)>>10)
			}
			if form := strings.Contains(p.body, "Prompt to this session"); form != (pages == 0) {
				t.Errorf("page %d has a form: %v", pages, form)
			}
		}
		if pages != 3 {
			t.Errorf("%d pages", pages)
		}
		for i := range 25 {
			if n := strings.Count(all, fmt.Sprintf("ask-%02d ", i)); n != 1 {
				t.Errorf("prompt %d is on %d pages", i, n)
			}
		}
		full := between(s.mustGet(k.page()).body, `its beginning; <a href="`, `prompt"`)
		for part, want := range map[string]string{"prompt": "ask-", "answer": "said-"} {
			p := s.mustGet(full + part)
			if !strings.HasPrefix(p.body, want) || !strings.HasSuffix(p.body, long) ||
				p.header.Get("Content-Type") != "text/plain; charset=UTF-8" {
				t.Errorf("%s: %d bytes of %s", part, len(p.body), p.header.Get("Content-Type"))
			}
		}
		if p := s.get(full + "none"); p.status != http.StatusNotFound {
			t.Errorf("no such text: %d", p.status)
		}
	})
}

// The store does not answer, or its reply is lost: what was typed is there, and the same button makes one
// prompt.
func TestAPromptOfAStoreThatIsAway(t *testing.T) {
	virtual(t, func(t *testing.T, o *fixture) {
		s := o.signedIn(picket.ScopeOperator)
		k := o.addSession("a1", "ann")
		page := k.page()
		once := s.mustGet(page).nonce(t)
		fields := []string{"text", "go on", "timeoutSeconds", "600", "once", once}
		o.loseReplies = true
		p := s.post(page+"/prompts", fields...)
		if p.status != http.StatusServiceUnavailable || p.nonce(t) != once {
			t.Errorf("a lost reply: %d", p.status)
		}
		p.wantText(t, "Whether it took effect is not known", ">go on</textarea>")
		o.loseReplies = false
		s.follow(s.post(page+"/prompts", fields...))
		got, err := o.SessionPrompts(t.Context(), k.id, 0, 0)
		must(t, err)
		if len(got.Prompts) != 1 {
			t.Errorf("%d prompts", len(got.Prompts))
		}
		o.storeDown = true
		if p := s.get(page); p.status != http.StatusServiceUnavailable {
			t.Errorf("the store is away: %d", p.status)
		}
	})
}

// The page of a session says whether it can be woken, and why not. A wake is shown on both pages.
func TestASessionIsWoken(t *testing.T) {
	virtual(t, func(t *testing.T, o *fixture) {
		operator, reviewer := o.signedIn(picket.ScopeOperator), o.signedIn(picket.ScopeReviewer)
		k := o.addSession("a1", "ann")
		for _, s := range []*browser{operator, reviewer} {
			s.mustGet(k.page()).wantText(t, "It cannot be woken now.", "The agent name has no wake policy.",
				"The scheduler does not wake it.")
		}
		reviewer.mustGet(k.page()).wantNoText(t, "/wake")
		operator.follow(operator.submit(k.page(), k.page()+"/wake")).wantText(t, "Not woken. The page shows why.")
		_, err := o.WritePolicy(o.t.Context(), adapter, "ann", picket.PolicyWrite{Body: "Read your messages.\n"})
		must(t, err)
		operator.mustGet(k.page()).wantText(t, "A person can wake it now.", "The policy and the session allow it.")
		limits := orchestrator.DefaultSessionLimits()
		limits.Others.Wakes = 0
		must(t, o.store.SetSessionLimits(limits))
		operator.mustGet(k.page()).wantText(t, "It cannot be woken now.", "because agents.ann.wake_budget is 0",
			"raise agents.ann.wake_budget in picket.yaml and restart the server.")
		operator.mustGet(k.page()).wantNoText(t, "A wake is allowed")
		must(t, o.store.SetSessionLimits(orchestrator.DefaultSessionLimits()))
		done := make(chan struct{})
		go func() {
			defer close(done)
			got, err := o.PendingCommands(o.t.Context(), adapter, "a1",
				picket.PendingQuery{Incarnation: k.incarnation, Wait: time.Minute})
			must(t, err)
			if len(got.Sessions) == 1 {
				k.say(got.Sessions[0].CommandID, picket.PromptAccepted, "Nothing to do.", 0, "")
			}
		}()
		operator.follow(operator.submit(k.page(), k.page()+"/wake")).wantText(t, "Woken.", "Nothing to do.")
		<-done
		for _, s := range []*browser{operator, reviewer} {
			s.mustGet("/console/policies/ann").wantText(t, "Wakes", "wake_sent", "heartbeat_no_policy", "manual",
				k.page())
		}
	})
}

// The page of a session says when the scheduler wakes it next, and that it backs off, also to a reviewer.
func TestTheNextWakeOfASessionIsShown(t *testing.T) {
	virtual(t, func(t *testing.T, o *fixture) {
		reviewer := o.signedIn(picket.ScopeReviewer)
		k := o.addSession("a1", "ann")
		_, err := o.WritePolicy(o.t.Context(), adapter, "ann", picket.PolicyWrite{Body: "Read your messages.\n"})
		must(t, err)
		reviewer.mustGet(k.page()).wantText(t, "The scheduler does not wake it.", "unmetered")
		metered := k.idle()
		metered.Metered = true
		k.report(metered)
		p := reviewer.mustGet(k.page())
		p.wantText(t, "The scheduler wakes it at the earliest in 30 min", "if something has changed for the agent by then")
		p.wantNoText(t, "Backing off")
		must(t, o.redis.HSet(t.Context(), "pk:{default}:session-wake:"+k.id, "idle", "3").Err())
		reviewer.mustGet(k.page()).wantText(t, "The scheduler wakes it at the earliest in 1 h 00 min", "Backing off:")
		somebody := picket.Caller{Actor: "key_of_somebody", Operator: true}
		_, err = o.Tell(t.Context(), somebody, "a1", picket.MessageRequest{Body: "look at this"})
		must(t, err)
		p = reviewer.mustGet(k.page())
		p.wantText(t, "The scheduler wakes it within a minute.")
		p.wantNoText(t, "if something has changed")
	})
}
