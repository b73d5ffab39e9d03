package adapter

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/picket-dev/picket"
)

// maxRepeats bounds how often a request is repeated that was refused for its rate.
const maxRepeats = 30

// sendAtRate sends a request. When the server refuses it because the credential
// sends too many a second, it waits as the server says and sends it again. Such
// a refusal is made before anything is done, so a repetition is harmless.
func (c *Client) sendAtRate(ctx context.Context, method, path string, in any, opts []Option) (*http.Response, call, error) {
	for repeats := 0; ; repeats++ {
		res, set, err := c.send(ctx, method, path, in, opts)
		wait := tooFast(err)
		if wait == 0 || repeats == maxRepeats {
			return res, set, err
		}
		if deadline, ok := ctx.Deadline(); ok && time.Until(deadline) <= wait {
			return res, set, err
		}
		if !sleep(ctx, wait) {
			return res, set, err
		}
	}
}

// tooFast is how long to wait after a refusal of the credential's rate, 0 after
// anything else. Other refusals with the same code wait for something to end.
func tooFast(err error) time.Duration {
	var e *picket.Error
	if !errors.As(err, &e) || e.Code != picket.CodeRateLimited {
		return 0
	}
	if _, ok := e.Facts["perSecond"]; !ok {
		return 0
	}
	return max(e.RetryAfter, 100*time.Millisecond)
}
