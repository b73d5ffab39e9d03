package attach

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/picket-dev/picket"
)

// virtualKey is a run key and its server on a clock of their own.
type virtualKey struct {
	now     time.Time
	expires time.Time
	away    func(time.Time) bool // the server cannot be reached
	revoked func(time.Time) bool
	end     time.Time
	tries   int
	gap     time.Duration // the longest time between two renewals
	last    time.Time
}

func (k *virtualKey) renew(context.Context) error {
	k.tries++
	switch {
	case k.away(k.now):
		return errors.New("connection refused")
	case k.revoked(k.now) || !k.now.Before(k.expires):
		return picket.Refuse(picket.CodeUnauthenticated, "", "the key is not valid")
	}
	k.gap, k.last = max(k.gap, k.now.Sub(k.last)), k.now
	k.expires = k.now.Add(picket.RunKeyLifetime)
	return nil
}

func (k *virtualKey) sleep(ctx context.Context, d time.Duration) error {
	if k.now = k.now.Add(d); k.now.After(k.end) {
		return context.Canceled
	}
	return ctx.Err()
}

// keep runs the renewal for some days and answers what it logged.
func (k *virtualKey) keep(t *testing.T, days int) string {
	t.Helper()
	never := func(time.Time) bool { return false }
	if k.away == nil {
		k.away = never
	}
	if k.revoked == nil {
		k.revoked = never
	}
	k.now = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	k.last, k.expires, k.end = k.now, k.now.Add(picket.RunKeyLifetime), k.now.AddDate(0, 0, days)
	var log strings.Builder
	runKeyRenewal{
		renew: k.renew,
		now:   func() time.Time { return k.now },
		sleep: k.sleep,
		log:   slog.New(slog.NewTextHandler(&log, nil)),
	}.run(t.Context())
	return log.String()
}

func TestARunKeyIsRenewedForDays(t *testing.T) {
	var k virtualKey
	if log := k.keep(t, 30); log != "" || k.tries < 80 || k.tries > 100 || !k.now.Before(k.expires) ||
		k.gap > renewRunKeyAfter+2*runKeyCheckEvery {
		t.Errorf("%d renewals in 30 days, at most %s apart, expires %s at %s; said %q", k.tries, k.gap, k.expires,
			k.now, log)
	}
}

func TestARunKeyOutlivesAnOutage(t *testing.T) {
	for _, outage := range []time.Duration{time.Hour, 15 * time.Hour} {
		k := virtualKey{}
		begin := time.Date(2026, 1, 1, 7, 59, 0, 0, time.UTC) // as the first renewal is due
		k.away = func(now time.Time) bool { return !now.Before(begin) && now.Before(begin.Add(outage)) }
		log := k.keep(t, 3)
		if !k.now.Before(k.expires) || strings.Count(log, "WARN") != 1 || strings.Count(log, "renewed again") != 1 {
			t.Errorf("after %s away the key expires %s at %s; said\n%s", outage, k.expires, k.now, log)
		}
		if k.gap > renewRunKeyAfter+outage+2*runKeyCheckEvery {
			t.Errorf("after %s away it was renewed only %s after the renewal before", outage, k.gap)
		}
	}
}

func TestTheRenewalOfARevokedRunKeyEnds(t *testing.T) {
	k := virtualKey{}
	at := time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)
	k.revoked = func(now time.Time) bool { return now.After(at) }
	log := k.keep(t, 5)
	if k.now.After(at.Add(renewRunKeyAfter+2*runKeyCheckEvery)) || strings.Count(log, "\n") != 1 ||
		!strings.Contains(log, "revoked") || !strings.Contains(log, "start picket run again") {
		t.Errorf("it ended at %s, after %d tries, and said\n%s", k.now, k.tries, log)
	}
}
