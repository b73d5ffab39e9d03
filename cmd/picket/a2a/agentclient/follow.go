package agentclient

import (
	"cmp"
	"context"
	"time"

	protocol "github.com/a2aproject/a2a-go/v2/a2a"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/cmd/picket/cli"
)

// Follower follows a task: by its stream, opened again whenever it ends too early, or by reading the task now and then
// if the agent has no streams.
type Follower struct {
	Agent *Agent
	ID    protocol.TaskID
	// UntilAsked ends it when the task waits for its client or a person.
	UntilAsked bool
	Event      func(protocol.Event) error // gets each event, and each task that was read
	Lost       func(error)                // is called when the connection is lost, once until the agent answers again
	// First is the pause before a lost stream is opened again, 1 s if it is 0. It doubles each time.
	First time.Duration
	// Longest is the longest pause, 10 s if it is 0.
	Longest time.Duration
	// Reopen is the age at which a stream is opened again; 0: never.
	Reopen time.Duration
	// Reads has the task read whenever its stream fails, in any way.
	Reads bool
	// Status is the last one that is known. It can be set before Run.
	Status protocol.TaskStatus

	failed error // of Event
	moved  bool  // the status has changed since the stream was opened
	away   bool  // the agent has not answered since then
}

// Run follows the task until it has ended. The error is that of ctx, that of Event, or a refusal.
func (f *Follower) Run(ctx context.Context) error {
	first, longest := cmp.Or(f.First, time.Second), cmp.Or(f.Longest, 10*time.Second)
	for pause := first; ; pause = min(2*pause, longest) {
		f.moved = false
		err := f.listen(ctx)
		if !f.done() && f.failed == nil && (endsStream(err) || f.Reads && ctx.Err() == nil) {
			err = f.read(ctx)
		}
		switch code := picket.CodeOf(err); {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case f.failed != nil:
			return f.failed
		case err != nil && code != picket.CodeUnavailable && !code.Retryable():
			return err
		case f.done():
			return nil
		case err != nil && !f.away:
			f.Lost(err)
			f.away = true
		}
		if f.moved {
			pause = first
		}
		if refusal, ok := picket.RefusalOf(err); ok && refusal != nil {
			pause = max(pause, refusal.RetryAfter)
		}
		if err := cli.Sleep(ctx, pause); err != nil {
			return err
		}
	}
}

// endsStream reports whether the task has to be read, because its stream has ended or the agent has none.
func endsStream(err error) bool {
	return err == nil || picket.CodeOf(err) == picket.CodeStateConflict || picket.CodeOf(err) == picket.CodeNotAvailable
}

// listen takes the events of one stream. An agent without streams has no events.
func (f *Follower) listen(ctx context.Context) error {
	if !f.Agent.streams {
		return nil
	}
	open, stop := context.WithCancel(ctx)
	defer stop()
	if f.Reopen > 0 {
		open, stop = context.WithTimeout(open, f.Reopen)
		defer stop()
	}
	for ev, err := range f.Agent.Client.SubscribeToTask(open, &protocol.SubscribeToTaskRequest{ID: f.ID}) {
		switch {
		case open.Err() != nil && ctx.Err() == nil:
			return nil
		case err != nil:
			err = f.Agent.Explain(err)
			f.Agent.streams = picket.CodeOf(err) != picket.CodeNotAvailable
			return err
		}
		if err := f.take(ev); err != nil || f.done() {
			return err
		}
	}
	return nil
}

func (f *Follower) read(ctx context.Context) error {
	t, err := f.Agent.Task(ctx, f.ID)
	if err != nil {
		return err
	}
	return f.take(t)
}

// take takes an event of the task, or the task itself.
func (f *Follower) take(ev protocol.Event) error {
	f.away = false
	status := f.Status
	switch ev := ev.(type) {
	case *protocol.Task:
		status = ev.Status
	case *protocol.TaskStatusUpdateEvent:
		status = ev.Status
	}
	f.moved = f.moved || status.State != f.Status.State || Said(status.Message) != Said(f.Status.Message)
	f.Status = status
	f.failed = f.Event(ev)
	return f.failed
}

// done reports whether there is nothing more to follow.
func (f *Follower) done() bool {
	return f.Status.State.Terminal() || f.UntilAsked && Interrupted(f.Status.State)
}
