package orchestrator

import (
	"context"

	"github.com/picket-dev/picket"
)

// revokedTopic is what every process hears when a key is revoked.
func revokedTopic(keyID string) string { return "revoked " + keyID }

// WhileKeyHolds returns a context that ends when the key is revoked, for what
// waits or streams in its name; its cause is then CodeUnauthenticated. Every
// server process hears of a revocation at once. That a key has expired is
// noticed by whoever asks next. stop frees what the context takes.
func (e *Engine) WhileKeyHolds(ctx context.Context, keyID string) (held context.Context, stop func()) {
	held, end := context.WithCancelCause(ctx)
	in := e.wakes.wait(true, func(message string) bool { return message == revokedTopic(keyID) })
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer e.wakes.leave(in)
		for {
			// The key may have been revoked before the waiter was registered, and a
			// message can also mean that messages were missed. A store that does not
			// answer says nothing about the key.
			if ended, err := e.keyEnded(held, keyID); err == nil && ended {
				end(explainRefusal(string(picket.CodeUnauthenticated) + " kind=key"))
				return
			}
			select {
			case <-held.Done():
				return
			case <-in.c:
			}
		}
	}()
	return held, func() {
		end(nil)
		<-done
	}
}

func (e *Engine) keyEnded(ctx context.Context, keyID string) (bool, error) {
	raw, k, err := e.findKey(ctx, "id", keyID)
	if picket.CodeOf(err) == picket.CodeNotFound {
		return true, nil
	}
	return !k.RevokedAt.IsZero() || !k.ExpiresAt.IsZero() && int64(k.ExpiresAt) <= raw, err
}
