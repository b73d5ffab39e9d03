package console_test

import (
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/internal/rig"
	"github.com/picket-dev/picket/orchestrator/console"
)

const manyTasks = 10_000

// addManyTasks puts ten thousand tasks into a store, a thousand of them leased, with
// their events and rows of the ledger, past the engine: they are copies of one.
func (o *fixture) addManyTasks(raw redis.UniversalClient) {
	o.t.Helper()
	ctx, k := o.t.Context(), func(parts ...string) string { return "pk:{default}:" + strings.Join(parts, "") }
	pattern, _ := o.startRun(picket.TaskSpec{Title: "pattern", Role: "coder", Labels: map[string]string{"team": "a"}})
	run, err := raw.HGet(ctx, k("task:", pattern), "run").Result()
	must(o.t, err)
	copies := map[string]map[string]string{}
	for _, key := range []string{"task:" + pattern, "env:" + pattern, "run:" + run} {
		copies[key], err = raw.HGetAll(ctx, k(key)).Result()
		must(o.t, err)
	}
	spec, err := raw.Get(ctx, k("spec:", pattern)).Result()
	must(o.t, err)
	seq, err := o.LastSeq(ctx)
	must(o.t, err)
	p := raw.Pipeline()
	for n := range manyTasks {
		id, rid, order := fmt.Sprintf("task_%026d", n), fmt.Sprintf("run_%026d", n), float64(n+10)
		state, ran := "queued", ""
		if n%10 == 0 {
			state, ran = "leased", rid
			p.HSet(ctx, k("run:", rid), withFields(copies["run:"+run], "task", id))
			p.ZAdd(ctx, k("deadlines"), redis.Z{Score: 1e15 + order, Member: id})
		}
		p.HSet(ctx, k("task:", id),
			withFields(copies["task:"+pattern], "state", state, "order", fmt.Sprint(n+10), "run", ran))
		p.Set(ctx, k("spec:", id), strings.Replace(spec, "pattern", fmt.Sprintf("task number %d", n), 1), 0)
		p.HSet(ctx, k("env:", id), copies["env:"+pattern])
		for _, index := range []string{"tasks", "by-state:" + state, "by-role:coder", "by-label:team=a"} {
			p.ZAdd(ctx, k(index), redis.Z{Score: order, Member: id})
		}
		seq++
		at := fmt.Sprint(seq, "-0")
		p.XAdd(ctx, &redis.XAddArgs{
			Stream: k("events"),
			ID:     at,
			Values: []any{"type", "task.progress", "at", 946684800000 + n, "now", 1, "actor", "x", "data",
				`{"state":"leased"}`, "task", id},
		})
		p.XAdd(ctx, &redis.XAddArgs{
			Stream: k("ledger"),
			ID:     at,
			Values: []any{"task", id, "at", 1000, "kind", "call", "tool", "t", "cost_u", 1000},
		})
		p.ZAdd(ctx, k("ledger-of:", id), redis.Z{Score: float64(seq), Member: seq})
		if n%500 == 499 {
			_, err := p.Exec(ctx)
			must(o.t, err)
		}
	}
	must(o.t, raw.HSet(ctx, k("meta"), "seq", seq, "order", manyTasks+100).Err())
}

// withFields is a copy of a record with some fields changed.
func withFields(record map[string]string, pairs ...string) map[string]string {
	other := maps.Clone(record)
	for i := 0; i+1 < len(pairs); i += 2 {
		other[pairs[i]] = pairs[i+1]
	}
	return other
}

// However much there is, a page has at most 50 rows, a bounded size, and asks
// the engine, and the engine the store, a bounded number of times.
func TestPagesOfALargeStore(t *testing.T) {
	s := rig.Real(t)
	raw := rig.Hashes(redis.NewUniversalClient(&s.Redis))
	defer raw.Close()
	wire := &rig.CommandCounter{}
	s.Redis.Dialer = wire.Dialer(s.Redis.Dialer)
	o, done := newFixture(t, s)
	defer done()
	person := o.signedIn(picket.ScopeOperator)
	_, full := o.addFullTask()
	for n := range 120 {
		o.registerAgent(fmt.Sprintf("agent-%03d", n), fmt.Sprintf("role-%03d", n%70), 4)
	}
	o.addManyTasks(raw)
	session := o.addManySessions()
	var pools []console.PoolEndpoint
	for n := range 70 {
		pools = append(pools, console.PoolEndpoint{Role: fmt.Sprintf("role-%03d", n), MaxQueue: 1})
	}
	o.endpoints = endpointsOf("http://localhost:7070", pools...)
	o.addManyPolicies()
	pages := []struct {
		path   string
		rows   int
		kib    int
		onWire int
		calls  string
	}{
		{"/console/", 20, 48, 6, "handoffs=1 leases=1 reviews=1"},
		{"/console/tasks", 50, 64, 3, "list=1"},
		{"/console/tasks?state=queued&role=coder&label=team%3Da", 50, 64, 3, "list=1"},
		{"/console/tasks?q=number+95", 50, 64, 6, "list=4"},
		{"/console/tasks?q=nothing+like+it", 0, 16, 7, "list=5"},
		{"/console/tasks?q=nothing&state=leased&cursor=5000", 0, 16, 7, "list=3"},
		{"/console/tasks/task_00000000000000000000005001", 2, 32, 100,
			"agent=1 conversation=1 envelope=1 events=2 explain=1 reports=1 task=1"},
		{"/console/tasks/" + full, 30, 320, 104,
			"conversation=1 envelope=1 events=2 evidence=1 explain=1 log=4 reports=1 task=1"},
		{"/console/tasks/" + full + "/reports", 0, 640, 3, "reports=1"},
		{"/console/tasks/" + full + "/log", 0, 192, 4, "log=2"},
		{"/console/tasks/" + full + "/input", 0, 320, 3, "task=1"},
		{"/console/tasks/" + full + "/diff", 0, 320, 3, "evidence=1"},
		{"/console/agents", 108, 96, 12, ""},
		{"/console/agents/agent-007", 2, 32, 40, "agent=1 agent_sessions=1 conversation=1 events=1 leases=1"},
		{"/console/endpoints", 20, 64, 62, "agents=20 client_tasks=40"},
		{"/console/sessions", 50, 96, 3, "agent_sessions=1"},
		{"/console/sessions/" + session, 10, 640, 6, "agent_sessions=1 prompts=1 wake_facts=2"},
		{"/console/policies", 50, 64, 3, "policies=1"},
		{"/console/policies/ann", 0, 640, 7, "policy=2 wake_facts=1 wakes=1"},
		{"/console/policies/ann/history", 10, 768, 5, "policy=1 policy_history=2"},
		{"/console/leases", 50, 96, 4, "leases=1"},
		{"/console/leases?from=950", 50, 96, 4, "leases=1"},
		{"/console/budgets", 50, 64, 4, "envelope=1 list=1"},
		{"/console/budgets/" + full, 30, 64, 6, "envelope=1 ledger=1 list=1 task=1"},
		{"/console/ledger", 50, 64, 3, "ledger=1"},
		{"/console/ledger?kind=top_up", 0, 16, 3, "ledger=1"},
		{"/console/events", 50, 96, 6, "events=1"},
		{"/console/events?type=task.cancelled", 0, 32, 34, "events=1"},
		{"/console/stop", 0, 16, 2, ""},
	}
	for _, page := range pages {
		var p response
		person.mustGet(page.path) // the scripts are loaded
		wire.Take()
		made := o.scriptCalls(func() { p = person.mustGet(page.path) })
		sent := 0
		took := wire.Take()
		for command, n := range took {
			switch command {
			case "hello", "client", "ping": // connections are set up and kept
			default:
				sent += n
			}
		}
		if made["session"] != 1 || made["stats"] != 1 && !strings.HasSuffix(page.path, "/raw") {
			t.Errorf("%s: the frame asks %v", page.path, made)
		}
		delete(made, "session")
		delete(made, "stats")
		if asks := strings.TrimSuffix(strings.TrimPrefix(strings.ReplaceAll(fmt.Sprint(made), ":", "="), "map["),
			"]"); page.calls != "" && asks != page.calls {
			t.Errorf("%s asks %s, want %s", page.path, asks, page.calls)
		}
		if strings.HasSuffix(page.path, "from=950") && !strings.Contains(p.body, "task number 9500<") {
			t.Error("the leases of the newest tasks do not show their titles")
		}
		rows := strings.Count(p.body, "data-row")
		if rows > page.rows || len(p.body) > page.kib<<10 || sent > page.onWire {
			t.Errorf("%s: %d rows, %d KiB, %d commands sent (%v); allowed are %d, %d, %d", page.path, rows,
				len(p.body)>>10, sent, took, page.rows, page.kib, page.onWire)
		}
		t.Logf("%-60.60s %3d rows %4d KiB %3d commands %v", page.path, rows, len(p.body)>>10, sent, made)
	}
}
