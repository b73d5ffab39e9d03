package api

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/picket-dev/picket/internal/web"
)

// connectionCollector shows what the guard of the connections has counted.
type connectionCollector func() web.ConnectionCounts

var (
	connectionsDesc = prometheus.NewDesc("picket_connections",
		"Open connections by the credential that was shown on them.", []string{"kind"}, nil)
	closedDesc = prometheus.NewDesc("picket_connections_closed_total",
		"Connections that were closed early to make room, by reason.", []string{"reason"}, nil)
	acceptDesc = prometheus.NewDesc("picket_accept_errors_total",
		"Connections that could not be accepted, for example because no descriptor was free.", nil, nil)
)

// Describe sends nothing, like that of the engines.
func (connectionCollector) Describe(chan<- *prometheus.Desc) {}

func (count connectionCollector) Collect(ch chan<- prometheus.Metric) {
	c := count()
	for _, kind := range web.Kinds {
		ch <- gauge(connectionsDesc, float64(c.Open[kind]), string(kind))
	}
	for _, reason := range web.CloseReasons {
		ch <- counter(closedDesc, c.Closed[reason], string(reason))
	}
	ch <- counter(acceptDesc, c.AcceptErrors)
}
