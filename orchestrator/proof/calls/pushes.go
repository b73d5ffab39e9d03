package calls

import (
	"time"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/orchestrator"
	"github.com/picket-dev/picket/orchestrator/proof/kit"
)

// pushClient is a client whose task has push configurations.
var pushClient = picket.Caller{Actor: "key_client", Key: "key_client"}

// pushConfig is a configuration of a task.
func pushConfig(taskID, id string) picket.PushConfig {
	return picket.PushConfig{TaskID: taskID, ID: id, URL: "https://hooks.test/" + picket.Secret(id), Token: "token",
		Scheme: "Bearer", Credentials: "secret"}
}

// withClientTask is a set-up with a task of a client.
func withClientTask(w *Env) {
	w.T.Helper()
	var err error
	w.Task, err = w.Direct.Submit(w.Ctx, pushClient, pushedTask(nil))
	kit.OK(w.T, err)
}

func pushedTask(c *picket.PushConfig) picket.TaskSpec {
	return picket.TaskSpec{Title: "a client's", Role: "served",
		Client: &picket.ClientTask{Role: "served", ContextID: "c1", MessageID: "m1", Push: c}}
}

// withPush is withClientTask with one push configuration.
func withPush(w *Env) {
	withClientTask(w)
	_, err := w.Direct.PutPushConfig(w.Ctx, pushClient, pushConfig(w.Task.TaskID, "c1"))
	kit.OK(w.T, err)
}

// withPushDue is withPush after an update of the task.
func withPushDue(w *Env) {
	withPush(w)
	_, err := w.Direct.Acquire(w.Ctx, kit.Operator, picket.AcquireRequest{AgentID: "a1", Role: "served"})
	kit.OK(w.T, err)
}

// withPushTurn is withPushDue with a claim of a deliverer.
func withPushTurn(w *Env) {
	withPushDue(w)
	turn, err := w.Direct.TakePushTurn(w.Ctx, "claim_1", 0)
	kit.OK(w.T, err)
	w.pushTurn = turn
}

// withPushAtEnd is withPushTurn of a task that has ended, before its last update.
func withPushAtEnd(w *Env) {
	withPushDue(w)
	_, err := w.Direct.Cancel(w.Ctx, kit.Operator, w.Task.TaskID, "test")
	kit.OK(w.T, err)
	turn, err := w.Direct.TakePushTurn(w.Ctx, "claim_1", 0)
	kit.OK(w.T, err)
	w.pushTurn = turn
}

// advancePush advances a configuration to its last update under the claim of the set-up.
func advancePush(outcome picket.PushOutcome, to int64) func(w *Env, e *orchestrator.Engine) (any, error) {
	return func(w *Env, e *orchestrator.Engine) (any, error) {
		return e.AdvancePush(w.Ctx, picket.PushStep{TaskID: w.Task.TaskID, ID: "c1", TurnID: w.pushTurn.TurnID,
			From: w.pushTurn.Cursor, To: to, Outcome: outcome, Delay: time.Minute})
	}
}

// whyEnded is why a repeat of the last step of a configuration is answered another way.
const whyEnded = "the step deletes the configuration, so a repeat finds none, which ends the turn as well"

// ended makes the repeat of a step that has deleted the configuration a success.
func ended(call func(w *Env, e *orchestrator.Engine) (any, error)) func(w *Env, e *orchestrator.Engine) (any, error) {
	return func(w *Env, e *orchestrator.Engine) (any, error) {
		answer, err := call(w, e)
		if picket.CodeOf(err) == picket.CodeNotFound {
			return nil, nil
		}
		return answer, err
	}
}

var pushCases = []Case{
	{Name: "submit/push", Setup: func(*Env) {}, Call: func(w *Env, e *orchestrator.Engine) (any, error) {
		by := Asked("1")
		by.Actor = pushClient.Actor
		c := pushConfig("", "c1")
		t, err := e.Submit(w.Ctx, by, pushedTask(&c))
		return []any{t.TaskID, t.State}, err
	}},
	{Name: "push_put", Setup: withClientTask, Call: func(w *Env, e *orchestrator.Engine) (any, error) {
		return e.PutPushConfig(w.Ctx, pushClient, pushConfig(w.Task.TaskID, "c1"))
	}},
	{Name: "push_put/replaces", Setup: withPushTurn, Call: func(w *Env, e *orchestrator.Engine) (any, error) {
		return e.PutPushConfig(w.Ctx, pushClient, pushConfig(w.Task.TaskID, "c1"))
	}},
	{Name: "push_delete", Setup: withPushDue, Call: func(w *Env, e *orchestrator.Engine) (any, error) {
		return nil, e.DeletePushConfig(w.Ctx, pushClient, w.Task.TaskID, "c1")
	}},
	{Name: "push_claim", Setup: withPushDue, Call: func(w *Env, e *orchestrator.Engine) (any, error) {
		turn, err := e.TakePushTurn(w.Ctx, "claim_1", 0)
		turn.HeldSince = time.Time{}
		return []any{turn.ID, turn.URL.Reveal(), turn.Token.Reveal(), turn.Cursor, turn.Updates}, err
	}},
	{Name: "push_advance", Setup: withPushTurn, Call: advancePush(picket.PushTaken, 1)},
	{Name: "push_advance/failed", Setup: withPushTurn, Call: advancePush(picket.PushFailed, 0)},
	{Name: "push_advance/released", Setup: withPushTurn, Call: advancePush(picket.PushReleased, 0)},
	{Name: "push_advance/gone", AnswerVaries: whyEnded, Setup: withPushTurn,
		Call: ended(advancePush(picket.PushGone, 0))},
	{Name: "push_advance/done", AnswerVaries: whyEnded, Setup: withPushAtEnd,
		Call: ended(advancePush(picket.PushTaken, 2))},
}
