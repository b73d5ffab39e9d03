package calls

import (
	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/orchestrator"
	"github.com/picket-dev/picket/orchestrator/proof/kit"
)

// told puts a message into the inbox of the task of the lease.
func told(w *Env) {
	w.T.Helper()
	leased(picket.TaskSpec{})(w)
	_, err := w.Direct.Tell(w.Ctx, kit.Operator, w.Task.TaskID, picket.MessageRequest{Body: "hello"})
	kit.OK(w.T, err)
}

var messageCases = []Case{
	{Name: "tell", Setup: leased(picket.TaskSpec{}),
		Call: func(w *Env, e *orchestrator.Engine) (any, error) {
			return e.Tell(w.Ctx, Asked("m"), w.Task.TaskID, picket.MessageRequest{Body: "hello"})
		}},
	{Name: "send_message", Setup: leased(picket.TaskSpec{}),
		Call: func(w *Env, e *orchestrator.Engine) (any, error) {
			return e.SendMessage(w.Ctx, w.Held, "m1", picket.AgentMessage{
				MessageRequest: picket.MessageRequest{Body: "hello", Data: picket.RawJSON(`{"n":1}`)}})
		}},
	{Name: "read_messages", Setup: told,
		Call: func(w *Env, e *orchestrator.Engine) (any, error) {
			return e.ReadMessages(w.Ctx, w.Held, "r1", picket.ReadMessages{}, 0)
		}},
	{Name: "deliver", Setup: told,
		Call: func(w *Env, e *orchestrator.Engine) (any, error) { return e.DeliverMessages(w.Ctx, w.Held) }},
}
