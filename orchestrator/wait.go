package orchestrator

import (
	"context"
	"time"
)

// A topic is a message that wakes the long polls of a namespace.
type topic string

func taskTopic(taskID string) topic         { return topic("task " + taskID) }
func fundsTopic(taskID string) topic        { return topic("funds " + taskID) }
func logTopic(taskID string) topic          { return topic("log " + taskID) }
func execTopic(runID, callID string) topic  { return topic("exec " + runID + ":" + callID) }
func agentTopic(agentID string) topic       { return topic("agent " + agentID) }
func revokedTopic(keyID string) topic       { return topic("revoked " + keyID) }
func (t topic) matches(message string) bool { return string(t) == message }

// noLimit is the limit of a wait that only its context or the store ends.
const noLimit time.Duration = -1

// waitEnd says how a wait ended that had no error.
type waitEnd int

const (
	waitDone    waitEnd = iota // look was satisfied
	waitExpired                // the limit has passed
	waitStopped                // the store was closed
)

// waitUntil calls look until it reports that it is done: at first, then after
// each message of the subscription, and when the time has passed that look
// answers as again, if that is positive. The subscription must exist before the
// first look, so that nothing in between is missed; waitUntil ends it. The error
// is that of look, or CodeUnavailable when ctx ends.
func (e *Engine) waitUntil(ctx context.Context, s *subscription, limit time.Duration,
	look func() (done bool, again time.Duration, err error)) (waitEnd, error) {
	defer s.end()
	var expired <-chan time.Time
	if limit != noLimit {
		timer := time.NewTimer(limit)
		defer timer.Stop()
		expired = timer.C
	}
	for {
		done, again, err := look()
		if err != nil || done {
			return waitDone, err
		}
		end, err := e.waitForMessage(ctx, s, expired, again)
		if err != nil || end != waitDone {
			return end, err
		}
	}
}

// waitForMessage waits for a message of the subscription, or until again has
// passed.
func (e *Engine) waitForMessage(ctx context.Context, s *subscription, expired <-chan time.Time,
	again time.Duration) (waitEnd, error) {
	var due <-chan time.Time
	if again > 0 {
		timer := time.NewTimer(again)
		defer timer.Stop()
		due = timer.C
	}
	select {
	case s.taken = <-s.wakeup:
		return waitDone, nil
	case <-due:
		return waitDone, nil
	case <-expired:
		return waitExpired, nil
	case <-ctx.Done():
		return waitDone, unavailable("the request was given up", ctx.Err())
	case <-e.store.ctx.Done():
		return waitStopped, nil
	}
}

// errStopping is the error of a wait that must not end without a result. cause
// is ErrUnknown where the result may exist.
func errStopping(cause error) error { return unavailable("the server is stopping", cause) }
