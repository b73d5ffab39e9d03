package console_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/budget"
	"github.com/picket-dev/picket/orchestrator/console"
)

// A script planted in any word of an agent, an operator or an address is text
// on the pages of tasks, agents, money and events, too.
func TestPlantedScriptsStayTextOnEveryPage(t *testing.T) {
	virtual(t, func(t *testing.T, o *fixture) {
		ctx, s := t.Context(), o.signedIn(picket.ScopeAdmin)
		_, reviewed := o.plantScripts()
		most := 3
		_, err := o.Register(ctx, picket.Caller{Actor: canary},
			picket.Registration{
				AgentID:  "evil",
				RoleID:   "coder",
				Name:     canary,
				Endpoint: "http://x/?" + url.QueryEscape(canary),
				Capacity: &picket.DeclaredCapacity{MaxConcurrentTasks: &most},
				Metadata: picket.RawJSON(`{"a":` + string(quoteJSON(canary)) + `}`),
			})
		must(t, err)
		label := strings.NewReplacer("{", "", "}", "").Replace(canary)
		id, held := o.startRun(picket.TaskSpec{
			Title:          canary,
			Labels:         map[string]string{"l": label[:100]},
			BudgetEnvelope: &budget.Envelope{USD: 100 * cent, Tokens: 100},
			Retry:          &picket.Retry{On: []picket.ExitClass{picket.ExitCrash}},
		})
		part, err := o.Delegate(ctx, held, "d",
			picket.Subtask{Title: canary, BudgetEnvelope: &budget.Envelope{USD: cent}})
		must(t, err)
		o.payCallWithDetail(held, "http_request", cent, canary)
		must(t, o.RunEvents(ctx, held,
			[]picket.RunEvent{{Type: picket.EventRunLaunched, WorkspacePath: "/x/" + canary, Containment: canary}}))
		_, err = o.TopUp(ctx, picket.Caller{Actor: canary}, id, picket.TopUp{USD: cent, Reason: canary})
		must(t, err)
		signal := canary
		_, err = o.Release(ctx, held, picket.Exit{Class: picket.ExitCrash, Signal: &signal, Detail: canary})
		must(t, err)
		_, err = o.Cancel(ctx, picket.Caller{Actor: canary}, part.TaskID, canary)
		must(t, err)
		_, err = o.Pause(ctx, picket.Caller{Actor: canary}, false, canary)
		must(t, err)
		k, policy := o.plantSession(), o.plantPolicy()
		o.endpoints = endpointsOf("http://x", console.PoolEndpoint{Role: "coder", Name: canary, Description: canary,
			Skills: []console.EndpointSkill{{ID: canary, Name: canary, Description: canary}}})
		work, books, q := "/console/tasks/"+id, "/console/budgets/"+id, url.QueryEscape(typedScript)
		seen := 0
		look := func(where string, p response) {
			p.wantNoScript(t, where)
			seen += strings.Count(p.body, "window.__xss=1&lt;/script&gt;")
		}
		for _, path := range []string{"/console/tasks", work, "/console/tasks/" + reviewed,
			"/console/tasks/" + part.TaskID, "/console/tasks/" + reviewed + "/reports",
			"/console/tasks/" + reviewed + "/log",
			"/console/tasks/" + reviewed + "/diff", "/console/tasks/" + reviewed + "/input",
			"/console/tasks/" + reviewed + "/output", "/console/agents", "/console/agents/evil", "/console/endpoints",
			"/console/leases",
			"/console/budgets",
			books, "/console/ledger", "/console/events", "/console/events?task=" + id, "/console/stop",
			"/console/tasks/new?role=" + q, "/console/sessions", "/console/sessions?agent=talker", k.page(),
			"/console/agents/talker", "/console/policies", policy, policy + "/history"} {
			if p := s.mustGet(path); !strings.Contains(path, "/leases") && p.status == http.StatusOK {
				look(path, p)
			}
		}
		for _, path := range []string{"/console/tasks?q=", "/console/tasks?role=", "/console/tasks?label=",
			"/console/tasks?parent=", "/console/tasks?since=", "/console/tasks?state=", "/console/agents?status=",
			"/console/agents?role=",
			"/console/ledger?of=", "/console/ledger?kind=", "/console/events?type=", "/console/events?task=",
			"/console/events?agent=", "/console/tasks?did=", work + "?run=",
			"/console/sessions?agent=", "/console/sessions?before=", k.page() + "?before=",
			"/console/policies?name=", "/console/policies?after=", policy + "/history?before="} {
			look(path, s.get(path+q))
		}
		once := s.mustGet(work).nonce(t)
		for _, path := range []string{work + "/cancel", work + "/top-up", work + "/retry",
			"/console/agents/evil/stop-task", books + "/top-up", "/console/leases/" + id + "/expire"} {
			p := s.post(path, "reason", strings.Repeat(typedScript, 60), "usd", typedScript, "tokens", typedScript,
				"task", typedScript, "once",
				once)
			if p.status < 400 || p.status >= 500 {
				t.Errorf("%s is not refused: %d", path, p.status)
			}
			look(path, p)
		}
		look("a task that is refused",
			s.post("/console/tasks", "title", strings.Repeat(typedScript, 10), "input", typedScript, "role",
				typedScript, "needs", typedScript,
				"agent", typedScript, "priority", typedScript, "usd", typedScript,
				"tokens", typedScript, "labels", typedScript, "review", typedScript, "once", once))
		for _, fields := range [][]string{{"body", typedScript}, {"body", "---\n" + typedScript},
			{"body", "---\n" + `"` + strings.ReplaceAll(typedScript, `"`, "") + `": 1` + "\n---\n"}} {
			fields = append(fields, "expected", typedScript, "once", once)
			look("a policy that is checked", s.post(policy+"/check", fields...))
			look("a policy that is checked by the script", s.post(policy+"/check", append(fields, "live", "1")...))
			look("a policy that is refused", s.post(policy, fields...))
		}
		look("a choice that is refused", s.post(policy+"/choose", "version", typedScript, "once", once))
		look("a prompt that is refused",
			s.post(k.page()+"/prompts", "text", typedScript, "timeoutSeconds", typedScript, "once", once))
		look("a reason of a pause that is refused",
			s.post("/console/pause", "reason", strings.Repeat(typedScript, 60), "once", once))
		if seen < 150 {
			t.Errorf("the planted words were seen %d times only: are they in every field?", seen)
		}
		t.Logf("planted words: %d times on the pages, as text", seen)
	})
}

// plantSession makes a session whose every text that is not ours has the script in it: a prompt, an answer
// and a reason of prompts that have ended, and an answer that goes on.
func (o *fixture) plantSession() keptSession {
	o.t.Helper()
	k := o.addSession("talker", "ann")
	k.say(k.prompt(canary), picket.PromptAnswered, canary+"\x1b]0;title\x07\x1b[31mred", 0, "")
	k.say(k.prompt(canary), picket.PromptFailed, canary, 0, canary)
	k.say(k.prompt(canary), picket.PromptAccepted, canary+"\x1b[31mred", 0, "")
	return k
}

// plantPolicy makes a policy with the script in every text of it and in the text of its file, which is in
// conflict with the store.
func (o *fixture) plantPolicy() (page string) {
	o.t.Helper()
	summary := "---\nsummary: " + string(quoteJSON(canary)) + "\n---\n"
	o.writePolicy("ann", canary+"\n")
	p := o.writePolicy("ann", summary+canary+"\n")
	o.publishFile(picket.PolicyFileConflict, canary+"\nof the file\n", p.RevisionID)
	return annPolicy
}

// The texts of a session at full length are plain text, and hide nothing. What the script reads is shown as
// text by the script.
func TestTextsOfASessionArePlain(t *testing.T) {
	virtual(t, func(t *testing.T, o *fixture) {
		s := o.signedIn(picket.ScopeReviewer)
		k := o.plantSession()
		got, err := o.SessionPrompts(t.Context(), k.id, 0, 0)
		must(t, err)
		for _, prompt := range got.Prompts {
			at := k.page() + "/prompts/" + prompt.PromptID
			for _, part := range []string{"/full/prompt", "/full/answer", "/answer"} {
				p := s.mustGet(at + part)
				if !strings.HasPrefix(p.header.Get("Content-Type"), "text/plain") ||
					p.header.Get("X-Content-Type-Options") != "nosniff" {
					t.Errorf("%s is %v", part, p.header)
				}
				if part != "/answer" && strings.ContainsAny(p.body, "\u202e\u2066\x1b") {
					t.Errorf("%s has hidden characters: %q", part, p.body)
				}
			}
		}
	})
}
