package api_test

import (
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/budget"
	"github.com/picket-dev/picket/internal/rig"
	"github.com/picket-dev/picket/internal/rig/contract"
	"github.com/picket-dev/picket/orchestrator"
	"github.com/picket-dev/picket/orchestrator/api"
)

var echoParameter = regexp.MustCompile(`:([a-z]+)`)

func routeList(t *testing.T) []api.RouteInfo {
	a, err := api.New(api.Config{
		Engine:  func(string) *orchestrator.Engine { return nil },
		Engines: func() []*orchestrator.Engine { return nil },
	})
	must(t, err)
	return a.RouteList()
}

func TestEveryRouteIsDescribedAndNoOther(t *testing.T) {
	var registered, described []string
	for _, l := range routeList(t) {
		registered = append(registered, l.Method+" "+echoParameter.ReplaceAllString(l.Path, "{$1}"))
	}
	for _, r := range contract.Load(t).Routes() {
		ofProxy := strings.Contains(r, " /v1/") && !strings.HasSuffix(r, " /v1/leases/renew") ||
			strings.HasSuffix(r, " /agent/context")
		ofEndpoint := strings.Contains(r, " /a2a") || strings.Contains(r, " /.well-known/")
		if !ofProxy && !ofEndpoint {
			described = append(described, r)
		}
	}
	slices.Sort(registered)
	slices.Sort(described)
	if !slices.Equal(registered, described) {
		t.Errorf("registered:\n%s\ndescribed:\n%s", strings.Join(registered, "\n"), strings.Join(described, "\n"))
	}
}

// The refusal of an unknown parameter lists those that the route knows.
func TestTheParametersOfEveryRouteAreDescribed(t *testing.T) {
	p, described := newMemoryFixture(t), contract.Load(t)
	for _, l := range p.api.RouteList() {
		if len(l.Scopes) == 0 {
			continue // the route takes no parameters, and ignores those that are sent
		}
		body := ""
		if l.Method == "POST" || l.Method == "PATCH" {
			body = "{}"
		}
		a := p.call(l.Method, withUnknownIDs(l.Path)+"?nonsense=1", "admin", body, "If-Match", `"1"`)
		if a.text("field") != "?nonsense" {
			t.Errorf("%s %s has not refused an unknown parameter: %d %s", l.Method, l.Path, a.status, a.raw)
		}
		var known []string
		if list, ok := strings.CutPrefix(a.text("remedy"), "Known here: "); ok {
			known = strings.Split(strings.TrimSuffix(list, "."), ", ")
		}
		slices.Sort(known)
		want := described.QueryParameters(l.Method, echoParameter.ReplaceAllString(l.Path, "{$1}"))
		if !slices.Equal(known, want) {
			t.Errorf("%s %s knows the parameters %q, docs/openapi.yaml describes %q", l.Method, l.Path, known, want)
		}
	}
}

// aULID is well-formed and names nothing.
const aULID = "01JZZZZZZZZZZZZZZZZZZZZZZZ"

// withUnknownIDs puts ids that name nothing into a path.
func withUnknownIDs(path string) string {
	kind := "task"
	for prefix, k := range map[string]string{
		"/api/v1/agents":         "agent",
		"/api/v1/handoffs":       "handoff",
		"/api/v1/keys":           "key",
		"/api/v1/webhooks":       "webhook",
		"/api/v1/agent-sessions": "asession",
	} {
		if strings.HasPrefix(path, prefix) {
			kind = k
		}
	}
	path = strings.NewReplacer(":digest", strings.Repeat("0", 64), ":piece", "0", ":command", "prompt_"+aULID,
		":prompt", "prompt_"+aULID).Replace(path)
	return echoParameter.ReplaceAllString(path, kind+"_"+aULID)
}

func TestAuthMatrix(t *testing.T) {
	onBothStores(t, func(t *testing.T, p *fixture) {
		credentials := map[string]string{
			"none":            "",
			"malformed":       "hunter2",
			"unknown":         "pkk_default_" + strings.Repeat("A", 43),
			"other namespace": "pkk_elsewhere_" + strings.Repeat("A", 43),
			"wrong by one":    flipLastByte(p.keys["admin"]),
			"expired": p.newKey(picket.KeyRequest{
				Name:      "old",
				Scopes:    []picket.Scope{picket.ScopeAdmin},
				ExpiresAt: picket.InstantOf(time.Now().Add(-time.Hour)),
			}),
			"revoked":            p.revokedKey(),
			"lease capability":   p.sealer.LeaseToken("default", "task_"+aULID, "run_"+aULID).Reveal(),
			"session capability": p.openCapability(),
		}
		messages := map[string]bool{}
		for _, l := range p.api.RouteList() {
			path := withUnknownIDs(l.Path)
			body := ""
			if l.Method == "POST" || l.Method == "PATCH" {
				body = "{}"
			}
			for name, key := range credentials {
				a, err := p.send(t.Context(), l.Method, path, key, body)
				must(t, err)
				if public := len(l.Scopes) == 0; public == (a.status == 401) {
					t.Errorf("%s %s with %s: %d", l.Method, l.Path, name, a.status)
				}
				special := []string{"none", "lease capability", "session capability"}
				if !slices.Contains(special, name) && a.status == 401 {
					messages[a.text("message")+a.text("remedy")] = true
				}
			}
			for _, scope := range picket.Scopes {
				a := p.call(l.Method, path, string(scope), body)
				allowed := len(l.Scopes) == 0 || scope == picket.ScopeAdmin || slices.Contains(l.Scopes, scope)
				if a.status == 401 || a.status >= 500 && path != "/readyz" || allowed == (a.body["needs"] != nil) {
					t.Errorf("%s %s with scope %s: %d %s", l.Method, l.Path, scope, a.status, a.raw)
				}
			}
		}
		if len(messages) != 1 {
			t.Errorf("bad keys can be told apart: %v", messages)
		}
	})
}

func flipLastByte(key string) string {
	last := byte('A')
	if key[len(key)-1] == last {
		last = 'E'
	}
	return key[:len(key)-1] + string(last)
}

func (p *fixture) revokedKey() string {
	p.t.Helper()
	made, err := p.CreateKey(p.t.Context(), root,
		picket.KeyRequest{Name: "gone", Scopes: []picket.Scope{picket.ScopeAdmin}})
	must(p.t, err)
	p.want(200, "DELETE", "/api/v1/keys/"+made.KeyID, "admin", "")
	return made.Key.Reveal()
}

func TestBearerIsAsGoodAsTheHeader(t *testing.T) {
	p := newMemoryFixture(t)
	p.want(200, "GET", "/api/v1/tasks", "", "", "Authorization", "Bearer "+p.keys["agent"])
	p.want(200, "GET", "/api/v1/tasks", "", "", "Authorization", "bearer "+p.keys["agent"])
	p.wantCode(picket.CodeUnauthenticated, "GET", "/api/v1/tasks", "", "", "Authorization", "Basic "+p.keys["agent"])
	a := p.wantCode(picket.CodeUnauthenticated, "GET", "/api/v1/tasks", "", "", "Authorization",
		"Bearer "+p.sealer.LeaseToken("default", "task_"+aULID, "run_"+aULID).Reveal())
	if !strings.Contains(a.text("remedy"), "tool proxy") {
		t.Errorf("remedy: %s", a.text("remedy"))
	}
}

func TestHostsThatWereNotConfiguredAreRefused(t *testing.T) {
	store, stop := rig.Memory()
	t.Cleanup(stop)
	p := newFixture(t, store, api.Config{AllowedHosts: []string{"Picket.example"}})
	for host, served := range map[string]bool{
		"localhost":                   true,
		"localhost:7070":              true,
		"LOCALHOST":                   true,
		"127.0.0.1:1":                 true,
		"[::1]:7070":                  true,
		"10.0.0.7":                    true,
		"picket.example":              true,
		"picket.example:7070":         true,
		"evil.example":                false,
		"localhost.evil.example":      false,
		"127.0.0.1.evil.example:7070": false,
	} {
		if a := p.call("GET", "/healthz", "", "", "Host", host); (a.status == 200) != served {
			t.Errorf("%s: %d", host, a.status)
		}
	}
}

// newMemoryFixture is a plane on the in-process store, for what does not depend on it.
func newMemoryFixture(t testing.TB) *fixture {
	t.Helper()
	store, stop := rig.Memory()
	t.Cleanup(stop)
	return newFixture(t, store, api.Config{})
}

func TestCodesAreDescribed(t *testing.T) {
	description := newMemoryFixture(t).want(200, "GET", "/openapi.yaml", "", "").raw
	for _, code := range picket.Codes() {
		if !strings.Contains(description, string(code)) {
			t.Errorf("docs/openapi.yaml does not know code %s", code)
		}
	}
	for _, scope := range picket.Scopes {
		if !strings.Contains(description, fmt.Sprint(scope)) {
			t.Errorf("docs/openapi.yaml does not know scope %s", scope)
		}
	}
}

// The description names the fields of the types, so that a new field is not
// forgotten where it happens to be left out of an answer.
func TestSchemasHaveTheFieldsOfTheTypes(t *testing.T) {
	d := contract.Load(t)
	for schema, v := range map[string]any{
		"Task":              picket.Task{},
		"TaskPage":          picket.TaskPage{},
		"TaskBatch":         picket.TaskBatch{},
		"TaskSubmission":    picket.TaskSubmission{},
		"Run":               picket.Run{},
		"Exit":              picket.Exit{},
		"Report":            picket.Report{},
		"Answer":            picket.Answer{},
		"Review":            picket.Review{},
		"Handoff":           picket.Handoff{},
		"Lease":             picket.Lease{},
		"LeaseTask":         picket.LeaseTask{},
		"LeasePage":         picket.LeasePage{},
		"LiveLease":         picket.LiveLease{},
		"ReportNote":        picket.ReportNote{},
		"PendingReview":     picket.PendingReview{},
		"Event":             picket.Event{},
		"PauseState":        picket.PauseState{},
		"Stats":             picket.Stats{},
		"PulseSlot":         picket.ActivitySlot{},
		"Trace":             picket.Trace{},
		"Key":               picket.APIKey{},
		"NewKey":            picket.NewKey{},
		"Explanation":       picket.Explanation{},
		"Retry":             picket.Retry{},
		"AcquireRequest":    picket.AcquireRequest{},
		"ExpireRequest":     picket.ExpireRequest{},
		"ResumeRequest":     picket.ResumeRequest{},
		"AnswerRequest":     picket.AnswerRequest{},
		"KeyRequest":        picket.KeyRequest{},
		"ClientLimits":      picket.ClientLimits{},
		"ClientLimitsIn":    picket.ClientLimits{},
		"RetryIn":           picket.Retry{},
		"Renewal":           picket.Renewal{},
		"Watch":             picket.Watch{},
		"Command":           picket.Command{},
		"RunEvent":          picket.RunEvent{},
		"Progress":          picket.Progress{},
		"Reported":          picket.Reported{},
		"HelpRequest":       picket.HelpRequest{},
		"HelpRequested":     picket.HelpRequested{},
		"Agent":             picket.Agent{},
		"Capacity":          picket.Capacity{},
		"HeartbeatConfig":   picket.HeartbeatConfig{},
		"AgentRow":          picket.AgentRow{},
		"AgentPage":         picket.AgentPage{},
		"Registration":      picket.Registration{},
		"DeclaredCapacity":  picket.DeclaredCapacity{},
		"Thresholds":        picket.Thresholds{},
		"Pool":              picket.Pool{},
		"PoolAdvice":        picket.PoolAdvice{},
		"PoolList":          picket.PoolList{},
		"Heartbeat":         picket.Heartbeat{},
		"HeartbeatAnswer":   picket.HeartbeatAnswer{},
		"PendingCommand":    picket.PendingCommand{},
		"AgentCommand":      picket.AgentCommand{},
		"CommandAccepted":   picket.CommandAccepted{},
		"AgentStatusChange": picket.AgentStatusChange{},
		"InspectRequest":    picket.InspectRequest{},
		"Inspection":        picket.Inspection{},
		"Violation":         picket.Violation{},
		"Price":             budget.Price{},
		"TokenPrice":        budget.TokenPrice{},
		"PriceList":         budget.PriceList{},
		"Account":           budget.Account{},
		"EnvelopeState":     picket.EnvelopeState{},
		"OpenCall":          picket.OpenCall{},
		"TopUp":             picket.TopUp{},
		"TopUpResult":       picket.TopUpResult{},
		"TopUpHandoff":      picket.TopUpHandoff{},
		"HandoffPage":       picket.HandoffPage{},
		"ReviewPage":        picket.ReviewPage{},
		"ReviewFilter":      picket.ReviewFilter{},
		"BulkApproval":      picket.BulkApproval{},
		"BulkApproved":      picket.BulkApproved{},
		"LostRace":          picket.LostRace{},
		"Work":              picket.WorkSummary{},
		"ClaimRequest":      picket.ClaimRequest{},
		"LedgerRow":         picket.LedgerRow{},
		"LedgerPage":        picket.LedgerPage{},
		"SpendingReport":    picket.SpendingReport{},
		"SpendingRow":       picket.SpendingRow{},
		"Spending":          picket.Spending{},
	} {
		if got, want := d.Fields(schema), fieldsOf(reflect.TypeOf(v)); !slices.Equal(got, want) {
			t.Errorf("schema %s has %v, the type %v", schema, got, want)
		}
	}
}

func fieldsOf(t reflect.Type) (names []string) {
	for f := range t.Fields() {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case f.Anonymous && name == "":
			names = append(names, fieldsOf(f.Type)...)
		case name != "-":
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}
