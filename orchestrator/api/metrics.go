package api

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"time"

	"github.com/labstack/echo/v4"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/orchestrator"
)

// metrics has a registry of its own: what another package registers globally
// does not end up here.
type metrics struct {
	registry *prometheus.Registry
	requests *prometheus.CounterVec
	seconds  *prometheus.HistogramVec
}

func newMetrics(engines func() []*orchestrator.Engine) *metrics {
	m := &metrics{
		registry: prometheus.NewRegistry(),
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "picket_http_requests_total", Help: "Requests answered, by route and status.",
		}, []string{"method", "route", "status"}),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "picket_http_request_seconds", Help: "Time to answer, long polls and streams included.",
			Buckets: []float64{.001, .005, .02, .1, .5, 2, 10, 60},
		}, []string{"method", "route"}),
	}
	m.registry.MustRegister(m.requests, m.seconds, &engineCollector{engines},
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

func (m *metrics) serve(r request) error {
	h := promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{ErrorHandling: promhttp.ContinueOnError})
	h.ServeHTTP(r.Response(), r.Request())
	return nil
}

// observe counts a request. It has the error answered first, so that the
// status is the one that was sent.
func (m *metrics) observe(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		start := time.Now()
		if err := next(c); err != nil {
			c.Error(err)
		}
		method, route := labels(c)
		m.requests.WithLabelValues(method, route, strconv.Itoa(c.Response().Status)).Inc()
		m.seconds.WithLabelValues(method, route).Observe(time.Since(start).Seconds())
		return nil
	}
}

// labels are bounded: neither a foreign path nor an invented method makes a
// series of its own.
func labels(c echo.Context) (method, route string) {
	method, route = c.Request().Method, cmp.Or(c.Path(), "none")
	if !slices.Contains([]string{get, post, del}, method) {
		method = "other"
	}
	return method, route
}

// engineCollector asks the engines when /metrics is read.
type engineCollector struct {
	engines func() []*orchestrator.Engine
}

func describe(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("picket_"+name, help, append([]string{"namespace"}, labels...), nil)
}

var (
	upDesc       = describe("store_up", "1 when the store answers.")
	tasksDesc    = describe("tasks", "Tasks by state.", "state")
	handoffsDesc = describe("handoffs_open", "Hand-offs waiting for a person.")
	reviewsDesc  = describe("reviews_pending", "Completed tasks waiting for a decision.")
	lanesDesc    = describe("lanes", "Queues that are not empty.")
	delayedDesc  = describe("delayed", "Tasks waiting for their time.")
	waitersDesc  = describe("waiters", "Long polls waiting for a lease.")
	seqDesc      = describe("event_seq", "Sequence number of the newest event.")
	pausedDesc   = describe("paused", "1 while no leases are granted.")
	refusedDesc  = describe("refused_writes_total", "Writes refused by the fence in this process.", "code")
)

func (e *engineCollector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{upDesc, tasksDesc, handoffsDesc, reviewsDesc, lanesDesc, delayedDesc, waitersDesc, seqDesc, pausedDesc, refusedDesc} {
		ch <- d
	}
}

func (e *engineCollector) Collect(ch chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), readyTimeout)
	defer cancel()
	for _, engine := range e.engines() {
		ns := engine.Namespace()
		for code, n := range engine.RefusedWrites() {
			ch <- prometheus.MustNewConstMetric(refusedDesc, prometheus.CounterValue, float64(n), ns, string(code))
		}
		counts, err := engine.Stats(ctx)
		ch <- gauge(upDesc, flag(err == nil), ns)
		if err == nil {
			collectStats(ch, ns, counts)
		}
	}
}

func collectStats(ch chan<- prometheus.Metric, ns string, s picket.Stats) {
	for _, state := range picket.TaskStates {
		ch <- gauge(tasksDesc, s.Tasks[state], ns, string(state))
	}
	ch <- gauge(handoffsDesc, s.Handoffs, ns)
	ch <- gauge(reviewsDesc, s.Reviews, ns)
	ch <- gauge(lanesDesc, s.Lanes, ns)
	ch <- gauge(delayedDesc, s.Delayed, ns)
	ch <- gauge(waitersDesc, s.Waiters, ns)
	ch <- gauge(seqDesc, s.LastSeq, ns)
	ch <- gauge(pausedDesc, flag(s.Pause.Paused), ns)
}

func gauge(d *prometheus.Desc, v int64, labels ...string) prometheus.Metric {
	return prometheus.MustNewConstMetric(d, prometheus.GaugeValue, float64(v), labels...)
}

func flag(b bool) int64 {
	if b {
		return 1
	}
	return 0
}
