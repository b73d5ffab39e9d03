package api

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/picket-dev/picket/internal/web"
)

// A collector is asked for its metrics when /metrics is read.
type collector func(ch chan<- prometheus.Metric)

// Describe sends nothing: what there is depends on what was counted.
func (collector) Describe(chan<- *prometheus.Desc) {}

// Collect sends the metrics.
func (collect collector) Collect(ch chan<- prometheus.Metric) { collect(ch) }

var (
	connectionsDesc = prometheus.NewDesc("picket_connections",
		"Open connections by the credential that was shown on them.", []string{"kind"}, nil)
	closedDesc = prometheus.NewDesc("picket_connections_closed_total",
		"Connections that were closed early to make room, by reason.", []string{"reason"}, nil)
	acceptDesc = prometheus.NewDesc("picket_accept_errors_total",
		"Connections that could not be accepted, for example because no descriptor was free.", nil, nil)
	rateDesc = prometheus.NewDesc("picket_requests_rate_limited_total",
		"Requests refused because a key or lease sent too many a second.", []string{"kind"}, nil)
)

// collectWeb shows what the guard of the connections and the rate limits have counted.
func collectWeb(cfg Config) collector {
	return func(ch chan<- prometheus.Metric) {
		c := cfg.Connections()
		for _, kind := range web.Kinds {
			ch <- gauge(connectionsDesc, float64(c.Open[kind]), string(kind))
		}
		for _, reason := range web.CloseReasons {
			ch <- counter(closedDesc, c.Closed[reason], string(reason))
		}
		ch <- counter(acceptDesc, c.AcceptErrors)
		for kind, n := range cfg.Rates.Refused() {
			ch <- counter(rateDesc, n, string(kind))
		}
	}
}
