package adapter

import (
	"context"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/internal/files"
)

// usageReporter posts what an agent's output says it has used: of each session the
// newest figures, until they have arrived. They are cumulative, so that a lost
// answer is repaired by saying them again.
type usageReporter struct {
	post       func(ctx context.Context, u picket.UsageReport) (picket.Usage, error)
	onReported func(picket.Usage) // told what each report has come to
	file       string             // a file that holds what has not arrived; empty: none
	log        *slog.Logger

	mu      sync.Mutex
	queue   []picket.UsageReport // one of each session, oldest first
	closed  bool
	changed chan struct{} // has room for one: something changed
}

func newUsageReporter(p *Proxy, log *slog.Logger, spent func(picket.Usage)) *usageReporter {
	return &usageReporter{post: p.Usage, onReported: spent, log: log, changed: make(chan struct{}, 1)}
}

// add takes figures in. It never blocks.
func (m *usageReporter) add(u picket.UsageReport) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return
	}
	m.replace(u)
	m.persist()
	wakeUp(m.changed)
}

// replace queues figures in the place of older ones of the same session.
func (m *usageReporter) replace(u picket.UsageReport) {
	for i, old := range m.queue {
		if old.Source == u.Source && old.Session == u.Session {
			m.queue[i] = u
			return
		}
	}
	m.queue = append(m.queue, u)
}

// persist writes down what has not arrived, for an adapter that comes after this
// one.
func (m *usageReporter) persist() {
	if m.file == "" {
		return
	}
	if len(m.queue) == 0 {
		_ = os.Remove(m.file)
		return
	}
	if err := files.WritePrivateJSON(m.file, m.queue); err != nil {
		m.log.Warn("what the agent has used cannot be noted", "file", m.file, "err", err)
	}
}

// close lets run end as soon as everything has arrived.
func (m *usageReporter) close() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.closed = true
	wakeUp(m.changed)
}

// run posts until everything has arrived after close, until ctx ends, or until
// the credential is not good any more.
func (m *usageReporter) run(ctx context.Context) {
	pace := backoff{least: 200 * time.Millisecond, most: 5 * time.Second}
	for {
		u, open := m.first()
		if u == nil {
			if !open {
				return
			}
			select {
			case <-m.changed:
				continue
			case <-ctx.Done():
				return
			}
		}
		try, cancel := context.WithTimeout(ctx, reportTimeout)
		got, err := m.post(try, *u)
		cancel()
		switch {
		case err == nil:
			m.log.Debug("use of models reported", "tokens", u.Tokens, "usd", u.USD.String(), "charged",
				got.Charged.USD.String())
			m.onReported(got)
		case isRetryable(err):
			if !pace.pause(ctx) {
				return
			}
			continue
		default:
			m.log.Warn("what the agent has used is not taken", "tokens", u.Tokens, "usd", u.USD.String(), "err", err)
		}
		m.remove(*u)
		pace.reset()
	}
}

func (m *usageReporter) first() (u *picket.UsageReport, open bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.queue) > 0 {
		first := m.queue[0]
		u = &first
	}
	return u, !m.closed
}

// remove forgets figures that have arrived, unless there are newer ones.
func (m *usageReporter) remove(u picket.UsageReport) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for i, q := range m.queue {
		if q == u {
			m.queue = append(m.queue[:i], m.queue[i+1:]...)
			break
		}
	}
	m.persist()
}
