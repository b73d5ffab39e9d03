package orchestrator

import (
	"context"
	"time"

	"github.com/picket-dev/picket"
)

// revokedTopic is the message that every process gets when a key is revoked.
func revokedTopic(keyID string) string { return "revoked " + keyID }

// KeyContext returns a context for requests of the key that wait or stream. It
// ends when the key is revoked, with the cause CodeUnauthenticated. Every server
// process is told of a revocation at once. The expiry of a key does not end the
// context; the next request with the key is refused. Call stop to release the
// resources of the context.
func (e *Engine) KeyContext(ctx context.Context, keyID string) (held context.Context, stop func()) {
	held, end := context.WithCancelCause(ctx)
	in := e.wakeups.subscribe(true, func(message string) bool { return message == revokedTopic(keyID) })
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer e.wakeups.unsubscribe(in)
		for {
			// The key may have been revoked before the waiter was registered, and a
			// message can also mean that messages were missed. A store that does not
			// answer says nothing about the key.
			ended, err := e.keyIsOver(held, keyID)
			if err == nil && ended {
				end(parseRefusal(string(picket.CodeUnauthenticated) + " kind=key"))
				return
			}
			var again <-chan time.Time
			if err != nil {
				again = time.After(time.Second)
			}
			select {
			case <-held.Done():
				return
			case <-in.wakeup:
			case <-again:
			}
		}
	}()
	return held, func() {
		end(nil)
		<-done
	}
}

func (e *Engine) keyIsOver(ctx context.Context, keyID string) (bool, error) {
	raw, k, err := e.findKey(ctx, "id", keyID)
	if picket.CodeOf(err) == picket.CodeNotFound {
		return true, nil
	}
	return !k.RevokedAt.IsZero() || !k.ExpiresAt.IsZero() && int64(k.ExpiresAt) <= raw, err
}
