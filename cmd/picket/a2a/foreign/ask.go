package foreign

import (
	"context"
	"slices"
	"time"

	protocol "github.com/a2aproject/a2a-go/v2/a2a"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/cmd/picket/cli"
)

// takeAnswer is the answer to what the foreign agent has asked by its present status, if it has not been used before.
func (w *work) takeAnswer(key string) *picket.Answer {
	if key != w.saved.Asked {
		return nil
	}
	for _, a := range slices.Backward(w.job.Lease.Answers) {
		switch {
		case a.HandoffID == w.saved.Answered:
			return nil
		case hashOf(a.Question) == w.saved.Question:
			return &a
		}
	}
	return nil
}

// question passes the answer to a question of the foreign agent on. Without an answer it asks, which ends the run.
func (w *work) question(ctx context.Context, t *protocol.Task) (*protocol.Task, error) {
	said, options := questionOf(t.Status)
	key := askedKey(t.Status, said)
	if key == w.answered && time.Since(w.answeredAt) < 15*w.limits.flush {
		if err := cli.Sleep(ctx, w.limits.first); err != nil { // the agent has not taken the answer in yet
			return nil, err
		}
		return w.read(ctx)
	}
	answer := w.takeAnswer(key)
	if answer == nil {
		return nil, w.ask(ctx, key, picket.HelpRequest{Question: said, Options: options})
	}
	if _, err := w.task(ctx); err != nil {
		return nil, err
	}
	sent := protocol.NewMessageForTask(protocol.MessageRoleUser, t, answerParts(*answer)...)
	sent.ID = w.saved.messageID(answer.HandoffID)
	if _, err := w.send(ctx, sent); err != nil {
		return nil, err
	}
	w.answered, w.answeredAt = key, time.Now()
	w.say(w.job.Stdout, "passed the answer on")
	if err := w.save(ctx, "passed the answer on", func(c *checkpoint) { c.Answered = answer.HandoffID }); err != nil {
		return nil, err
	}
	return w.read(ctx)
}

// approval waits for an approval that a person gives at the foreign agent. It asks for it, which ends the run. If a
// person has said that it is given, it goes on as soon as the foreign agent does.
func (w *work) approval(ctx context.Context, t *protocol.Task) (*protocol.Task, error) {
	key := string(t.Status.State)
	request := picket.HelpRequest{Kind: picket.HandoffApproval,
		Question: w.said("the task " + string(t.ID) + " needs an approval or a credential there. " +
			"Give it there, then answer here. " + statusText(t.Status, maxReason))}
	answer := w.takeAnswer(key)
	if answer == nil {
		return nil, w.ask(ctx, key, request)
	}
	for end := time.Now().Add(w.limits.approve); t.Status.State == protocol.TaskStateAuthRequired; {
		if time.Now().After(end) {
			return nil, w.ask(ctx, key, request)
		}
		if err := cli.Sleep(ctx, w.limits.flush); err != nil {
			return nil, err
		}
		next, err := w.read(ctx)
		if err != nil {
			return nil, err
		}
		t = next
	}
	return t, w.save(ctx, "goes on after the approval", func(c *checkpoint) { c.Answered = answer.HandoffID })
}

// ask ends the run with a question. Answers of before are not those to it.
func (w *work) ask(ctx context.Context, key string, q picket.HelpRequest) error {
	if err := w.save(ctx, "waits for an answer", func(c *checkpoint) {
		c.Asked, c.Question = key, hashOf(q.Question)
		if n := len(w.job.Lease.Answers); n > 0 {
			c.Answered = w.job.Lease.Answers[n-1].HandoffID
		}
	}); err != nil {
		return err
	}
	w.say(w.job.Stdout, "asks: %s", q.Question)
	return w.tool(ctx, func(ctx context.Context) error {
		_, err := w.proxy.RequestHelp(ctx, q)
		return err
	})
}
