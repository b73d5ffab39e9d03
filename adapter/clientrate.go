package adapter

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/picket-dev/picket"
)

// maxRateRetries bounds how often a request is repeated after a refusal for its rate.
const maxRateRetries = 30

// sendWithRateRetry sends a request. If the server refuses it because the credential
// sends too many a second, it waits as the server says and sends it again. Such
// a refused request had no effect, so a repetition is harmless.
func (c *Client) sendWithRateRetry(ctx context.Context, method, path string, in any,
	opts []Option) (*http.Response, call, error) {
	for repeats := 0; ; repeats++ {
		res, set, err := c.send(ctx, method, path, in, opts)
		wait := rateLimitWait(err)
		if wait == 0 || repeats == maxRateRetries {
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

// rateLimitWait is how long to wait after a refusal for the rate of the credential, and 0
// after any other error. Other refusals with the same code end when something
// else has ended.
func rateLimitWait(err error) time.Duration {
	var e *picket.Error
	if !errors.As(err, &e) || e.Code != picket.CodeRateLimited {
		return 0
	}
	if _, ok := e.Facts["perSecond"]; !ok {
		return 0
	}
	return max(e.RetryAfter, 100*time.Millisecond)
}
