package api_test

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/picket-dev/picket/internal/rig"
	"github.com/picket-dev/picket/internal/rig/contract"
	"github.com/picket-dev/picket/orchestrator/api"
)

// virtual runs a test on the virtual clock: requests take no time, and time
// passes by pass alone.
func virtual(t *testing.T, cfg api.Config, test func(t *testing.T, p *plane)) {
	t.Helper()
	d := contract.Load(t) // outside: it is kept for all tests
	synctest.Test(t, func(t *testing.T) {
		store, stop := rig.Memory()
		defer stop()
		p, engines := prepare(t, store, cfg, (*api.API).Mount)
		defer func() { _ = engines.Close(); p.checkLog() }()
		p.url = "http://localhost"
		p.client = &http.Client{Transport: d.Transport(t, direct{p.face})}
		p.makeKeys()
		test(t, p)
	})
}

// direct answers requests without a connection.
type direct struct{ http.Handler }

func (d direct) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Body == nil {
		r.Body = http.NoBody
	}
	w := httptest.NewRecorder()
	d.ServeHTTP(w, r)
	return w.Result(), nil
}

// pass lets time go by while a reaper ticks.
func (p *plane) pass(d time.Duration) {
	p.t.Helper()
	for d > 0 {
		step := min(d, 400*time.Millisecond)
		time.Sleep(step)
		d -= step
		must(p.t, p.Tick(p.t.Context()))
		_, err := p.JudgeAgents(p.t.Context(), 100)
		must(p.t, err)
		_, err = p.ExpireDue(p.t.Context(), 100)
		must(p.t, err)
	}
}
