package orchestrator

import (
	"context"
	"strings"
	"time"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/orchestrator/store"
)

// Watch waits until the lease ends and says how; changed is false when the wait ran out first. A
// lease that has ended answers at once. Processes to start are returned until their call ids are
// among known, which lists those that the adapter has received.
func (e *Engine) Watch(ctx context.Context, held picket.LeaseCredential, wait time.Duration,
	known ...string) (w picket.Watch, changed bool, err error) {
	end, err := e.records.WaitUntil(ctx, e.records.Subscribe(taskTopic(held.TaskID)), wait,
		func() (bool, time.Duration, error) {
			w, err = e.watchNow(ctx, held, known)
			return w.State != picket.WatchHeld || len(w.Commands) > 0, 0, err
		})
	if err != nil {
		return picket.Watch{}, false, err
	}
	return w, end == store.WaitDone, nil
}

// watchNow answers what became of a lease so far. A lease that the store has
// lost is reclaimed first.
func (e *Engine) watchNow(ctx context.Context, held picket.LeaseCredential, known []string) (picket.Watch, error) {
	v, r, err := e.readWatch(ctx, held, ","+strings.Join(known, ",")+",")
	if err != nil {
		return picket.Watch{}, err
	}
	w := picket.Watch{State: v.watchState(), Commands: append(r.nudgeCommand(v.Nudge), r.execCommands(v.Execs)...)}
	w.Commands = append(w.Commands, messagesCommand(v.Newest)...)
	if w.State == picket.WatchCancelled {
		w.Commands = []picket.Command{{Command: "stop", Reason: "cancelled"}}
	}
	return w, r.Err
}

// watchReply is what the script watch answers.
type watchReply struct {
	State  string     `reply:"state"`  // of the run
	Closed string     `reply:"closed"` // the closing verb and its answer
	Nudge  string     `reply:"nudge"`
	Execs  []execView `reply:"execs"`
	Newest string     `reply:"newest"` // message that waits
}

// readWatch runs the script watch, which answers "reclaim" for a lease that the
// store has lost, until the lease is reclaimed.
func (e *Engine) readWatch(ctx context.Context, held picket.LeaseCredential, args ...any) (watchReply, *reply, error) {
	for {
		r := e.runHeld(ctx, held, "watch", args...)
		var v watchReply
		if r.Decode(&v); v.State != "reclaim" {
			return v, r, r.Err
		}
		if _, err := e.Reclaim(ctx, held); err != nil {
			return watchReply{}, nil, err
		}
	}
}

func (v watchReply) watchState() picket.WatchState {
	switch state := picket.RunState(v.State); {
	case state == picket.RunRunning:
		return picket.WatchHeld
	case state == picket.RunCompleted:
		return picket.WatchCompleted
	case state == picket.RunCancelled:
		return picket.WatchCancelled
	case strings.HasPrefix(v.Closed, "request_help:"):
		return picket.WatchHandoff
	}
	return picket.WatchLost
}

// AwaitEnd waits until a lease has ended; ended is false when the wait ran out
// first. It is for callers that act on behalf of the run and have to stop in time.
// Unlike Watch it takes no commands, because these are meant for the adapter.
func (e *Engine) AwaitEnd(ctx context.Context, held picket.LeaseCredential,
	wait time.Duration) (ended bool, err error) {
	end, err := e.records.WaitUntil(ctx, e.records.Subscribe(taskTopic(held.TaskID)), wait,
		func() (bool, time.Duration, error) {
			v, _, err := e.readWatch(ctx, held, "", "quiet")
			return v.State != string(picket.RunRunning), 0, err
		})
	return err == nil && end == store.WaitDone, err
}

// The topics of the long polls. Scripts publish the same words.

func taskTopic(taskID string) store.Topic        { return store.Topic("task " + taskID) }
func fundsTopic(taskID string) store.Topic       { return store.Topic("funds " + taskID) }
func logTopic(taskID string) store.Topic         { return store.Topic("log " + taskID) }
func execTopic(runID, callID string) store.Topic { return store.Topic("exec " + runID + ":" + callID) }
func agentTopic(agentID string) store.Topic      { return store.Topic("agent " + agentID) }
func revokedTopic(keyID string) store.Topic      { return store.Topic("revoked " + keyID) }
