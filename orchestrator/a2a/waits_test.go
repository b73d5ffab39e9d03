package a2a_test

import (
	"strings"
	"testing"
)

// Requests that wait do not hold the memory of request bodies, which all clients of the server share.
func TestRequestsThatWaitHoldNoBodies(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		const waits = 20 // together more than the server holds
		for _, method := range []string{"SendMessage", "SendStreamingMessage"} {
			said := make(chan string, waits)
			for range waits {
				message := send("work").Message
				params := map[string]any{"message": message, "ignored": strings.Repeat("x", 1_000_000)}
				go func() { said <- f.rpc(t, f.client, method, params) }()
				held := f.lease(t)
				defer func() {
					f.complete(t, held, `"done"`)
					if got := <-said; !strings.Contains(got, "TASK_STATE_COMPLETED") {
						t.Errorf("%s: %.300s", method, got)
					}
				}()
			}
		}
	})
}
