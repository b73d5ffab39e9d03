package calls

import (
	"strings"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/budget"
	"github.com/picket-dev/picket/orchestrator"
	"github.com/picket-dev/picket/orchestrator/proof/kit"
)

// WithCapability is a set-up with a prompt of [TestSession] that was accepted with a session capability, and with
// another agent, m2.
func WithCapability(w *Env) {
	w.T.Helper()
	WithPrompt(w)
	w.Session = picket.LeaseCredential{Namespace: "default", PromptID: w.Prompt, Secret: strings.Repeat("c", 64)}
	kit.OK(w.T, kit.SendResult(w.Ctx, w.Direct, kit.AgentOwner, "m1", w.Prompt, picket.CommandResult{
		Incarnation: w.incarnation, State: picket.PromptAccepted, CapabilityHash: w.Session.Secret}))
	_, err := w.Direct.Register(w.Ctx, kit.AgentOwner, picket.Registration{AgentID: "m2"})
	kit.OK(w.T, err)
	_, err = w.Direct.Tell(w.Ctx, kit.OtherOperator, "m1", picket.MessageRequest{Body: "hello"})
	kit.OK(w.T, err)
}

// withClaimableTask is WithCapability with a task that the agent would get.
func withClaimableTask(w *Env) {
	w.T.Helper()
	WithCapability(w)
	_, err := w.Direct.Submit(w.Ctx, kit.Operator, picket.TaskSpec{Title: "wait", Agent: "m1"})
	kit.OK(w.T, err)
}

var capabilityCases = []Case{
	{Name: "session_send", Setup: WithCapability, Call: func(w *Env, e *orchestrator.Engine) (any, error) {
		return e.SendMessage(w.Ctx, w.Session, "s1", picket.AgentMessage{To: "m2",
			MessageRequest: picket.MessageRequest{Body: "hello"}})
	}},
	{Name: "next_task", Setup: withClaimableTask, Call: func(w *Env, e *orchestrator.Engine) (any, error) {
		return e.NextTask(w.Ctx, w.Session)
	}},
	{Name: "session_read", Setup: WithCapability, Call: func(w *Env, e *orchestrator.Engine) (any, error) {
		return e.ReadMessages(w.Ctx, w.Session, "r1", picket.ReadMessages{}, 0)
	}},
	{Name: "session_reserve", Setup: WithCapability, Call: func(w *Env, e *orchestrator.Engine) (any, error) {
		return e.Reserve(w.Ctx, w.Session, modelCall())
	}},
	{Name: "settle/session", Setup: func(w *Env) {
		w.T.Helper()
		WithCapability(w)
		_, err := w.Direct.Reserve(w.Ctx, w.Session, modelCall())
		kit.OK(w.T, err)
	}, Call: func(w *Env, e *orchestrator.Engine) (any, error) {
		return e.Settle(w.Ctx, picket.Settlement{CallID: modelCall().CallID, TaskID: w.Prompt, Nonce: modelCall().Nonce,
			Outcome: picket.CallDone, Cost: budget.Envelope{Tokens: 7, USD: kit.USD("0.01")}})
	}},
}

// modelCall is a call of a model by a session.
func modelCall() picket.CallRequest {
	c := kit.PaidCall("0.05")
	c.CallID, c.Nonce, c.Tool, c.Reserve.Tokens = "r1", "n1", "llm_anthropic", 10
	return c
}
