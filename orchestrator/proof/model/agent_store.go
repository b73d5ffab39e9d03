package model

import (
	stdjson "encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/picket-dev/picket"
)

// compareAgents holds records, rosters, holder sets and the index of silence
// against the model.
func (x *machine) compareAgents() {
	x.Helper()
	if len(x.m.agents) == 0 {
		return
	}
	p := x.raw.Pipeline()
	key := func(parts ...string) string { return x.prefix + strings.Join(parts, "") }
	silence := p.ZRangeWithScores(x.ctx, key("silence"), 0, -1)
	rosters := map[string]*redis.StringSliceCmd{}
	for _, s := range picket.AgentStatuses {
		rosters[string(s)] = p.ZRange(x.ctx, key("roster:", string(s)), 0, -1)
	}
	_, err := p.Exec(x.ctx)
	x.ok(err)
	stands, judged := map[string]string{}, scores(silence)
	for s, ids := range rosters {
		for _, id := range ids.Val() {
			if stands[id] != "" {
				x.Fatalf("%s stands in the rosters of %s and %s", id, stands[id], s)
			}
			stands[id] = s
		}
	}
	for _, id := range slices.Sorted(maps.Keys(x.m.agents)) {
		a := x.m.agents[id]
		x.compareAgent(a)
		if stands[id] != string(a.status) {
			x.Fatalf("%s stands in the roster of %q, want %s", id, stands[id], a.status)
		}
		if _, has := judged[id]; has == a.status.Gone() {
			x.Fatalf("%s is %s; is judged: %v", id, a.status, has)
		}
		delete(stands, id)
		delete(judged, id)
	}
	if len(stands) > 0 || len(judged) > 0 {
		x.Fatalf("rosters hold %v, silence %v too many", stands, judged)
	}
	if diff := x.j.DiffersFrom(x.m.replayAgents()); diff != "" { // I4
		x.Fatalf("the event log does not replay:\n%s", diff)
	}
}

func (x *machine) compareAgent(a *modelAgent) {
	x.Helper()
	p := x.raw.Pipeline()
	of := x.prefix + "%s:" + a.id
	got := p.HGetAll(x.ctx, fmt.Sprintf(of, "agent"))
	held := p.ZRange(x.ctx, fmt.Sprintf(of+":%d", "holder", a.incarnation), 0, -1)
	commands := p.HGetAll(x.ctx, fmt.Sprintf(of, "commands"))
	pool := p.ZScore(x.ctx, fmt.Sprintf("%sroster:%s|%s", x.prefix, a.status, a.role), a.id)
	_, err := p.Exec(x.ctx)
	x.ok(err)
	r := got.Val()
	beat := stdjson.Number(r["beat_at"])
	at, err := beat.Int64()
	x.ok(err)
	want := fmt.Sprintf("status=%s version=%d incarnation=%d owner=%s role=%s load=%d beat=%d commands=%d", a.status,
		a.version, a.incarnation,
		a.owner, a.role, a.load, a.beat, len(a.commands))
	have := fmt.Sprintf("status=%s version=%s incarnation=%s owner=%s role=%s load=%s beat=%d commands=%d", r["status"],
		r["version"],
		r["incarnation"], r["owner"], r["role"], r["load"], x.inHalves(float64(at)), len(commands.Val()))
	if have != want {
		x.Fatalf("agent %s\n is %s\nwant %s", a.id, have, want)
	}
	var tasks []string
	for _, l := range x.m.holding(a.id, a.incarnation) {
		tasks = append(tasks, l.task)
	}
	listed := slices.Sorted(slices.Values(held.Val()))
	slices.Sort(tasks)
	if !slices.Equal(listed, tasks) {
		x.Fatalf("%s holds %v, want %v", a.id, listed, tasks)
	}
	if pool.Err() != nil {
		x.Fatalf("%s does not stand in the roster of %s %s", a.id, a.status, a.role)
	}
}
