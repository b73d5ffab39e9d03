package foreign

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	protocol "github.com/a2aproject/a2a-go/v2/a2a"

	"github.com/picket-dev/picket/cmd/picket/a2a/agentclient"
	"github.com/picket-dev/picket/cmd/picket/cli"
)

// follow follows the foreign task until it has ended or asks something, and returns it as it is then. Meanwhile it
// passes messages on, and shows the client of the task what the foreign agent says. If the task is not what its stream
// has told, it is followed again after a pause.
func (w *work) follow(ctx context.Context, t *protocol.Task) (*protocol.Task, error) {
	if err := w.follower(ctx, t); err != nil {
		return nil, err
	}
	now, err := w.read(ctx)
	if err == nil && !now.Status.State.Terminal() && !agentclient.Interrupted(now.Status.State) {
		err = cli.Sleep(ctx, w.limits.first)
	}
	return now, err
}

func (w *work) follower(ctx context.Context, t *protocol.Task) error {
	ctx, end := context.WithCancelCause(ctx)
	e := &emitter{work: w}
	var group sync.WaitGroup
	defer group.Wait()
	defer end(nil)
	group.Go(func() { e.run(ctx) })
	group.Go(func() { w.passMessages(ctx) })
	quiet := time.AfterFunc(w.limits.silence, func() {})
	quiet.Stop()
	defer func() { quiet.Stop() }()
	f := &agentclient.Follower{Agent: w.agent, ID: t.ID, UntilAsked: true, Status: t.Status, Reads: true,
		First: w.limits.first, Longest: w.limits.longest, Reopen: w.limits.stream}
	f.Event = func(ev protocol.Event) error {
		quiet.Stop()
		if err := w.checkEvent(ev); err != nil {
			return err
		}
		if full, isTask := ev.(*protocol.Task); isTask {
			w.book(full)
		}
		e.take(ev)
		return w.events.wait(ctx)
	}
	f.Lost = func(err error) {
		w.say(w.job.Stderr, "%v; going on when the agent answers", err)
		quiet = time.AfterFunc(w.limits.silence, func() {
			end(fmt.Errorf("%w for %s: %w", errSilent, w.limits.silence, err))
		})
	}
	e.take(t)
	return f.Run(ctx)
}

// checkEvent refuses an event of another task.
func (w *work) checkEvent(ev protocol.Event) error {
	if ev == nil {
		return errors.New("the agent sent an empty event")
	}
	if full, isTask := ev.(*protocol.Task); isTask {
		return w.checkTask(full)
	}
	if id := ev.TaskInfo().TaskID; id != w.saved.Remote {
		return agentclient.NotA2A("the agent sent an event of the task %s instead of %s", agentclient.Excerpt(string(id)),
			agentclient.Excerpt(string(w.saved.Remote)))
	}
	return nil
}

// eventPace slows a foreign agent down that sends events without end: after the first ones, each is waited for.
type eventPace struct{ taken int }

const (
	fastEvents = 2000
	slowEvent  = 20 * time.Millisecond
)

func (p *eventPace) wait(ctx context.Context) error {
	if p.taken++; p.taken <= fastEvents {
		return nil
	}
	return cli.Sleep(ctx, slowEvent)
}
