package rfc16

import (
	"context"
	"time"
)

// Clock is the time a rule waits in. The rows are the same on the clock on the
// wall and on a virtual one, where hours pass at once.
type Clock interface {
	Now() time.Time
	// Sleep waits for d, or returns the error of ctx when that ends first.
	Sleep(ctx context.Context, d time.Duration) error
}

// Wall is the clock of the process; in a testing/synctest bubble it is virtual.
type Wall struct{}

// Now is time.Now.
func (Wall) Now() time.Time { return time.Now() }

// Sleep waits for d or the end of ctx.
func (Wall) Sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
