package linear

import (
	"strings"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/picket-dev/picket/internal/rig"
	"github.com/picket-dev/picket/orchestrator/proof/kit"
)

func TestLinearizable(t *testing.T) {
	histories := rig.SoakRounds(t, "linearizability", 10, 500)
	seed := givenSeed(t)
	store := rig.Real(t)
	var sum linearCounts
	undecided := 0
	for i := 0; i < histories+undecided; i++ {
		w := verbMixes[i%len(verbMixes)]
		h := recordHistory(t, store, w, seed+uint64(i), &kit.NoPatch)
		if h.calls < 500 {
			t.Fatalf("only %d operations", h.calls)
		}
		bad, decided := h.check()
		if !decided && undecided < histories/10 { // it proves nothing, so another one is made
			undecided++
			t.Logf("%s history %d: %s", w.name, i, bad)
			continue
		}
		if bad != "" {
			t.Fatalf("%s history %d: %s\nrepeat with: go test ./orchestrator/proof/linear -run '^TestLinearizable$' -rapid.seed=%d (clients race: it may take several tries)",
				w.name, i, bad, seed+uint64(i))
		}
		sum.add(h.linearCounts)
	}
	t.Logf("%d histories of 8 clients, %d operations, %d of unknown outcome, %d refused, %d leases; longest %v, longest check %v; 0 illegal (seed %d)",
		histories, sum.calls, sum.unknown, sum.refused, sum.leases, sum.took.Round(time.Millisecond),
		sum.checked.Round(time.Millisecond), seed)
	if sum.unknown < histories || sum.leases < histories*10 {
		t.Error("the histories hold too few lost replies or leases to prove anything")
	}
}

// The checker bites: histories that no single task could have answered.
func TestTheCheckerFindsWhatIsWrong(t *testing.T) {
	lease := func(run string, token int64) linearResult { return linearResult{run: run, token: token, ttl: 30_000} }
	type did struct {
		op  linearOp
		got linearResult
	}
	for name, ops := range map[string][]did{
		"two holders": {{linearOp{verb: "acquire"}, lease("run_a", 1)}, {linearOp{verb: "acquire"}, lease("run_b", 2)}},
		"the token stands": {{linearOp{verb: "acquire"}, lease("run_a", 1)},
			{linearOp{verb: "expire"}, linearResult{answer: "queued"}}, {linearOp{verb: "acquire"}, lease("run_b", 1)}},
		"a zombie writes": {{linearOp{verb: "acquire"}, lease("run_a", 1)},
			{linearOp{verb: "expire"}, linearResult{answer: "queued"}}, {linearOp{verb: "acquire"}, lease("run_b", 2)},
			{linearOp{verb: "report", run: "run_a", token: 1}, linearResult{seq: 1}}},
		"a removed one writes": {{linearOp{verb: "acquire", agent: "a"}, lease("run_a", 1)},
			{linearOp{verb: "dismiss"}, linearResult{}},
			{linearOp{verb: "report", run: "run_a", token: 1}, linearResult{seq: 1}}},
		"a write is forgotten": {{linearOp{verb: "acquire"}, lease("run_a", 1)},
			{linearOp{verb: "report", run: "run_a", token: 1, content: "x"}, linearResult{seq: 1}},
			{linearOp{verb: "read"},
				linearResult{seen: taskView{state: "leased", token: 1, attempt: 1, run: "run_a"}}}},
	} {
		var h history
		for i, o := range ops {
			o.op.task = "task_1"
			h.ops = append(h.ops, porcupine.Operation{
				ClientId: 0,
				Input:    o.op,
				Output:   o.got,
				Call:     int64(2 * i),
				Return:   int64(2*i + 1),
			})
		}
		if porcupine.CheckOperations(linearModel, h.ops) {
			t.Errorf("%s: the history was called legal", name)
		}
		for i := range h.ops[:len(h.ops)-1] { // and legal without its last step
			if !porcupine.CheckOperations(linearModel, h.ops[:i+1]) && !strings.HasPrefix(name, "two") {
				t.Errorf("%s: step %d was called illegal", name, i)
			}
		}
	}
}
