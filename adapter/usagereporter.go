package adapter

import (
	"context"
	"log/slog"
	"os"
	"slices"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/internal/files"
)

// usageReporter posts what an agent's output says it has used: of each session the
// newest figures, until they have arrived. They are cumulative, so that a lost
// answer is repaired by saying them again.
type usageReporter struct {
	postQueue[picket.UsageReport]        // one of each session, oldest first
	file                          string // a file that holds what has not arrived; empty: none
	log                           *slog.Logger
}

// newUsageReporter posts with post, and tells onReported what each report has come to.
func newUsageReporter(post func(context.Context, picket.UsageReport) (picket.Usage, error), log *slog.Logger,
	onReported func(picket.Usage)) *usageReporter {
	m := &usageReporter{log: log}
	m.postQueue = postQueue[picket.UsageReport]{
		most:    1,
		same:    func(a, b picket.UsageReport) bool { return a == b },
		onStore: m.persist,
		changed: make(chan struct{}, 1),
		post: func(ctx context.Context, reports []picket.UsageReport) error {
			u := reports[0]
			got, err := post(ctx, u)
			switch {
			case err == nil:
				log.Debug("use of models reported", "tokens", u.Tokens, "usd", u.USD.String(), "charged",
					got.Charged.USD.String())
				onReported(got)
			case !isRetryable(err):
				log.Warn("what the agent has used is not taken", "tokens", u.Tokens, "usd", u.USD.String(), "err", err)
			}
			return err
		},
	}
	return m
}

// add takes figures in, in the place of older ones of the same session. It never blocks.
func (m *usageReporter) add(u picket.UsageReport) {
	m.update(func(waiting []picket.UsageReport) []picket.UsageReport {
		i := slices.IndexFunc(waiting, func(old picket.UsageReport) bool {
			return old.Source == u.Source && old.Session == u.Session
		})
		if i < 0 {
			return append(waiting, u)
		}
		waiting[i] = u
		return waiting
	})
}

// persist writes down what has not arrived, for an adapter that comes after this
// one.
func (m *usageReporter) persist(waiting []picket.UsageReport) {
	if m.file == "" {
		return
	}
	if len(waiting) == 0 {
		_ = os.Remove(m.file)
		return
	}
	if err := files.WritePrivateJSON(m.file, waiting); err != nil {
		m.log.Warn("what the agent has used cannot be noted", "file", m.file, "err", err)
	}
}
