package model

import (
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/redis/go-redis/v9"

	"github.com/picket-dev/picket/budget"
	"github.com/picket-dev/picket/orchestrator/proof/kit"
)

// storedMoney is what a namespace holds of money, read key by key past the engine.
type storedMoney struct {
	envs     map[string]map[string]string
	calls    map[string]map[string]float64
	inflight map[string]map[string]float64
	holds    map[string]float64
	rows     int64
}

func (x *machine) readMoney() *storedMoney {
	p := x.raw.Pipeline()
	at := func(key string) string {
		if p.Len() >= 20 { // as in read
			_, err := p.Exec(x.ctx)
			x.ok(err)
		}
		return x.prefix + key
	}
	zset := func(key string) *redis.ZSliceCmd { return p.ZRangeWithScores(x.ctx, at(key), 0, -1) }
	envs, calls, inflight := map[string]*redis.MapStringStringCmd{}, map[string]*redis.ZSliceCmd{},
		map[string]*redis.ZSliceCmd{}
	for _, id := range x.m.ids {
		envs[id], calls[id], inflight[id] = p.HGetAll(x.ctx, at("env:"+id)), zset("calls:"+id), zset("inflight:"+id)
	}
	holds, rows := zset("holds"), p.XLen(x.ctx, at("ledger"))
	_, err := p.Exec(x.ctx)
	x.ok(err)
	return &storedMoney{
		envs:     valuesOf(envs, (*redis.MapStringStringCmd).Val),
		calls:    valuesOf(calls, scores),
		inflight: valuesOf(inflight, scores),
		holds:    scores(holds),
		rows:     rows.Val(),
	}
}

// ColumnOf reads one column of an envelope's record.
func ColumnOf(row map[string]string, column string) budget.Envelope {
	t, _ := strconv.ParseInt(row[column+"_t"], 10, 64)
	u, _ := strconv.ParseInt(row[column+"_u"], 10, 64)
	return budget.Envelope{Tokens: t, USD: budget.Money(u)}
}

func AccountOf(row map[string]string) budget.Account {
	return budget.Account{
		Granted:   ColumnOf(row, "granted"),
		Available: ColumnOf(row, "available"),
		Held:      ColumnOf(row, "held"),
		Spent:     ColumnOf(row, "spent"),
		Carved:    ColumnOf(row, "carved"),
	}
}

// compareMoney holds every envelope, call and barrier against the model, and
// the books of the store against themselves.
func (x *machine) compareMoney() {
	x.Helper()
	got := x.readMoney()
	carved, held, below := map[string]budget.Envelope{}, map[string]budget.Envelope{}, map[string]budget.Envelope{}
	calls := map[string]map[string]*modelCall{}
	for _, c := range x.m.open() {
		held[c.task] = held[c.task].Add(c.need)
		if calls[c.task] == nil {
			calls[c.task] = map[string]*modelCall{}
		}
		calls[c.task][c.id] = c
	}
	for _, id := range x.m.ids {
		row := got.envs[id]
		a := AccountOf(row)
		carved[row["parent"]] = carved[row["parent"]].Add(a.Granted)
		below[row["parent"]] = below[row["parent"]].Add(ColumnOf(row, "total"))
		if !a.Balanced() { // I3
			x.Fatalf("the books of %s do not add up: %+v", id, a)
		}
		if a.Held != held[id] { // I6
			x.Fatalf("%s holds %+v, its calls under way %+v", id, a.Held, held[id])
		}
		e := x.m.envs[id]
		want := fmt.Sprintf("%+v parent=%s closed=%v whole=%+v unverified=%+v warned=%d,%d", e.Account, e.parent,
			e.closed, e.whole, e.unverified, e.warnedT, e.warnedU)
		have := fmt.Sprintf("%+v parent=%s closed=%v whole=%+v unverified=%+v warned=%s,%s", a, row["parent"],
			row["closed"] == "1", ColumnOf(row, "envelope"), ColumnOf(row, "unverified"),
			zero(row["warned_t"]), zero(row["warned_u"]))
		if have != want {
			x.Fatalf("the envelope of %s\n is %s\nwant %s", id, have, want)
		}
		x.compareCalls(id, got, calls[id])
	}
	for _, id := range x.m.ids { // I8
		if a := AccountOf(got.envs[id]); a.Carved != carved[id] {
			x.Fatalf("%s has carved %+v, its subtasks were granted %+v", id, a.Carved, carved[id])
		}
		if total := ColumnOf(got.envs[id], "total"); total != AccountOf(got.envs[id]).Spent.Add(below[id]) {
			x.Fatalf("%s and all below it have spent %+v, it %+v, its subtasks %+v", id, total,
				AccountOf(got.envs[id]).Spent, below[id])
		}
	}
	if n := len(x.m.open()); len(got.holds) != n {
		x.Fatalf("holds lists %v, want %d", got.holds, n)
	}
	if got.rows != int64(x.m.rows) {
		x.Fatalf("the ledger has %d rows, want %d", got.rows, x.m.rows)
	}
}

func (x *machine) compareCalls(id string, got *storedMoney, want map[string]*modelCall) {
	x.Helper()
	if have, should := slices.Sorted(maps.Keys(got.calls[id])),
		slices.Sorted(maps.Keys(want)); !slices.Equal(have, should) {
		x.Fatalf("calls of %s under way: %v, want %v", id, have, should)
	}
	acting := 0
	for cid, c := range want {
		due, ends := got.holds[id+":"+cid], got.inflight[id][cid]
		// Off the half minutes: what acts outside is given up some seconds later.
		if x.inHalves(due) != c.due-c.due%kit.HalfMinute || (ends > 0) != c.external ||
			c.external && x.inHalves(ends) != c.acts {
			x.Fatalf("call %s of %s settles automatically at %.0f and acts until %.0f; want %d and %d", cid, id,
				due-float64(x.base), ends-float64(x.base), c.due, c.acts)
		}
		if c.external {
			acting++
		}
	}
	if len(got.inflight[id]) != acting {
		x.Fatalf("%v of %s act outside, want %d", got.inflight[id], id, acting)
	}
}
