package adapter

import (
	"context"
	"log/slog"
	"math/big"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/budget"
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
	if _, err := writePrivate(m.file, m.queue); err != nil {
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
	const least, most = 200 * time.Millisecond, 5 * time.Second
	for wait := least; ; {
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
			if !sleep(ctx, wait/2+rand.N(wait)) {
				return
			}
			wait = min(2*wait, most)
			continue
		default:
			m.log.Warn("what the agent has used is not taken", "tokens", u.Tokens, "usd", u.USD.String(), "err", err)
		}
		m.remove(*u)
		wait = least
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

// usageScopeSession is the scope of figures that count since the agent's session
// began, which may have been in an earlier run.
const usageScopeSession = "session"

// usageFile is in a run's own directory while there is something to post.
const usageFile = "usage.json"

// postUsage posts what a dead adapter has noted of its agent and not posted.
func (o *orphanedRun) postUsage(ctx context.Context, proxy *Proxy) error {
	var noted []picket.UsageReport
	if readJSON(o.dir, usageFile, &noted) != nil {
		return nil
	}
	for _, u := range noted {
		if _, err := proxy.Usage(ctx, u); err != nil && isRetryable(err) {
			return err
		}
	}
	return os.Remove(filepath.Join(o.dir, usageFile))
}

// parseDollars reads dollars as agents write them, a number with the errors of
// floating point in it, to the next nano-dollar; false for what is no amount.
func parseDollars(number jsontext.Value) (budget.Money, bool) {
	const most = 1e6 // dollars: more is an error of the agent
	usd, err := strconv.ParseFloat(string(number), 64)
	if err != nil || !(usd >= 0 && usd <= most) {
		return 0, false
	}
	nano := new(big.Rat).Mul(new(big.Rat).SetFloat64(usd), big.NewRat(1e9, 1))
	nano.Add(nano, big.NewRat(1, 2))
	return budget.Money(new(big.Int).Quo(nano.Num(), nano.Denom()).Int64()), true
}

// sumTokens adds counts of tokens; less than nothing is nothing, and no sum is more
// than an envelope holds.
func sumTokens(counts ...int64) (sum int64) {
	for _, n := range counts {
		sum = min(sum+min(max(n, 0), budget.MaxTokens), budget.MaxTokens)
	}
	return sum
}
