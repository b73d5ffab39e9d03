package reaper

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/picket-dev/picket"
)

// sweepLoop repeats one sweep of one namespace.
type sweepLoop struct {
	name  string
	every time.Duration // the longest pause from the start of one round to the next
	log   *slog.Logger
	sweep func(context.Context) error

	failing picket.Code // of the last round; empty while it goes well
}

// run makes the first round at once and the others every l.every, less up to a
// fifth, so that reapers started together drift apart.
func (l *sweepLoop) run(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		began := time.Now()
		l.logChange(ctx, l.sweep(ctx))
		pause := l.every - rand.N(l.every/5+1) - time.Since(began)
		// A round that took longer than its turn still lets others breathe.
		timer.Reset(max(pause, l.every/10))
	}
}

// logChange logs a change between going well and failing, not every failure. It
// compares codes, since the text of a network error differs every time.
func (l *sweepLoop) logChange(ctx context.Context, err error) {
	if ctx.Err() != nil {
		return // stopping; the error says only that
	}
	var code picket.Code
	if err != nil {
		code = picket.CodeOf(err)
	}
	if code == l.failing {
		return
	}
	l.failing = code
	if err != nil {
		l.log.Warn("sweep fails, will be tried again", "sweep", l.name, "code", string(code), "err", err)
		return
	}
	l.log.Info("sweep goes well again", "sweep", l.name)
}
