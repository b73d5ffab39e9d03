package api_test

import (
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/budget"
	"github.com/picket-dev/picket/internal/rig"
	"github.com/picket-dev/picket/orchestrator"
	"github.com/picket-dev/picket/orchestrator/api"
)

// makeTraffic brings about whatever makes a metric appear.
func (p *fixture) makeTraffic(s rig.Store) {
	t := p.t
	t.Helper()
	ctx := t.Context()
	p.store.SetBudgets(&budget.Envelope{Tokens: 10_000_000, USD: 20_000_000_000}, nil)
	p.toHandoff()
	p.toReview()
	p.submit(`{"title":"late"}`)
	_, held := p.lease()
	for range 2 {
		_, err := p.Renew(ctx, held)
		must(t, err)
	}
	p.RecordRefusedWrite(ctx, held, "report", picket.Refuse(picket.CodeStaleFence, "Stop.", "an old token"))
	_, err := p.CountEnded(ctx, 1000)
	must(t, err)
	_, err = p.MeasureMemory(ctx, 1000)
	must(t, err)
	raw := redis.NewUniversalClient(&s.Redis)
	defer raw.Close()
	must(t, raw.ZRem(ctx, "pk:{default}:deadlines", held.TaskID).Err())
	p.want(200, "POST", "/api/v1/invariants", "operator", `{"repair":true}`)
	must(t, raw.ZAdd(ctx, "pk:{default}:deadlines", redis.Z{Score: 1, Member: held.TaskID}).Err())
}

// Every metric that is documented is there with its type and labels, and every
// one that is there is documented; those of the store go with it.
func TestMetricsAreTheDocumentedOnes(t *testing.T) {
	store, server := rig.RealServer(t)
	p := newFixture(t, store, api.Config{})
	p.makeTraffic(store)
	want, got := documentedMetrics(t), readScrape(t, p.want(200, "GET", "/metrics", "", "").raw)
	for _, name := range slices.Sorted(maps.Keys(want)) {
		w, g := want[name], got[name]
		if g == nil {
			t.Errorf("%s is documented, and no scrape has it", name)
		} else if g.kind != w.kind || g.labels != w.labels {
			t.Errorf("%s is documented as %s {%s}, it is %s {%s}", name, w.kind, w.labels, g.kind, g.labels)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(got)) {
		if _, ok := want[name]; !ok {
			t.Errorf("%s is not documented", name)
		}
		if total := strings.HasSuffix(name, "_total"); total != (got[name].kind == "counter") {
			t.Errorf("%s is a %s: counters, and nothing else, end in _total", name, got[name].kind)
		}
	}
	must(t, server.Signal(os.Kill))
	_, err := server.Wait()
	must(t, err)
	left := got
	// what was found before is shown for a second
	for end := time.Now().Add(time.Minute); left["picket_tasks"] != nil && time.Now().Before(end); {
		left = readScrape(t, p.want(200, "GET", "/metrics", "", "").raw)
	}
	for _, name := range slices.Sorted(maps.Keys(want)) {
		if there := left[name] != nil; there != (want[name].from == "process") {
			t.Errorf("%s is documented as of the %s; without a store it is there: %v", name, want[name].from, there)
		}
	}
}

// The figures of a scrape are what happened.
func TestMetricsCountWhatHappened(t *testing.T) {
	virtual(t, api.Config{}, func(t *testing.T, p *fixture) {
		p.submit(`{"title":"one","leaseWindowSeconds":50,"timeoutSeconds":100}`)
		time.Sleep(7 * time.Second)
		p.passTime(400 * time.Millisecond)
		_, held := p.lease()
		_, err := p.Renew(t.Context(), held) // confirms
		must(t, err)
		p.passTime(30 * time.Second)
		_, err = p.Renew(t.Context(), held)
		must(t, err)
		p.submit(`{"title":"asked for twice"}`)
		for range 2 {
			if a := p.want(200, "POST", "/api/v1/leases", "agent", `{"agentId":"a2"}`, "Idempotency-Key",
				"k"); !strings.Contains(a.raw, "asked for twice") {
				t.Errorf("acquired %s", a.raw)
			}
		}
		p.toHandoff()
		p.passTime(31 * time.Second)
		_, err = p.CountEnded(t.Context(), 100)
		must(t, err)
		got := readScrape(t, p.want(200, "GET", "/metrics", "", "").raw)
		for sample, want := range map[string]string{
			`picket_leases{namespace="default",state="held"}`:           "1",
			`picket_leases{namespace="default",state="due"}`:            "0",
			`picket_grants_total{namespace="default"}`:                  "3",
			`picket_renewals_total{namespace="default"}`:                "2",
			`picket_pickup_seconds_count{namespace="default"}`:          "3",
			`picket_pickup_seconds_bucket{namespace="default",le="5"}`:  "2",
			`picket_pickup_seconds_bucket{namespace="default",le="15"}`: "3",
			`picket_renew_seconds_count{namespace="default"}`:           "2",
			`picket_renew_left_ratio_count{namespace="default"}`:        "1",
			`picket_renew_left_ratio_sum{namespace="default"}`:          "0.4",
			// what begins with its first event has not risen
			`picket_refused_writes_total{code="stale_fence",namespace="default"}`:                         "0",
			`picket_invariant_violations_total{kind="books_differ",namespace="default",repaired="false"}`: "0",
			`picket_invariant_violations_total{kind="lane_extra",namespace="default",repaired="true"}`:    "0",
			`picket_running{namespace="default",role=""}`:                                                 "1",
			`picket_running_nudged{namespace="default",role=""}`:                                          "0",
			`picket_running_timeout_ratio_max{namespace="default",role=""}`:                               "0.61",
			`picket_running_envelope_ratio_max{namespace="default",role=""}`:                              "0",
			`picket_running_report_age_seconds_max{namespace="default",role=""}`:                          "61",
			`picket_queue_wait_seconds_count{namespace="default",role=""}`:                                "3",
			`picket_queue_wait_seconds_bucket{namespace="default",role="",le="5"}`:                        "2",
			`picket_runs_ended_total{class="undelivered",namespace="default",role=""}`:                    "1",
			`picket_runs_ended_total{class="released",namespace="default",role=""}`:                       "1",
			`picket_runs_ended_total{class="crash",namespace="default",role=""}`:                          "0",
			`picket_run_seconds_count{namespace="default",role=""}`:                                       "2",
			`picket_run_seconds_bucket{namespace="default",role="",le="60"}`:                              "2",
			`picket_spent_by_role_usd_total{model="",namespace="default",role=""}`:                        "0",
			`picket_leases_expired_total{class="undelivered",namespace="default"}`:                        "1",
			`picket_wakes_total{namespace="default",reason="heartbeat_no_policy",result="skipped"}`:       "0",
			`picket_leases_expired_total{class="agent_dead",namespace="default"}`:                         "0",
			`picket_handoffs_open{kind="question",namespace="default"}`:                                   "1",
			`picket_handoff_oldest_seconds{namespace="default"}`:                                          "31",
			`picket_handoff_oldest_seconds{namespace="other"}`:                                            "0",
			`picket_script_seconds_count{script="submit"}`:                                                "3",
			`picket_script_seconds_bucket{script="submit",le="+Inf"}`:                                     "3",
		} {
			name, _, _ := strings.Cut(sample, "{")
			for _, suffix := range []string{"_count", "_bucket", "_sum"} {
				name = strings.TrimSuffix(name, suffix)
			}
			if got[name] == nil || got[name].values[sample] != want {
				t.Errorf("%s is not %s: %v", sample, want, got[name])
			}
		}
	})
}

// Agents choose the roles of what they delegate. However many they choose, a scrape has a bounded
// number of labels, and counts every run.
func TestRolesDoNotFloodAScrape(t *testing.T) {
	p := newMemoryFixture(t)
	const roles = orchestrator.MaxCountedRoles + 7
	for i := range roles {
		role := fmt.Sprintf("role%02d", i)
		p.submit(`{"title":"x","role":"` + role + `"}`)
		_, err := p.Acquire(t.Context(), picket.Caller{Actor: "key_x"},
			picket.AcquireRequest{AgentID: "a1", Role: role})
		must(t, err)
	}
	got := readScrape(t, p.want(200, "GET", "/metrics", "", "").raw)
	for _, name := range []string{"picket_running", "picket_running_nudged", "picket_queue_wait_seconds"} {
		labels := map[string]bool{}
		for sample := range got[name].values {
			labels[regexp.MustCompile(`role="[^"]*"`).FindString(sample)] = true
		}
		if len(labels) < 40 || len(labels) > orchestrator.MaxCountedRoles+2 {
			t.Errorf("%s has %d roles", name, len(labels))
		}
	}
	if n := got["picket_running"].values[`picket_running{namespace="default",role="other"}`]; n != "7" {
		t.Errorf("%s runs of other roles, want 7", n)
	}
}

// A scrape looks at each namespace once, and scrapes within a second share it.
func TestAScrapeReadsTheStoreOnce(t *testing.T) {
	virtual(t, api.Config{}, func(t *testing.T, p *fixture) {
		before := map[string]int64{}
		for _, c := range p.store.ScriptStats() {
			before[c.Script] = c.Count
		}
		looks := func() (n int64) {
			for _, c := range p.store.ScriptStats() {
				switch {
				case c.Script == "stats":
					n = c.Count - before[c.Script]
				case c.Script == "leases" || c.Script == "totals": // with the same look
				case c.Script == "identify": // two namespaces at once can need a new connection, which is greeted
				case c.Count != before[c.Script]:
					t.Errorf("a scrape ran %s", c.Script)
				}
			}
			return n
		}
		for range 20 {
			p.want(200, "GET", "/metrics", "", "")
		}
		if n := looks(); n != 2 {
			t.Errorf("20 scrapes at once took %d looks at 2 namespaces", n)
		}
		time.Sleep(api.StatsMaxAge)
		p.want(200, "GET", "/metrics", "", "")
		if n := looks(); n != 4 {
			t.Errorf("a second later there were %d looks, want 4", n)
		}
	})
}

func TestReadersAreCountedWhileTheyRead(t *testing.T) {
	p := newMemoryFixture(t)
	expect := func(want string) {
		t.Helper()
		var got string
		// a reader that has gone is noticed a little later
		for end := time.Now().Add(time.Minute); got != want && time.Now().Before(end); {
			got = readScrape(t, p.want(200, "GET", "/metrics", "",
				"").raw)["picket_event_readers"].values["picket_event_readers{}"]
		}
		if got != want {
			t.Errorf("%s readers, want %s", got, want)
		}
	}
	expect("0")
	one, two := p.openStream(t, "/api/v1/events", "reviewer"), p.openStream(t, "/api/v1/events", "reviewer")
	expect("2")
	one.close()
	expect("1")
	two.close()
	expect("0")
}
