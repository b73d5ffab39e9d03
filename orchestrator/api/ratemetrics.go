package api

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/picket-dev/picket/internal/web"
)

// rateCollector shows how many requests were refused for their rate.
type rateCollector struct{ rates *web.Rates }

var rateDesc = prometheus.NewDesc("picket_requests_rate_limited_total",
	"Requests refused because a key or lease sent too many a second.", []string{"kind"}, nil)

// Describe sends nothing, like that of the engines.
func (rateCollector) Describe(chan<- *prometheus.Desc) {}

func (r rateCollector) Collect(ch chan<- prometheus.Metric) {
	for kind, n := range r.rates.Refused() {
		ch <- counter(rateDesc, n, string(kind))
	}
}
