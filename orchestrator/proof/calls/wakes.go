package calls

import (
	"time"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/orchestrator"
	"github.com/picket-dev/picket/orchestrator/proof/kit"
)

// withWakeable is a set-up with a session of the agent name ann, which its policy allows to be woken.
func withWakeable(w *Env) {
	w.T.Helper()
	reg := TestAgent
	reg.Metadata = picket.RawJSON(`{"agent_name":"ann"}`)
	a, err := w.Direct.Register(w.Ctx, kit.AgentOwner, reg)
	kit.OK(w.T, err)
	w.incarnation = a.Incarnation
	kit.OK(w.T, w.sessions(w.Direct, idleSession(TestSession)))
	_, err = w.Direct.WritePolicy(w.Ctx, kit.Operator, "ann", picket.PolicyWrite{Body: "Look at your inbox.\n"})
	kit.OK(w.T, err)
}

// withWakingAdapter is one whose adapter accepts the first wake.
func withWakingAdapter(w *Env) {
	w.T.Helper()
	withWakeable(w)
	done := make(chan struct{})
	w.T.Cleanup(func() { <-done })
	go func() {
		defer close(done)
		for w.Ctx.Err() == nil {
			got, err := w.Direct.PendingCommands(w.Ctx, kit.AgentOwner, "m1",
				picket.PendingQuery{Incarnation: w.incarnation, Wait: time.Second})
			if err != nil || len(got.Sessions) == 0 {
				continue
			}
			_ = kit.SendResult(w.Ctx, w.Direct, kit.AgentOwner, "m1", got.Sessions[0].CommandID,
				picket.CommandResult{Incarnation: w.incarnation, State: picket.PromptAccepted})
			return
		}
	}()
}

// whySeveral is why no time may pass before a wake is repeated.
const whySeveral = "a wake reads its facts first, and waits for the adapter"

var wakeCases = []Case{
	{Name: "record_wake", SeveralCalls: whySeveral, Setup: func(w *Env) {
		withWakeable(w)
		kit.OK(w.T, w.Direct.StopSession(w.Ctx, Asked("t"), TestSession))
	}, Call: wake},
	{Name: "record_wake/sent", SeveralCalls: whySeveral, Setup: withWakingAdapter, Call: wake},
	{Name: "wake_cycle", AnswerVaries: "the cycle has begun", Setup: withWakeable, Call: wakeCycle},
	{Name: "plan_wake", AnswerVaries: "the cycle has begun", SeveralCalls: "a cycle looks at each session on its own",
		Setup: withWakeable, Call: wakeCycle},
}

func wake(w *Env, e *orchestrator.Engine) (any, error) {
	by := Asked("w")
	by.Operator = true
	d, err := e.Wake(w.Ctx, by, "ann", picket.WakeRequest{})
	return d.Reason, err
}

func wakeCycle(w *Env, e *orchestrator.Engine) (any, error) { return e.WakeCycle(w.Ctx) }
