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
func virtual(t *testing.T, cfg api.Config, test func(t *testing.T, p *fixture)) {
	t.Helper()
	d := contract.Load(t) // outside: it is kept for all tests
	synctest.Test(t, func(t *testing.T) {
		store, stop := rig.Memory()
		defer stop()
		p, engines := openEngines(t, store, cfg, (*api.API).Mount)
		defer func() { _ = engines.Close(); p.wantNoSecretsInLog() }()
		p.url = "http://localhost"
		p.client = &http.Client{Transport: d.Transport(t, handlerTransport{p.handler})}
		p.makeKeys()
		test(t, p)
	})
}

// handlerTransport answers requests without a connection.
type handlerTransport struct{ http.Handler }

func (d handlerTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Body == nil {
		r.Body = http.NoBody
	}
	w := httptest.NewRecorder()
	d.ServeHTTP(w, r)
	return w.Result(), nil
}

// passTime lets time go by while a reaper ticks.
func (p *fixture) passTime(d time.Duration) {
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
