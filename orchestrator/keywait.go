package orchestrator

import (
	"context"
	"time"

	"github.com/picket-dev/picket"
)

// KeyContext returns a context for requests of the key that wait or stream. It
// ends when the key is revoked, with the cause CodeUnauthenticated. Every server
// process is told of a revocation at once. The expiry of a key does not end the
// context; the next request with the key is refused. Call stop to release the
// resources of the context.
func (e *Engine) KeyContext(ctx context.Context, keyID string) (held context.Context, stop func()) {
	held, cancel := context.WithCancelCause(ctx)
	revoked := e.wakeups.subscribe(revokedTopic(keyID))
	done := make(chan struct{})
	go func() {
		defer close(done)
		end, err := e.waitUntil(held, revoked, noLimit, func() (bool, time.Duration, error) {
			// The key may have been revoked before the subscription, and a message
			// can also mean that messages were missed. A store that does not answer
			// says nothing about the key.
			over, err := e.keyIsOver(held, keyID)
			if err != nil {
				return false, time.Second, nil
			}
			return over, 0, nil
		})
		if err == nil && end == waitDone {
			cancel(parseRefusal(string(picket.CodeUnauthenticated) + " kind=key"))
		}
	}()
	return held, func() {
		cancel(nil)
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
