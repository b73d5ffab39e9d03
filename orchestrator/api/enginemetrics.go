package api

import (
	"context"
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/orchestrator"
	"github.com/picket-dev/picket/orchestrator/store"
)

// statsMaxAge is how old the counts of the store may be that a scrape shows: any
// number of scrapers cost the store one look a second.
const statsMaxAge = time.Second

// engineCollector asks the engines when /metrics is read. Gauges are the
// store's, by one look at each namespace; counters are this process's own,
// unless their help says otherwise.
type engineCollector struct {
	engines func() []*orchestrator.Engine
	calls   func() []store.ScriptStats // may be nil

	cache sync.Map // *cachedStats by namespace
}

// cachedStats is the last look at the store of a namespace.
type cachedStats struct {
	mu sync.Mutex
	at time.Time
	storeFigures
	err error
}

// storeFigures are what a scrape shows of a store.
type storeFigures struct {
	stats  picket.Stats
	runs   []picket.LiveLease
	totals orchestrator.Totals
}

func describe(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("picket_"+name, help, append([]string{"namespace"}, labels...), nil)
}

// What this process has counted.
var (
	upDesc       = describe("store_up", "1 when the store answers.")
	grantsDesc   = describe("grants_total", "Leases that this process has granted.")
	renewalsDesc = describe("renewals_total", "Renewals that this process has answered.")
	pickUpDesc   = describe("pickup_seconds",
		"From when a task could first run to its first lease, of leases that this process granted.")
	renewDesc = describe("renew_seconds", "Time that renewals took in this process.")
	leftDesc  = describe("renew_left_ratio", "Part of the window that was left when a lease was renewed, 0 to 1.")
	driftDesc = describe("agent_drift_total",
		"Heartbeats that this process took from agents whose clock is off by more than twice their interval.")
	violationsDesc = describe("invariant_violations_total", "Violated invariants that the scanner of this process met.",
		"kind", "repaired")
	refusedDesc = describe("refused_writes_total", "Writes refused by the fence in this process.", "code")
	scriptDesc  = prometheus.NewDesc("picket_script_seconds",
		"Time until the store replied to a transition or read of this process.", []string{"script"}, nil)
)

func (e *engineCollector) collect(ch chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), readyTimeout)
	defer cancel()
	var all sync.WaitGroup
	for _, engine := range e.engines() {
		collectCounters(ch, engine)
		all.Go(func() {
			figures, err := e.look(ctx, engine)
			ch <- gauge(upDesc, flag(err == nil), engine.Namespace())
			if err == nil {
				collectStats(ch, engine.Namespace(), figures.stats)
				collectRuns(ch, engine.Namespace(), figures.runs, figures.totals.Roles)
				collectTotals(ch, engine.Namespace(), figures.totals)
			}
		})
	}
	e.collectCalls(ch)
	all.Wait()
}

// look is the last look at the store of an engine, or a new one when that is too old. A caller that
// arrives while another one reads waits for that result.
func (e *engineCollector) look(ctx context.Context, engine *orchestrator.Engine) (storeFigures, error) {
	cache, _ := e.cache.LoadOrStore(engine.Namespace(), &cachedStats{})
	l := cache.(*cachedStats)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.at.IsZero() || time.Since(l.at) >= statsMaxAge {
		var page picket.LeasePage
		if l.stats, l.err = engine.Stats(ctx); l.err == nil {
			page, l.err = engine.Leases(ctx)
		}
		if l.err == nil {
			l.totals, l.err = engine.Totals(ctx)
		}
		l.runs, l.at = page.Leases, time.Now()
	}
	return l.storeFigures, l.err
}

func collectCounters(ch chan<- prometheus.Metric, engine *orchestrator.Engine) {
	ns := engine.Namespace()
	did := engine.LeaseMetrics()
	ch <- counter(grantsDesc, did.Grants, ns)
	ch <- counter(renewalsDesc, did.Renewals, ns)
	ch <- histogram(pickUpDesc, did.PickUp, ns)
	for role, waited := range did.QueueWait {
		ch <- histogram(queueWaitDesc, waited, ns, role)
	}
	ch <- histogram(renewDesc, did.Renew, ns)
	ch <- histogram(leftDesc, did.LeaseLeft, ns)
	refused := engine.RefusedWrites()
	for _, code := range picket.Codes() {
		if n := refused[code]; n > 0 || code.Fenced() {
			ch <- counter(refusedDesc, n, ns, string(code))
		}
	}
	collectViolations(ch, ns, engine.Violations())
	ch <- counter(driftDesc, engine.ClockDrifts(), ns)
}

// collectViolations shows a 0 for what was never met: a counter that begins
// with its first event has not risen, as Prometheus sees it.
func collectViolations(ch chan<- prometheus.Metric, ns string, met []orchestrator.ViolationCount) {
	counts := map[orchestrator.ViolationCount]int64{}
	for _, v := range met {
		counts[orchestrator.ViolationCount{Kind: v.Kind, Repaired: v.Repaired}] = v.Count
	}
	for kind, reparable := range picket.InvariantKinds {
		for _, repaired := range []bool{false, true} {
			if reparable || !repaired {
				n := counts[orchestrator.ViolationCount{Kind: kind, Repaired: repaired}]
				ch <- counter(violationsDesc, n, ns, kind, strconv.FormatBool(repaired))
			}
		}
	}
}

func (e *engineCollector) collectCalls(ch chan<- prometheus.Metric) {
	if e.calls == nil {
		return
	}
	for _, c := range e.calls() {
		if c.Count > 0 {
			ch <- histogram(scriptDesc, c.Took, c.Script)
		}
	}
}

func histogram(d *prometheus.Desc, of store.Distribution, labels ...string) prometheus.Metric {
	return prometheus.MustNewConstHistogram(d, of.Count, of.Sum, of.Below, labels...)
}

func counter(d *prometheus.Desc, v int64, labels ...string) prometheus.Metric {
	return prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(v), labels...)
}

func gauge(d *prometheus.Desc, v float64, labels ...string) prometheus.Metric {
	return prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
}

func flag(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
