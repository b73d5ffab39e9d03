package attach

import (
	"context"
	"errors"
	"time"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/client"
	"github.com/picket-dev/picket/cmd/picket/cli"
)

// errAtRest ends the adapter of a `picket run`.
var errAtRest = errors.New("the task needs no process any more")

// abandonAfter is how long the adapter of one task waits for a server that is
// gone. It holds no lease by then, and must not stay behind for ever.
const abandonAfter = 15 * time.Minute

// untilAtRest returns when the task waits for nobody's process any more.
func untilAtRest(ctx context.Context, s *cli.Connection, task string) error {
	check := func(picket.Event, []byte) error {
		t, err := s.Tasks.Get(ctx, task)
		switch {
		case errors.Is(err, picket.CodeUnavailable):
			return nil
		case err != nil:
			return err
		case atRest(t) && len(t.Children) > 0:
			return untilTreeAtRest(ctx, s, t.Root, task)
		case atRest(t):
			return errAtRest
		}
		return nil
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	lost := time.AfterFunc(abandonAfter, func() { cancel(errors.New("the server is gone")) })
	defer lost.Stop()
	alive := func() { lost.Reset(abandonAfter) }
	go pollHealth(ctx, s, alive)
	go func() { cancel(s.AwaitTaskLost(ctx, task)) }()
	// From the beginning of the log: an end that came before the stream was
	// open is in it, too.
	return s.Events.Follow(ctx, client.Follower{
		Query: picket.EventQuery{TaskID: task}, After: "0", Event: check,
		Link: func(up bool) {
			if up {
				alive()
			}
		},
	})
}

// pollHealth calls alive as long as the server answers.
func pollHealth(ctx context.Context, s *cli.Connection, alive func()) {
	for cli.Sleep(ctx, time.Minute) == nil {
		if s.Server.Healthy(ctx) == nil {
			alive()
		}
	}
}

// atRest reports whether no further run can come without a person asking for
// one: the task is closed, in review, or escalated.
func atRest(t picket.Task) bool {
	return t.State.Terminal() || t.State == picket.TaskReview || escalated(t)
}

func escalated(t picket.Task) bool {
	return t.State == picket.TaskHandoff && t.Handoff != nil && t.Handoff.Kind == picket.HandoffEscalation
}

// treeCheckEvery is how often an adapter looks whether what its task has left behind
// still runs.
const treeCheckEvery = 2 * time.Second

// untilTreeAtRest returns errAtRest when a settled task has no subtask that runs or waits to run,
// and nil when it is not settled any more.
func untilTreeAtRest(ctx context.Context, s *cli.Connection, root, task string) error {
	for {
		busy, err := treeHasWork(ctx, s, root)
		if err == nil && !busy {
			return errAtRest
		}
		if err != nil && !errors.Is(err, picket.CodeUnavailable) {
			return err
		}
		if err := cli.Sleep(ctx, treeCheckEvery); err != nil {
			return err
		}
		t, err := s.Tasks.Get(ctx, task)
		if err != nil && !errors.Is(err, picket.CodeUnavailable) {
			return err
		}
		if err == nil && !atRest(t) {
			return nil
		}
	}
}

// treeHasWork reports whether a tree has a task that is queued or running.
func treeHasWork(ctx context.Context, s *cli.Connection, root string) (bool, error) {
	work := picket.TaskQuery{States: []picket.TaskState{picket.TaskQueued, picket.TaskLeased}, Limit: 200}
	for t, err := range s.Tasks.All(ctx, work) {
		if err != nil || t.Root == root {
			return err == nil, err
		}
	}
	return false, nil
}
