package api_test

import (
	"fmt"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/internal/rig"
	"github.com/picket-dev/picket/orchestrator/api"
)

const renewalsPath = "/v1/leases/renew"

// renewed is an item of an answer: a renewal or an error.
type renewed struct {
	picket.Renewal
	Code    picket.Code `json:"code"`
	Status  int         `json:"status"`
	Message string      `json:"message"`
	Remedy  string      `json:"remedy"`
	Field   string      `json:"field"`
	Current int64       `json:"current"`
}

// renewAll renews with the key of a scope. items are JSON texts.
func (p *fixture) renewAll(scope string, items ...string) []renewed {
	p.t.Helper()
	a := p.want(200, "POST", renewalsPath, scope, `{"leases":[`+strings.Join(items, ",")+`]}`)
	var got struct{ Leases []renewed }
	must(p.t, json.Unmarshal([]byte(a.raw), &got, json.MatchCaseInsensitiveNames(true)))
	if len(got.Leases) != len(items) {
		p.t.Fatalf("%d answers to %d leases: %s", len(got.Leases), len(items), a.raw)
	}
	return got.Leases
}

// acquireMany makes tasks and leases them with the key of a scope.
func (p *fixture) acquireMany(scope string, n int) []picket.Lease {
	p.t.Helper()
	for range n {
		p.submit(`{"title":"x"}`)
	}
	a := p.want(200, "POST", "/api/v1/leases", scope,
		fmt.Sprintf(`{"agentId":"a1","max":%d,"separateCredentials":true}`, n))
	var got picket.Acquired
	must(p.t, json.Unmarshal([]byte(a.raw), &got))
	leases := got.Leases
	if len(leases) != n {
		p.t.Fatalf("%d leases, want %d", len(leases), n)
	}
	return leases
}

// toRenew is the item of a lease.
func toRenew(l picket.Lease) string {
	return fmt.Sprintf(`{"leaseToken":%q,"fencingToken":%d}`, l.LeaseToken.Reveal(), l.FencingToken)
}

func itemsOf(leases []picket.Lease) []string {
	items := make([]string, len(leases))
	for i, l := range leases {
		items[i] = toRenew(l)
	}
	return items
}

func TestManyLeasesAreRenewedInOneRequest(t *testing.T) {
	onBothStores(t, func(t *testing.T, p *fixture) {
		leases := p.acquireMany("agent", picket.MaxRenewals)
		for i, got := range p.renewAll("agent", itemsOf(leases)...) {
			l := leases[i]
			if got.Code != "" || got.FencingToken != l.FencingToken || got.LeaseTTLMs != l.WindowMs ||
				got.LeaseExpiresAt <= l.LeaseExpiresAt || got.Commands == nil {
				t.Errorf("lease %d: %+v", i, got)
			}
		}
		page, err := p.Leases(t.Context())
		must(t, err)
		for _, l := range page.Leases {
			if l.Renewals != 1 {
				t.Errorf("%s was renewed %d times", l.TaskID, l.Renewals)
			}
		}
	})
}

// One item that is refused does not affect the others, and is answered as a single renewal answers it.
func TestALeaseThatIsRefusedDoesNotAffectTheOthers(t *testing.T) {
	onBothStores(t, func(t *testing.T, p *fixture) {
		others := p.acquireMany("operator", 2) // of another key
		ended := p.acquireMany("agent", 1)[0]
		p.want(200, "POST", "/api/v1/tasks/"+ended.TaskID+"/cancel", "operator", `{}`)
		stale := p.acquireMany("agent", 1)[0]
		p.want(200, "POST", "/api/v1/leases/"+stale.TaskID+"/expire", "operator", `{}`)
		leases := p.acquireMany("agent", 64) // one of them is the next lease of the stale one's task
		expired := leases[63]
		leases = leases[:63]
		for _, l := range []picket.Lease{expired, others[1]} {
			p.want(200, "POST", "/api/v1/leases/"+l.TaskID+"/expire", "operator", `{}`)
		}
		good := leases[0]
		elsewhere := p.sealer.LeaseTokenFor(picket.SideAdapter, "other", good.TaskID, good.RunID).Reveal()
		wrongTask := p.sealer.LeaseTokenFor(picket.SideAdapter, "default", leases[1].TaskID, good.RunID).Reveal()
		unknown := p.sealer.LeaseToken("default", "task_"+aULID, "run_"+aULID).Reveal()
		token := func(s string) string { return fmt.Sprintf(`{"leaseToken":%q}`, s) }
		for _, tt := range []struct {
			name, item string
			code       picket.Code
			field      string
		}{
			{"stale", toRenew(stale), picket.CodeStaleFence, ""},
			{"expired", toRenew(expired), picket.CodeLeaseExpired, ""},
			{"cancelled", toRenew(ended), picket.CodeTaskCancelled, ""},
			{"another key's", toRenew(others[0]), picket.CodeUnauthenticated, ""},
			{"another key's that has ended", toRenew(others[1]), picket.CodeUnauthenticated, ""},
			{"unknown", token(unknown), picket.CodeUnauthenticated, ""},
			{"another namespace's", token(elsewhere), picket.CodeUnauthenticated, ""},
			{"forged", token(flipLastByte(good.LeaseToken.Reveal())), picket.CodeUnauthenticated, ""},
			{"empty", token(""), picket.CodeUnauthenticated, ""},
			{"a key", token(p.keys["agent"]), picket.CodeUnauthenticated, ""},
			{"the agent's", token(good.AgentToken.Reveal()), picket.CodeForbidden, ""},
			{"with another task", token(wrongTask), picket.CodeTaskMismatch, ""},
			{"with a token never granted", fmt.Sprintf(`{"leaseToken":%q,"fencingToken":99}`,
				good.LeaseToken.Reveal()), picket.CodeUnknownFence, ""},
			{"with a negative token", fmt.Sprintf(`{"leaseToken":%q,"fencingToken":-1}`, good.LeaseToken.Reveal()),
				picket.CodeValidation, "/fencingToken"},
			{"not an object", `"` + good.LeaseToken.Reveal() + `"`, picket.CodeValidation, "/leases/31"},
			{"null", `null`, picket.CodeValidation, "/leases/31"},
			{"with the credential as a name", `{` + fmt.Sprintf("%q", good.LeaseToken.Reveal()) + `:1}`,
				picket.CodeValidation, "/leases/31"},
			{"repeated", toRenew(leases[5]), "", ""},
		} {
			t.Run(tt.name, func(t *testing.T) {
				items := itemsOf(leases)
				items = append(items[:31:31], append([]string{tt.item}, items[31:]...)...)
				answers := p.renewAll("agent", items...)
				for i, got := range answers {
					if i != 31 && (got.Code != "" || got.LeaseTTLMs != good.WindowMs) {
						t.Errorf("lease %d: %+v", i, got)
					}
				}
				bad := answers[31]
				if bad.Code != tt.code || bad.Status != tt.code.Status() && tt.code != "" || bad.Field != tt.field ||
					(bad.Remedy == "") != (tt.code == "") || strings.Contains(bad.Message+bad.Remedy, "pkl_default") {
					t.Errorf("%+v", bad)
				}
			})
		}
	})
}

// An agent that has large programs to run does not make the answer too large for the other leases.
func TestLargeCommandsOfOneLease(t *testing.T) {
	onBothStores(t, func(t *testing.T, p *fixture) {
		leases := p.acquireMany("agent", 3)
		held, err := p.sealer.OpenLeaseToken(leases[1].LeaseToken.Reveal())
		must(t, err)
		must(t, p.RunEvents(t.Context(), held, []picket.RunEvent{{Type: picket.EventRunLaunched, Exec: true}}))
		must(t, p.OrderExec(t.Context(), held, picket.ExecRequest{CallID: "c1", Argv: []string{"cat"},
			Stdin: strings.Repeat("x", 64<<10), TimeoutSeconds: 20, TTLMs: 30_000}))
		got := p.renewAll("agent", itemsOf(leases)...)
		if got[0].Code != "" || got[1].Code != picket.CodeTooLarge || got[1].Remedy == "" || got[2].Code != "" {
			t.Errorf("%+v", got)
		}
		if r, err := p.Renew(t.Context(), held); err != nil || len(r.Commands) != 1 {
			t.Errorf("the renewal of the lease alone: %+v %v", r, err)
		}
	})
}

// A client learns nothing about leases of others: what it is told about them is what it is told about nothing.
func TestTheLeasesOfOthersLookLikeNone(t *testing.T) {
	onBothStores(t, func(t *testing.T, p *fixture) {
		lives, ended := p.acquireMany("operator", 1)[0], p.acquireMany("operator", 1)[0]
		p.want(200, "POST", "/api/v1/tasks/"+ended.TaskID+"/cancel", "operator", `{}`)
		forged := lives
		forged.LeaseToken = picket.Secret(flipLastByte(lives.LeaseToken.Reveal()))
		var said []string
		for _, l := range []picket.Lease{lives, ended, forged} {
			a := p.want(200, "POST", renewalsPath, "agent", `{"leases":[`+toRenew(l)+`]}`, "X-Request-Id", "same")
			said = append(said, a.raw)
		}
		if said[0] != said[1] || said[0] != said[2] {
			t.Errorf("they differ:\n%s", strings.Join(said, "\n"))
		}
		if page, err := p.Leases(t.Context()); err != nil || page.Leases[0].Renewals != 0 {
			t.Errorf("another key has renewed the lease: %+v %v", page, err)
		}
		events := p.want(200, "GET", "/api/v1/events?type=write.refused", "operator", "")
		if strings.Contains(events.raw, lives.RunID) {
			t.Errorf("it is an event: %s", events.raw)
		}
	})
}

func TestListsOfLeasesThatAreRefused(t *testing.T) {
	p := newMemoryFixture(t)
	lease := p.acquireMany("agent", 1)[0]
	many := strings.Repeat(toRenew(lease)+",", picket.MaxRenewals) + toRenew(lease)
	for body, code := range map[string]picket.Code{
		``:                          picket.CodeValidation,
		`{}`:                        picket.CodeValidation,
		`{"leases":null}`:           picket.CodeValidation,
		`{"leases":[]}`:             picket.CodeValidation,
		`{"leases":{}}`:             picket.CodeValidation,
		`{"leases":[],"x":1}`:       picket.CodeValidation,
		`{"leases":[` + many + `]}`: picket.CodeValidation,
		`{"leases":["` + strings.Repeat("x", picket.MaxRenewals<<10) + `"]}`: picket.CodeTooLarge,
	} {
		a := p.wantCode(code, "POST", renewalsPath, "agent", body)
		if code == picket.CodeValidation && !strings.Contains(body, `"x"`) && a.text("field") != "/leases" {
			t.Errorf("%.40s: field %q", body, a.text("field"))
		}
	}
	if page, err := p.Leases(t.Context()); err != nil || page.Leases[0].Renewals != 0 {
		t.Errorf("a refused request has renewed: %+v %v", page, err)
	}
}

// A revoked key renews nothing, although its leases were kept. A single renewal still does.
func TestARevokedKeyRenewsNothing(t *testing.T) {
	onBothStores(t, func(t *testing.T, p *fixture) {
		made := p.want(201, "POST", "/api/v1/keys", "admin", `{"name":"w","scopes":["agent"]}`)
		p.keys["w"] = made.text("key")
		leases := p.acquireMany("w", 2)
		p.renewAll("w", itemsOf(leases)...)
		p.want(200, "DELETE", "/api/v1/keys/"+made.text("keyId"), "admin", `{"keepLeases":true}`)
		a := p.wantCode(picket.CodeUnauthenticated, "POST", renewalsPath, "w",
			`{"leases":[`+strings.Join(itemsOf(leases), ",")+`]}`)
		if strings.Contains(a.raw, picket.LeaseTokenPrefix) {
			t.Errorf("the refusal has a credential: %s", a.raw)
		}
		held, err := p.sealer.OpenLeaseToken(leases[0].LeaseToken.Reveal())
		must(t, err)
		if _, err := p.Renew(t.Context(), held); err != nil {
			t.Errorf("the kept lease: %v", err)
		}
	})
}

// A run key renews the leases that it has acquired, and not those of the key that has made it.
func TestARunKeyRenewsItsOwnLeases(t *testing.T) {
	onBothStores(t, func(t *testing.T, p *fixture) {
		p.keys["run"] = p.want(201, "POST", "/api/v1/run-keys", "operator", `{"agentId":"a1"}`).text("key")
		own, parents := p.acquireMany("run", 1)[0], p.acquireMany("operator", 1)[0]
		got := p.renewAll("run", toRenew(own), toRenew(parents))
		if got[0].Code != "" || got[1].Code != picket.CodeUnauthenticated {
			t.Errorf("%+v", got)
		}
	})
}

// A process with a tool proxy alone answers the route, under any name of the host.
func TestRenewalsBesideAToolProxy(t *testing.T) {
	store, stop := rig.Memory()
	t.Cleanup(stop)
	p := newFixtureWith(t, store, api.Config{}, (*api.API).MountLeases)
	p.want(200, "GET", "/healthz", "", "")
	p.want404("/api/v1/leases")
	a := p.want(200, "POST", renewalsPath, "agent", `{"leases":[{"leaseToken":"pkl_x"}]}`, "Host", "proxy.example.com")
	if !strings.Contains(a.raw, `"status":401`) {
		t.Error(a.raw)
	}
}

// While the store is away, each lease is answered with an error that can be retried.
func TestRenewalsWhileTheStoreIsAway(t *testing.T) {
	store, redis := rig.RealServer(t)
	p := newFixture(t, store, api.Config{})
	leases := p.acquireMany("agent", 2)
	p.renewAll("agent", itemsOf(leases)...)
	must(t, redis.Signal(os.Kill))
	_, err := redis.Wait()
	must(t, err)
	a := p.call("POST", renewalsPath, "agent", `{"leases":[`+strings.Join(itemsOf(leases), ",")+`]}`)
	if n := strings.Count(a.raw, `"code":"orchestrator_unavailable"`); a.status == 200 && n != 2 ||
		a.status != 200 && (a.status != 503 || n != 1) || !strings.Contains(a.raw, `"retryable":true`) {
		t.Errorf("%d %s", a.status, a.raw)
	}
}

// want404 expects that the server has no route at a path.
func (p *fixture) want404(path string) {
	p.t.Helper()
	answer := httptest.NewRecorder()
	r := httptest.NewRequest("POST", "http://127.0.0.1"+path, strings.NewReader("{}"))
	r.Header.Set("X-API-Key", p.keys["admin"])
	p.handler.ServeHTTP(answer, r)
	if answer.Code != 404 {
		p.t.Errorf("POST %s: %d %s", path, answer.Code, answer.Body)
	}
}
