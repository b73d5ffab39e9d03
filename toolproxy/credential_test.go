package toolproxy_test

import (
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/internal/seal"
	"github.com/picket-dev/picket/toolproxy"
)

func TestEveryRouteReachesItsVerbWithTheCredential(t *testing.T) {
	for name, call := range goodRequests {
		d := &fakeBackend{}
		f := newProxyEnv(t, d)
		a := f.call(t, call.with(f.token(), "17"))
		verb := name
		if name == "agent_context" { // the same by another route
			verb = "get_context"
		}
		if a.status != http.StatusOK || len(d.asked) != 1 || d.asked[0] != verb {
			t.Errorf("%s: %d %s, reached %v", name, a.status, a.raw, d.asked)
			continue
		}
		h := d.held[0]
		if h.Namespace != "default" || h.TaskID != aTask || h.RunID != aRun || h.Fence != 17 ||
			h.Secret != f.sealer.Fingerprint("default", aRun) {
			t.Errorf("%s: the credential arrived as %+v", name, h)
		}
	}
}

func TestABadCredentialReachesNothing(t *testing.T) {
	f := newProxyEnv(t, &fakeBackend{})
	good := f.token()
	other := newProxyEnvWithKey(t, 9).token()
	for what, header := range map[string]map[string]string{
		"missing":      nil,
		"empty":        {"Authorization": "Bearer "},
		"other scheme": {"Authorization": "Basic " + good},
		"bare":         {"Authorization": good},
		"API key":      {"Authorization": "Bearer pkk_default_abc"},
		"X-API-Key":    {"X-API-Key": good},
		"edited MAC":   {"Authorization": "Bearer " + good[:len(good)-2] + corrupt(good[len(good)-2:])},
		"cut":          {"Authorization": "Bearer " + good[:len(good)-1]},
		"longer":       {"Authorization": "Bearer " + good + "A"},
		"other run":    {"Authorization": "Bearer " + strings.Replace(good, "ZB.", "ZC.", 1)},
		"other space":  {"Authorization": "Bearer " + strings.Replace(good, "default", "another", 1)},
		"other key":    {"Authorization": "Bearer " + other},
		"huge":         {"Authorization": "Bearer pkl_" + strings.Repeat("A", 5000)},
	} {
		for name, call := range goodRequests {
			d := &fakeBackend{}
			f := newProxyEnv(t, d)
			call.header = header
			a := f.call(t, call)
			if a.status != 401 || a.code() != "unauthenticated" || a.header.Get("WWW-Authenticate") == "" {
				t.Errorf("%s with %s: %d %s", name, what, a.status, a.raw)
			}
			if d.count() != 0 || len(d.refused) != 0 {
				t.Errorf("%s with %s reached %v, recorded %v", name, what, d.asked, d.refused)
			}
			if !strings.Contains(a.remedy(), "PICKET_LEASE_TOKEN") {
				t.Errorf("%s with %s: the remedy does not name the token: %q", name, what, a.remedy())
			}
		}
	}
}

func corrupt(s string) string {
	if strings.HasPrefix(s, "A") {
		return "B" + s[1:]
	}
	return "A" + s[1:]
}

func newProxyEnvWithKey(t *testing.T, b byte) *proxyEnv {
	t.Helper()
	s, err := seal.New([]byte(strings.Repeat(string(rune(b)), 32)))
	if err != nil {
		t.Fatal(err)
	}
	return &proxyEnv{sealer: s}
}

func TestAGarbledFenceIsABadRequest(t *testing.T) {
	for _, fence := range []string{"0", "-1", "+1", "01", "1.0", "1e3", "0x11", " ", "x", "९", "9007199254740992",
		"99999999999999999999", "1,2"} {
		d := &fakeBackend{}
		f := newProxyEnv(t, d)
		a := f.call(t, goodRequests["report_progress"].with(f.token(), fence))
		if a.status != 400 || a.code() != "validation_failed" || a.field() != toolproxy.FenceHeader || d.count() != 0 {
			t.Errorf("fence %q: %d %s, reached %v", fence, a.status, a.raw, d.asked)
		}
	}
	for fence, want := range map[string]int64{"1": 1, "9007199254740991": 1<<53 - 1, "": 0} {
		d := &fakeBackend{}
		f := newProxyEnv(t, d)
		if a := f.call(t, goodRequests["renew"].with(f.token(), fence)); a.status != 200 || d.held[0].Fence != want {
			t.Errorf("fence %q: %d %s", fence, a.status, a.raw)
		}
	}
}

func TestANamespaceServedElsewhere(t *testing.T) {
	d := &fakeBackend{}
	f := newProxyEnv(t, d)
	a := f.call(t, goodRequests["renew"].with(f.sealer.LeaseToken("tenant", aTask, aRun).Reveal(), ""))
	if a.status != 503 || a.code() != "orchestrator_unavailable" || a.header.Get("Retry-After") == "" ||
		d.count() != 0 {
		t.Fatalf("%d %v %s", a.status, a.header, a.raw)
	}
	if !strings.Contains(a.remedy(), "proxyUrl") {
		t.Errorf("the remedy does not say where to go: %q", a.remedy())
	}
}

func TestTheBearerIsNeverShown(t *testing.T) {
	for _, err := range []error{nil, errors.New("boom"), picket.Refuse(picket.CodeStaleFence, "Stop.", "old")} {
		for name, call := range goodRequests {
			d := &fakeBackend{err: err}
			f := newProxyEnv(t, d)
			good := f.token()
			forged := good[:len(good)-2] + corrupt(good[len(good)-2:])
			for _, token := range []string{good, forged} {
				a := f.call(t, call.with(token, "17"))
				_, mac, _ := strings.Cut(token, aRun[4:]+".")
				for where, text := range map[string]string{"the answer": a.raw, "the log": f.log.String()} {
					if strings.Contains(text, mac) {
						t.Errorf("%s: the lease token stands in %s", name, where)
					}
				}
			}
		}
	}
}

func TestNewRefusesAnIncompleteConfiguration(t *testing.T) {
	for _, cfg := range []toolproxy.Config{{}, {Sealer: newSealer(t)},
		{Backend: func(string) toolproxy.Backend { return nil }}} {
		if _, err := toolproxy.New(cfg); err == nil {
			t.Errorf("taken: %+v", cfg)
		}
	}
}
