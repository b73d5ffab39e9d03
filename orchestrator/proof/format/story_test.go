package format

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/orchestrator/proof/kit"
)

// story fills a namespace with the work of agents, people and clients, as they leave it in the
// middle of a day. It breaks no invariant.
type story struct {
	*kit.Fixture
	t        *testing.T
	sessions []picket.SessionReport
}

func (s *story) tell() {
	s.Store.SetBudgets(kit.Worth(1_000_000, "100"), kit.Worth(1000, "1"))
	s.makeKeys()
	s.queue()
	s.work()
	s.end()
	s.askPeople()
	s.review()
	s.delegate()
	s.serveClients()
	s.keepSessions()
	s.renewLater()
	kit.OK(s.t, s.Tick(s.Ctx))
	found, err := kit.InspectAll(s.Ctx, s.Engine, false)
	kit.OK(s.t, err)
	if len(found) > 0 {
		s.t.Errorf("the story breaks invariants: %+v", found)
	}
}

// pass lets time go by, in steps that a clock takes while verbs run.
func (s *story) pass(d time.Duration) {
	s.t.Helper()
	for ; d > 0; d -= time.Second {
		setClock(s.t, s.Raw, clock(s.t, s.Raw)+1)
		kit.OK(s.t, s.Tick(s.Ctx))
	}
}

// lease submits a task of a role of its own and leases it, so that no other task comes in between.
func (s *story) lease(title string, spec picket.TaskSpec) (picket.Lease, picket.LeaseCredential) {
	s.t.Helper()
	spec.Title, spec.Role = title, "role-"+strings.ReplaceAll(title, " ", "-")
	s.MustSubmit(s.t, spec)
	return s.take(spec.Role)
}

func (s *story) take(role string) (picket.Lease, picket.LeaseCredential) {
	s.t.Helper()
	l := s.AcquireOne(s.t, picket.AcquireRequest{AgentID: "worker-1", Role: role})
	return l, s.OpenLease(s.t, l)
}

func (s *story) makeKeys() {
	worker := s.MustCreateKey(s.t, picket.ScopeAgent)
	s.MustCreateRunKey(s.t, s.MustCreateKey(s.t, picket.ScopeOperator))
	s.MustRevokeKey(s.t, worker, nil)
	_, err := s.CreateWebhook(s.Ctx, kit.Operator, kit.EveryEvent)
	kit.OK(s.t, err)
}

// queue leaves tasks that wait, in all their orders.
func (s *story) queue() {
	input := `{"text":"` + strings.Repeat("Füge die Seiten zusammen. ", 4000) + `"}`
	for i := range 40 {
		spec := picket.TaskSpec{Title: fmt.Sprint("waits ", i), Priority: kit.Ptr(i % 10), Role: "later",
			Labels: map[string]string{"team": "a", "n": fmt.Sprint(i % 3)}, Assignee: "ann"}
		switch i % 5 {
		case 0:
			spec.Needs = []string{"go", "linux"}
		case 1:
			spec.Agent = "elsewhere"
		case 2:
			spec.NotBefore = picket.Instant(clock(s.t, s.Raw)*1000 + 3_600_000)
		case 3:
			spec.BudgetEnvelope = kit.Worth(500, "0.25")
		}
		if i == 0 {
			spec.Input = picket.RawJSON(input)
			spec.Trace = &picket.Trace{Parent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}
		}
		s.MustSubmit(s.t, spec)
	}
}

// work leaves leases that run: with reports, output, calls, and what the agent has emitted.
func (s *story) work() {
	for i := range 5 {
		l, h := s.lease(fmt.Sprint("works ", i), picket.TaskSpec{
			BudgetEnvelope:     kit.Worth(10_000, "5"),
			LeaseWindowSeconds: kit.Ptr(60 * (i + 1)),
			StallAfterSeconds:  kit.Ptr(600),
			TimeoutSeconds:     kit.Ptr(86_400),
		})
		for range i + 1 {
			s.pass(2 * time.Second)
			s.MustRenew(s.t, l)
		}
		kit.OK(s.t, s.RunEvents(s.Ctx, h, []picket.RunEvent{{Type: picket.EventRunLaunched, Exec: true,
			Containment: picket.ContainmentGroup, WorkspacePath: "/srv/runs/" + l.RunID}}))
		_, err := s.Report(s.Ctx, h, fmt.Sprint("r", i), picket.Progress{Summary: "Die Hälfte ist fertig \x7f 🚀",
			Beliefs: []string{"it compiles"}, NextStep: "tests"})
		kit.OK(s.t, err)
		_, err = s.RunLog(s.Ctx, h, picket.LogWrite{Stream: "stdout", Data: []byte("line 1\nline 2\n")})
		kit.OK(s.t, err)
		s.MustSettle(s.t, kit.DoneSettlement(s.MustReserve(s.t, h, kit.PaidCall("0.10")), "0.07"))
		s.MustReserve(s.t, h, kit.SameCall("one", "h1", "0.20")) // under way
		_, err = s.ReportUsage(s.Ctx, h, picket.UsageReport{Source: "claude", Session: "s1", Tokens: 40,
			USD: kit.USD("0.01")})
		kit.OK(s.t, err)
		kit.OK(s.t, s.OrderExec(s.Ctx, h, kit.ExecOrder(fmt.Sprint("call-", i))))
		kit.OK(s.t, s.RunEvidence(s.Ctx, h, kit.EvidenceWithDiff("+a line\n")))
	}
}

// end leaves tasks that have ended in every way, or wait to be tried again.
func (s *story) end() {
	crash := picket.Exit{Class: picket.ExitCrash, Code: kit.Ptr(1), Detail: "last lines"}
	_, h := s.lease("crashes", picket.TaskSpec{Retry: kit.RetryOn(3, 600, picket.ExitCrash)})
	_, err := s.Release(s.Ctx, h, crash)
	kit.OK(s.t, err)
	_, h = s.lease("fails", picket.TaskSpec{Escalate: picket.EscalateFail})
	_, err = s.Release(s.Ctx, h, crash)
	kit.OK(s.t, err)
	_, h = s.lease("is declined", picket.TaskSpec{})
	_, err = s.Decline(s.Ctx, h, "not mine")
	kit.OK(s.t, err)
	l, _ := s.lease("is taken away", picket.TaskSpec{})
	_, err = s.Expire(s.Ctx, kit.Operator, l.TaskID, "too slow")
	kit.OK(s.t, err)
	s.take("role-is-taken-away")
	l, _ = s.lease("is cancelled", picket.TaskSpec{BudgetEnvelope: kit.Worth(10, "0.1")})
	s.CancelAndRetry(s.t, l.TaskID)
	_, h = s.lease("is completed", picket.TaskSpec{Review: picket.ReviewByNone})
	_, err = s.Complete(s.Ctx, h, picket.Completion{Output: picket.RawJSON(`{"n":1.50}`), Summary: "done"})
	kit.OK(s.t, err)
	l, _ = s.lease("tops up", picket.TaskSpec{BudgetEnvelope: kit.Worth(10, "0.1")})
	_, err = s.TopUp(s.Ctx, kit.Operator, l.TaskID, picket.TopUp{USD: kit.USD("1"), Tokens: 100})
	kit.OK(s.t, err)
}

// askPeople leaves hand-offs that are open, claimed, answered and finished.
func (s *story) askPeople() {
	for _, what := range []string{"asks", "is claimed", "is answered", "is ended by a person"} {
		_, h := s.lease(what, picket.TaskSpec{Assignee: "amy"})
		asked, err := s.RequestHelp(s.Ctx, h, picket.HelpRequest{Question: "Which one?", Options: []string{"a", "b"},
			DeadlineSeconds: kit.Ptr(86_400)})
		kit.OK(s.t, err)
		switch what {
		case "is claimed":
			_, err = s.Claim(s.Ctx, kit.Operator, asked.HandoffID, picket.ClaimRequest{})
		case "is answered":
			_, err = s.Answer(s.Ctx, kit.Operator, asked.HandoffID,
				picket.AnswerRequest{Option: kit.Ptr("b"), Input: picket.RawJSON("7")})
		case "is ended by a person":
			_, err = s.CancelHandoff(s.Ctx, kit.Operator, asked.HandoffID, "no")
		}
		kit.OK(s.t, err)
	}
}

// review leaves results that wait for a review, and some that are decided.
func (s *story) review() {
	for _, what := range []string{"waits for review", "is approved", "is rejected"} {
		l, h := s.lease(what, picket.TaskSpec{BudgetEnvelope: kit.Worth(100, "0.5")})
		s.CompleteWithDiff(s.t, h, "+good\n")
		var err error
		switch what {
		case "is approved":
			_, err = s.Approve(s.Ctx, kit.Operator, l.TaskID, picket.Decision{Digest: s.ReviewDigest(s.t, l.TaskID)})
		case "is rejected":
			_, _, err = s.Reject(s.Ctx, kit.Operator, l.TaskID, picket.Decision{Note: "no",
				Digest: s.ReviewDigest(s.t, l.TaskID)}, &picket.TaskSpec{Title: "fix it", Role: "later"})
		}
		kit.OK(s.t, err)
	}
}

// delegate leaves trees: one whose subtasks have got three levels deep, and one that was cancelled.
func (s *story) delegate() {
	for _, what := range []string{"delegates", "delegates and is cancelled"} {
		top, h := s.lease(what, picket.TaskSpec{BudgetEnvelope: kit.Worth(1000, "1")})
		for depth := range 3 {
			role := fmt.Sprint("role-", strings.ReplaceAll(what, " ", "-"), "-", depth)
			for i := range 2 {
				_, err := s.Delegate(s.Ctx, h, fmt.Sprint("d", i), picket.Subtask{Title: fmt.Sprint("part ", i),
					Role: role, BudgetEnvelope: kit.Worth(int64(100>>depth), "0.1")})
				kit.OK(s.t, err)
				if depth > 0 {
					break // the envelope has enough for one
				}
			}
			_, h = s.take(role)
		}
		_, err := s.Complete(s.Ctx, h, picket.Completion{Output: picket.RawJSON(`1`)})
		kit.OK(s.t, err)
		if what == "delegates and is cancelled" {
			_, err = s.Cancel(s.Ctx, kit.Operator, top.TaskID, "enough")
			kit.OK(s.t, err)
		}
	}
}

// serveClients leaves tasks of a client, with what agents have emitted for it.
func (s *story) serveClients() {
	client := kit.WithKey(s.MustCreateClientKey(s.t, "served").KeyID)
	for i := range 3 {
		_, err := s.Submit(s.Ctx, client, picket.TaskSpec{Title: "a client's", Role: "served",
			Input: picket.RawJSON(`"please"`), Client: &picket.ClientTask{Role: "served", ContextID: "c1",
				MessageID: fmt.Sprint("m", i), Push: &picket.PushConfig{ID: "p1", URL: "https://hooks.test/"}}})
		kit.OK(s.t, err)
	}
	_, h := s.take("served")
	_, err := s.Emit(s.Ctx, h, "e1", picket.ArtifactChunk{Parts: []picket.Part{{Text: kit.Ptr("first")}}})
	kit.OK(s.t, err)
	_, err = s.EmitStatus(s.Ctx, h, "e2", picket.StatusMessage{Message: "half done"})
	kit.OK(s.t, err)
	_, err = s.Tell(s.Ctx, kit.OtherOperator, h.TaskID, picket.MessageRequest{Body: "hurry"})
	kit.OK(s.t, err)
	_, h = s.take("served")
	_, err = s.Complete(s.Ctx, h, picket.Completion{Output: picket.RawJSON(`"here"`)})
	kit.OK(s.t, err)
}

// keepSessions leaves an agent with sessions: with a prompt that was answered, one under way that has
// spent money, and one that waits. Each has an envelope.
func (s *story) keepSessions() {
	a := s.MustRegister(s.t, picket.Registration{AgentID: "keeper", RoleID: "kept",
		Metadata: picket.RawJSON(`{"agent_name":"ann"}`)})
	_, err := s.WritePolicy(s.Ctx, kit.Operator, "ann", picket.PolicyWrite{Body: "Look at the queue.\n"})
	kit.OK(s.t, err)
	for range 2 {
		s.prompt(a)
	}
}

// prompt leaves a session of an agent with its prompts.
func (s *story) prompt(a picket.Agent) {
	s.t.Helper()
	id := "asession_" + ulid.Make().String()
	s.sessions = append(s.sessions, picket.SessionReport{SessionID: id, Kind: picket.SessionResident, Preset: "exec",
		State: picket.SessionIdle})
	kit.OK(s.t, s.ReportSessions(s.Ctx, kit.AgentOwner, a.AgentID,
		picket.SessionsReport{Incarnation: a.Incarnation, Sessions: s.sessions}))
	for _, outcome := range []picket.PromptState{picket.PromptAnswered, picket.PromptAccepted, picket.PromptQueued} {
		p, err := s.PromptSession(s.Ctx, kit.Operator, id,
			picket.PromptRequest{Text: "look", TimeoutSeconds: kit.Ptr(3600)})
		kit.OK(s.t, err)
		if outcome == picket.PromptQueued {
			break
		}
		held := picket.LeaseCredential{Namespace: s.Namespace(), PromptID: p.PromptID,
			Secret: strings.Repeat("c", 64)}
		result := picket.CommandResult{Incarnation: a.Incarnation, State: picket.PromptAccepted,
			CapabilityHash: held.Secret}
		kit.OK(s.t, kit.SendResult(s.Ctx, s, kit.AgentOwner, a.AgentID, p.PromptID, result))
		call := kit.PaidCall("0.02")
		call.Tool, call.Model, call.Reserve.Tokens = "llm_anthropic", "m", 100
		done := kit.DoneSettlement(s.MustReserve(s.t, held, call), "0.01")
		if outcome == picket.PromptAnswered {
			s.MustSettle(s.t, done)
			result = picket.CommandResult{Incarnation: a.Incarnation, State: outcome, Output: "seen"}
			kit.OK(s.t, kit.SendResult(s.Ctx, s, kit.AgentOwner, a.AgentID, p.PromptID, result))
		}
	}
}

// renewLater renews half of the leases again, so that the deadlines differ.
func (s *story) renewLater() {
	s.pass(3 * time.Second)
	page, err := s.Leases(s.Ctx)
	kit.OK(s.t, err)
	if len(page.Leases) < 10 {
		s.t.Errorf("%d leases run, want more", len(page.Leases))
	}
	_, err = s.CountEnded(s.Ctx, 1000)
	kit.OK(s.t, err)
	_, err = s.CountSpending(s.Ctx)
	kit.OK(s.t, err)
}
