package orchestrator_test

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"math"
	"os"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"pgregory.net/rapid"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/internal/rig"
	"github.com/picket-dev/picket/internal/seal"
	"github.com/picket-dev/picket/orchestrator"
)

// The model test: random verbs against the engine and against the rules of
// model_rules_test.go. After every step both must say the same of every task,
// run, lane and hand-off, and the invariants must hold.
//
// All durations are multiples of half a minute and a check takes less than
// that, so it never matters how fast the machine is.
const halfMinute = 30_000 // ms

func TestModelVirtual(t *testing.T) {
	rig.SkipShort(t)
	flags := modelFlags(t)
	// rapid stops after a day, which on the virtual clock is a minute of ours:
	// every portion has a clock and a seed of its own.
	const portion = 200
	for left, seed := flags.checks, flags.seed; left > 0 && !t.Failed(); left, seed = left-portion, seed+1 {
		flags.set("rapid.checks", fmt.Sprint(min(left, portion)))
		flags.set("rapid.seed", fmt.Sprint(seed))
		flags.log()
		synctest.Test(t, func(t *testing.T) {
			// A test in a bubble may not ask for its deadline: rapid gets one that has none.
			rapid.Check(struct{ testing.TB }{t}, func(rt *rapid.T) {
				store, stop := rig.Memory()
				defer stop()
				runModel(rt, store, "default", true, &noPatch)
			})
		})
	}
}

func TestModelReal(t *testing.T) {
	modelFlags(t).log()
	store := rig.Real(t)
	n := 0
	defer lifecycleTotals.log(t)
	rapid.Check(t, func(rt *rapid.T) {
		n++
		runModel(rt, store, fmt.Sprintf("model-%d", n), false, &noPatch)
	})
}

// givenFlags are those of the command line: asked first before any is set here.
var givenFlags = sync.OnceValue(func() map[string]bool {
	given := map[string]bool{}
	flag.Visit(func(f *flag.Flag) { given[f.Name] = true })
	return given
})

// rapidFlags says how much is tried.
type rapidFlags struct {
	t      *testing.T
	checks int
	seed   uint64
}

// modelFlags decides how much is tried, unless the command line says it.
func modelFlags(t *testing.T) rapidFlags {
	t.Helper()
	f := rapidFlags{t: t}
	usual := map[string]string{
		"rapid.checks":     fmt.Sprint(rig.Rounds(80, 5000)),
		"rapid.steps":      "50",
		"rapid.seed":       fmt.Sprint(time.Now().UnixNano()),
		"rapid.nofailfile": "true",
	} // the seed says it all
	if t.Name() == "TestModelVirtual" {
		usual["rapid.checks"] = fmt.Sprint(rig.Rounds(40, 5000)) // a life takes longer than on a real store
	}
	if rig.Soaking() {
		usual["rapid.steps"] = "100"
	}
	if t.Name() == "TestModelVirtual" {
		usual["rapid.shrinktime"] = "23h" // virtual time: it runs much faster than ours
	}
	for name, value := range usual {
		was := flag.Lookup(name).Value.String()
		t.Cleanup(func() { _ = flag.Set(name, was) })
		if !givenFlags()[name] {
			f.set(name, value)
		}
	}
	var err error
	f.checks, err = strconv.Atoi(f.get("rapid.checks"))
	ok(t, err)
	f.seed, err = strconv.ParseUint(f.get("rapid.seed"), 10, 64)
	ok(t, err)
	return f
}

func (f rapidFlags) get(name string) string { return flag.Lookup(name).Value.String() }

func (f rapidFlags) set(name, value string) { ok(f.t, flag.Set(name, value)) }

// log prints how to repeat what follows.
func (f rapidFlags) log() {
	f.t.Logf("repeat with: go test ./orchestrator/proof/model -run '^%s$' -rapid.checks=%s -rapid.steps=%s -rapid.seed=%s",
		f.t.Name(), f.get("rapid.checks"), f.get("rapid.steps"), f.get("rapid.seed"))
}

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
	j    *eventReplay
	base int64 // store time at the start
	held map[string]picket.LeaseCredential
	// refusals counts, by run, the refused writes the engine was told of.
	refusals map[string]int
	short    map[string]int // calls refused for want of money, by run
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
}

// runModel is the property. The mutation gate plants bugs that have to be found.
func runModel(rt *rapid.T, s rig.Store, namespace string, virtual bool, bug *scriptPatch) {
	ctx := context.Background()
	x := &machine{
		T:        rt,
		ctx:      ctx,
		prefix:   "pk:{" + namespace + "}:",
		virtual:  virtual,
		sealer:   rig.Sealer(),
		m:        newModel(),
		j:        newEventReplay(),
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
	orchestrator.SetClock(&cfg, fastClock())
	store, err := orchestrator.Open(ctx, cfg)
	x.ok(err)
	defer store.Close()
	bug.apply(store, batchSizes{x.m.batch, x.m.stride})
	x.raw = redis.NewUniversalClient(&s.Redis)
	defer x.raw.Close()
	x.e = store.Engine(namespace)
	x.base, err = x.raw.HGet(ctx, x.prefix+"meta", "now").Int64()
	x.ok(err)
	x.most = 1 + x.below(6, "open tasks")
	defer x.j.count()
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
func seconds(halves int) *int { return ptr(halves * halfMinute / 1000) }

// inHalves cuts what the machine's own slowness adds to a point of store time.
func (x *machine) inHalves(ms float64) int64 {
	return int64(math.Floor((ms-float64(x.base))/halfMinute)) * halfMinute
}

func sortedEvents(l []modelEvent) []string {
	out := make([]string, len(l))
	for i, ev := range l {
		out[i] = ev.kind + " " + ev.task
	}
	slices.Sort(out)
	return out
}
