package api

import (
	"cmp"
	"slices"
	"strconv"
	"time"

	"github.com/labstack/echo/v4"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// metrics has a registry of its own: what another package registers globally
// does not end up here.
type metrics struct {
	registry *prometheus.Registry
	requests *prometheus.CounterVec
	seconds  *prometheus.HistogramVec
	readers  prometheus.Gauge
}

func newMetrics(cfg Config) *metrics {
	m := &metrics{
		registry: prometheus.NewRegistry(),
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "picket_http_requests_total", Help: "Requests answered, by route and status.",
		}, []string{"method", "route", "status"}),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "picket_http_request_seconds", Help: "Time to answer, long polls and streams included.",
			Buckets: []float64{.001, .005, .02, .1, .5, 2, 10, 60},
		}, []string{"method", "route"}),
		readers: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "picket_event_readers", Help: "Readers of event streams that are connected to this process.",
		}),
	}
	m.registry.MustRegister(m.requests, m.seconds, m.readers,
		collector((&engineCollector{engines: cfg.Engines, calls: cfg.ScriptStats}).collect), collectWeb(cfg),
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
	if !slices.Contains([]string{get, post, patch, del}, method) {
		method = "other"
	}
	return method, route
}
