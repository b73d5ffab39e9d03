package model

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"os"
	"slices"

	"github.com/redis/go-redis/v9"
	"pgregory.net/rapid"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/internal/rig"
	"github.com/picket-dev/picket/internal/seal"
	"github.com/picket-dev/picket/orchestrator"
	"github.com/picket-dev/picket/orchestrator/proof/kit"
)

// machine is one check: an engine, the model of it and what joins them.
type machine struct {
	*rapid.T
	ctx     context.Context
	e       *orchestrator.Engine
	raw     redis.UniversalClient
	prefix  string
	virtual bool
	sealer  *seal.Sealer

	m    *model
	j    *kit.EventReplay
	base int64 // store time at the start
	held map[string]picket.LeaseCredential
	// refusals counts, by run, the refused writes that were reported to the engine.
	refusals map[string]int
	short    map[string]int // calls refused for lack of money, by run
	made     []madeCall
	most     int                     // open tasks, or submit is drawn less
	looks    map[string]reviewerView // of reviewers, by task
	jumps    int                     // of the store's clock
	swaps    int                     // of the store
	// An acquire by a registered agent, and how many there were.
	gathered   repeatableAcquire
	gatherings int
	keys       int  // of requests that are made once more
	counted    bool // the engine was told the number of grants since

	client string          // the key of a client that can be revoked, "" if there is none
	claims int             // of push configurations
	turns  []modelPushTurn // that were left, the last ones
}

// Run is the property. The mutation gate plants bugs that have to be found.
func Run(rt *rapid.T, s rig.Store, namespace string, virtual bool, bug *kit.ScriptPatch) {
	ctx := context.Background()
	x := &machine{
		T:        rt,
		ctx:      ctx,
		prefix:   "pk:{" + namespace + "}:",
		virtual:  virtual,
		sealer:   rig.Sealer(),
		m:        newModel(),
		j:        kit.NewEventReplay(),
		held:     map[string]picket.LeaseCredential{},
		refusals: map[string]int{},
		short:    map[string]int{},
	}
	witness, err := os.MkdirTemp("", "witness")
	x.ok(err)
	defer os.RemoveAll(witness)
	moves := x.actions()
	cfg := orchestrator.Config{Redis: s.Redis, Memory: s.Memory, Namespaces: []string{namespace}, Sealer: x.sealer,
		Quotas: orchestrator.Quotas{Runs: runQuota}, Witness: witness, Found: true, Log: slog.New(slog.DiscardHandler)}
	cfg.Now = kit.FastClock()
	store, err := orchestrator.Open(ctx, cfg)
	x.ok(err)
	defer store.Close()
	bug.Apply(store, kit.BatchSizes{Leases: x.m.batch, Tasks: x.m.stride})
	x.raw = rig.Hashes(redis.NewUniversalClient(&s.Redis))
	defer x.raw.Close()
	x.e = store.Engine(namespace)
	x.base, err = x.raw.HGet(ctx, x.prefix+"meta", "now").Int64()
	x.ok(err)
	x.most = 1 + x.below(6, "open tasks")
	defer x.j.Count()
	rt.Repeat(map[string]func(*rapid.T){
		"":     func(rt *rapid.T) { x.T = rt; x.compare() },
		"step": func(rt *rapid.T) { x.T = rt; x.step(moves) },
	})
}

func (x *machine) ok(err error) {
	x.Helper()
	if err != nil {
		x.Fatalf("%v", err)
	}
}

// agree holds the engine's refusal against the model's. It returns whether the
// verb had an effect or an answer to compare.
func (x *machine) agree(err error, want picket.Code, what string, args ...any) bool {
	x.Helper()
	what = fmt.Sprintf(what, args...)
	switch {
	case err == nil && want != "":
		x.Fatalf("%s was admitted, want %s", what, want)
	case err != nil && picket.CodeOf(err) != want:
		x.Fatalf("%s: %s (%v), want %q", what, picket.CodeOf(err), err, want)
	}
	return err == nil
}

func (x *machine) same(what string, got, want any) {
	x.Helper()
	if got != want {
		x.Fatalf("%s answered %v, want %v", what, got, want)
	}
}

// bits is a number below 2^10, every one as likely: rapid's own generators
// prefer the small ones, which would try some verbs hardly ever.
var bits = rapid.Custom(func(t *rapid.T) int {
	n := 0
	for range 10 {
		n <<= 1
		if rapid.Bool().Draw(t, "bit") {
			n |= 1
		}
	}
	return n
})

// below draws a number from 0 to n-1.
func (x *machine) below(n int, label string) int { return bits.Draw(x.T, label) * n >> 10 }

// oneOf draws an element; shrinking goes to the first.
func oneOf[V any](x *machine, label string, values ...V) V {
	return values[x.below(len(values), label)]
}

func (x *machine) chance(label string, percent int) bool { return x.below(100, label) >= 100-percent }

// pick draws from a list, with a few draws of something that does not exist.
func (x *machine) pick(label string, list []string, unknown string) string {
	if len(list) == 0 || x.chance(label+" unknown", 3) {
		return unknown
	}
	// The youngest first: that is where shrinking goes.
	return list[len(list)-1-x.below(len(list), label)]
}

// seconds is a number of half minutes, in seconds.
func seconds(halves int) *int { return kit.Ptr(halves * kit.HalfMinute / 1000) }

// inHalves cuts what the machine's own slowness adds to a point of store time.
func (x *machine) inHalves(ms float64) int64 {
	return int64(math.Floor((ms-float64(x.base))/kit.HalfMinute)) * kit.HalfMinute
}

func sortedEvents(l []modelEvent) []string {
	out := make([]string, len(l))
	for i, ev := range l {
		out[i] = ev.kind + " " + ev.task
	}
	slices.Sort(out)
	return out
}
