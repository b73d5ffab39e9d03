package linear

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"sort"
	"strings"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/internal/rig"
	"github.com/picket-dev/picket/orchestrator/proof/kit"
)

// Linearizability: what eight clients of two processes saw, while replies and
// requests were lost, has to be what one task after the other could have
// answered. The checker is porcupine.

// verbMix says which verbs a history is made of, by weight.
type verbMix struct {
	name  string
	tasks int
	verbs map[string]int
}

var verbMixes = []verbMix{
	// A fenced register: only the holder writes, anybody reads.
	{"register", 2, map[string]int{
		"acquire":  8,
		"report":   20,
		"read":     10,
		"renew":    3,
		"expire":   3,
		"complete": 1,
		"approve":  1,
	}},
	// The life of a lease: every way it begins, goes on and ends.
	{"lease", 4, map[string]int{
		"acquire":    14,
		"renew":      6,
		"report":     5,
		"release":    3,
		"fail":       2,
		"help":       3,
		"answer":     4,
		"complete":   2,
		"advance":    3,
		"approve":    2,
		"expire":     2,
		"expire_due": 2,
		"clock":      2,
		"dismiss":    2,
		"cancel":     1,
		"undeliver":  1,
		"read":       4,
	}},
}

// checkTime bounds one history. A history that cannot be decided in it proves nothing.
const checkTime = 30 * time.Second

// givenSeed is rapid's seed from the command line, or a fresh one.
func givenSeed(t *testing.T) uint64 {
	t.Helper()
	if kit.GivenFlags()["rapid.seed"] {
		return kit.NewRapidFlags(t).Seed
	}
	return rig.Seed(t)
}

// linearCounts counts what a history held.
type linearCounts struct {
	calls   int
	unknown int
	refused int
	leases  int
	took    time.Duration
	checked time.Duration
}

func (s *linearCounts) add(h linearCounts) {
	s.calls, s.unknown, s.refused, s.leases = s.calls+h.calls, s.unknown+h.unknown, s.refused+h.refused,
		s.leases+h.leases
	s.took, s.checked = max(s.took, h.took), max(s.checked, h.checked)
}

// history is what the clients saw.
type history struct {
	linearCounts
	tasks []string
	ops   []porcupine.Operation
}

var linearModel = porcupine.Model{
	Partition: byTask,
	Init:      func() any { return newLinearTask() },
	Step: func(state, input, output any) (bool, any) {
		next, legal := state.(linearTask).step(input.(linearOp), output.(linearResult))
		return legal, next
	},
	DescribeOperation: func(input, output any) string {
		op, got := input.(linearOp), output.(linearResult)
		if got.unknown {
			return fmt.Sprintf("%s %s: unknown", op.verb, op.run)
		}
		return fmt.Sprintf("%s %s: %s", op.verb,
			nonZero(op.run, op.agent, op.token, op.key, op.content, op.help, op.jump),
			nonZero(got.code, got.run, got.token, got.ttl, got.answer, got.seq, got.seen))
	},
	DescribeState: func(state any) string { return fmt.Sprintf("%+v", state) },
}

// nonZero prints what is not empty.
func nonZero(all ...any) string {
	var out []string
	for _, v := range all {
		if !reflect.ValueOf(v).IsZero() {
			out = append(out, fmt.Sprint(v))
		}
	}
	return strings.Join(out, " ")
}

// byTask gives every task its own operations and those that touch all tasks.
// Tasks share nothing, so a history is linearizable if each part is.
func byTask(all []porcupine.Operation) [][]porcupine.Operation {
	parts, names := map[string][]porcupine.Operation{}, []string{}
	for _, o := range all {
		if task := o.Input.(linearOp).task; task != "" && parts[task] == nil {
			parts[task] = []porcupine.Operation{}
			names = append(names, task)
		}
	}
	for _, o := range all {
		if task := o.Input.(linearOp).task; task != "" {
			parts[task] = append(parts[task], o)
			continue
		}
		for _, name := range names {
			parts[name] = append(parts[name], o)
		}
	}
	out := make([][]porcupine.Operation, 0, len(names))
	for _, name := range names {
		out = append(out, boundUnknown(parts[name]))
	}
	return out
}

// boundUnknown ends the operations of unknown outcome where they cannot have an
// effect any more: those of a lease when a reply shows a higher token, all when
// one shows that the task is closed. At such a point each of them may be put
// in, as doing nothing, so no order is gained or lost; but the checker would
// try them everywhere.
func boundUnknown(part []porcupine.Operation) []porcupine.Operation {
	closed := int64(noReturn)
	for _, o := range part {
		got := o.Output.(linearResult)
		if !got.unknown && (picket.TaskState(got.answer).Terminal() || got.seen.state.Terminal() ||
			got.code == picket.CodeTaskClosed || got.code == picket.CodeTaskCancelled) {
			closed = min(closed, o.Return)
		}
	}
	out := part[:0:0]
	for _, o := range part {
		op := o.Input.(linearOp)
		if !o.Output.(linearResult).unknown {
			out = append(out, o)
			continue
		}
		o.Return = max(o.Call, closed)
		for _, later := range part {
			got := later.Output.(linearResult)
			if op.token > 0 && !got.unknown && max(got.token, got.seen.token) > op.token {
				o.Return = min(o.Return, max(o.Call, later.Return))
			}
		}
		if op.verb != "read" {
			out = append(out, o)
		}
	}
	return out
}

// check says what is wrong with a history, "" for nothing, and whether the checker could
// decide it in time.
func (h *history) check() (bad string, decided bool) {
	start := time.Now()
	result, info := porcupine.CheckOperationsVerbose(linearModel, h.ops, checkTime)
	h.checked = time.Since(start)
	if result == porcupine.Ok {
		return "", true
	}
	where := "nowhere: it could not be written"
	if dir, err := os.MkdirTemp("", "picket-linear-"); err == nil {
		where = filepath.Join(dir, "history.html")
		if err := errors.Join(porcupine.VisualizePath(linearModel, info, where),
			h.write(filepath.Join(dir, "history.txt"))); err != nil {
			where = "nowhere: " + err.Error()
		}
	}
	if h.checked >= checkTime {
		result = porcupine.Unknown
	}
	text, _ := os.ReadFile(filepath.Join(filepath.Dir(where), "history.txt")) // "" if it could not be written
	return fmt.Sprintf("porcupine says %s after %v; the picture is in %s\n%s", result, h.checked, where, text),
		result != porcupine.Unknown
}

// write lists the operations on the tasks whose part is illegal, as they were
// asked for, up to the first reply that no order explains.
func (h *history) write(path string) error {
	var out strings.Builder
	for _, part := range byTask(h.ops) {
		if isLinearizable(part) {
			continue
		}
		at := slices.SortedFunc(slices.Values(part),
			func(a, b porcupine.Operation) int { return cmp.Compare(a.Return, b.Return) })
		n := sort.Search(len(at), func(i int) bool { return !isLinearizable(historyUntil(part, at[i].Return)) })
		for _, o := range historyUntil(part, at[min(n, len(at)-1)].Return) {
			fmt.Fprintf(&out, "client %d, %d to %d us: %s\n", o.ClientId, o.Call/1000, o.Return/1000,
				linearModel.DescribeOperation(o.Input, o.Output))
		}
		out.WriteString("\n")
	}
	return os.WriteFile(path, []byte(out.String()), 0o600)
}

func isLinearizable(ops []porcupine.Operation) bool {
	return porcupine.CheckOperationsTimeout(linearModel, ops, checkTime) == porcupine.Ok
}

// historyUntil is what was known of a history at a point of time: what was still
// under way is unknown.
func historyUntil(ops []porcupine.Operation, end int64) []porcupine.Operation {
	var out []porcupine.Operation
	for _, o := range ops {
		if o.Call > end {
			continue
		}
		if o.Return > end {
			o.Return, o.Output = noReturn, linearResult{unknown: true}
		}
		out = append(out, o)
	}
	slices.SortStableFunc(out, func(a, b porcupine.Operation) int { return cmp.Compare(a.Call, b.Call) })
	return out
}

// Hunt looks for a planted bug in so many histories. One that cannot be
// decided in time finds nothing.
func Hunt(t *testing.T, store rig.Store, bug *kit.ScriptPatch, seed uint64, rounds int) kit.Verdict {
	for i := range rounds {
		h := recordHistory(t, store, verbMixes[i%len(verbMixes)], seed+uint64(i), bug)
		start := time.Now()
		if porcupine.CheckOperationsTimeout(linearModel, h.ops, checkTime/6) == porcupine.Illegal &&
			time.Since(start) < checkTime/6 {
			return kit.Verdict{Found: true, Rounds: i + 1, Said: "illegal"}
		}
	}
	return kit.Verdict{Rounds: rounds}
}

// noReturn is the end of an operation whose reply was lost.
const noReturn = math.MaxInt64 / 2
