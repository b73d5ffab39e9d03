package replies

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/internal/rig"
	"github.com/picket-dev/picket/orchestrator/proof/calls"
	"github.com/picket-dev/picket/orchestrator/proof/kit"
)

// The matrix bites: with each of the guards against a second effect taken out
// of the scripts, at least one of its cells is not as it should be.
func TestLostRepliesFindPlantedBugsReal(t *testing.T) {
	s, files := rig.Real(t), kit.LuaTexts(t)
	const never = "\n  if true then return nil end\n"
	forgets := kit.MarkedLine{"finds-request", "local function find_request(key, body)" + never}
	everyEventIsNew := kit.MarkedLine{"event-again", "local again = false"}
	for _, b := range []struct {
		of   string
		line kit.MarkedLine
	}{
		{"submit", forgets},
		{"grant", forgets},
		{"answer", forgets},
		{"pause", forgets},
		{"review/fix", kit.MarkedLine{"remembers-request", ""}},
		{"complete", kit.MarkedLine{"repeats-answer",
			"local function repeated_answer(tid, rid, secret, verb, hash)" + never}},
		{"release/crash", kit.MarkedLine{"closed-release", "put(r, 'other', 'release:' .. ARGV[5] .. ' ' .. state)"}},
		{"report", kit.MarkedLine{"same-report", "if false then"}},
		{"run_log", kit.MarkedLine{"fresh-output", "local fresh = data"}},
		{"run_exit", kit.MarkedLine{"same-exit", ""}},
		{"run_events", everyEventIsNew},
		{"run_events/timed", everyEventIsNew},
		{"run_events/stalled", everyEventIsNew},
		{"report/nudged", kit.MarkedLine{"repeats-nudge", "return named{ seq = seq }"}},
		{"undeliver", kit.MarkedLine{"undelivered-only", "if r.task and r.confirmed == '0' then"}},
		{"key_create/known", kit.MarkedLine{"known-key", ""}},
		{"key_revoke", kit.MarkedLine{"revokes-once", "if true then"}},
		{"reclaim", kit.MarkedLine{"reclaims-once", "if true then"}},
		{"adopt", kit.MarkedLine{"adopt-lost", ""}},
		{"webhook_advance/failed", kit.MarkedLine{"same-step", ""}},
		{"webhook_claim", kit.MarkedLine{"claims-again", "local id"}},
	} {
		t.Run(b.of+" "+b.line[0], func(t *testing.T) {
			i := slices.IndexFunc(calls.All(), func(c calls.Case) bool { return c.Name == b.of })
			c := calls.All()[i]
			changes, err := kit.PlantMarked(files, b.line)
			kit.OK(t, err)
			planted := false
			p := calls.Setup{T: t, Store: s, Bug: func(source string) string {
				planted = planted || strings.Contains(source, changes[0].Old)
				return changes.Apply(source)
			}}
			seen := slices.ContainsFunc(calls.Faults,
				func(m calls.Fault) bool { return runWithFault(p, c, m) != p.Baseline(c, c.ExpectedSteps(m)) })
			if !planted || !seen {
				t.Errorf("the bug was planted: %v, and seen: %v", planted, seen)
			}
		})
	}
}

// A grant that nobody can ask for again is given back as soon as its reply is
// lost, and the task is leased again with the next token. A grant whose
// request was lost has nothing to give back. Nobody counts a failure.
func TestALostGrantWithoutAKeyIsGivenBackReal(t *testing.T) {
	s := rig.Real(t)
	for _, c := range []struct {
		calls.Fault
		token int64 // of the next lease
	}{
		{calls.Faults[0], 1}, {calls.Faults[1], 2}, {calls.Faults[2], 2},
	} {
		for _, noBatch := range []bool{false, true} {
			t.Run(c.Name+batching(noBatch), func(t *testing.T) {
				w := calls.Setup{T: t, Store: s, NoBatch: noBatch}.NewEnv()
				defer w.Close()
				w.Submitted(picket.TaskSpec{})
				hit := w.FaultNext(c.Kind, "grant")
				done := make(chan struct{})
				go func() { defer close(done); w.TimeOutCall(c.Fault, hit) }()
				_, err := w.Via.Acquire(w.Ctx, kit.Operator, picket.AcquireRequest{AgentID: "a1"})
				<-done
				kit.Refused(t, err, picket.CodeUnavailable)
				hit.Release()
				w.Await(hit.Over(), "the end of the fault")
				task, err := w.Direct.Task(w.Ctx, w.Task.TaskID)
				kit.OK(t, err)
				if task.State != picket.TaskQueued || task.Failures != 0 || task.Attempts != int(c.token)-1 {
					t.Errorf("after the lost grant the task is %s with %d failures and %d attempts", task.State,
						task.Failures, task.Attempts)
				}
				for _, run := range task.Runs {
					if run.Exit == nil || run.Exit.Class != picket.ExitUndelivered {
						t.Errorf("the lost run ended as %+v", run.Exit)
					}
				}
				leases, err := w.Via.Acquire(w.Ctx, kit.Operator, picket.AcquireRequest{AgentID: "a1"})
				kit.OK(t, err)
				if len(leases) != 1 || leases[0].TaskID != w.Task.TaskID || leases[0].FencingToken != c.token {
					t.Errorf("leased again: %+v, want token %d", leases, c.token)
				}
			})
		}
	}
}

// A grant that arrives after it was given up is nobody's: its first deadline
// ends it, as undelivered.
func TestALateGrantEndsByItsFirstDeadlineReal(t *testing.T) {
	w := calls.Setup{T: t, Store: rig.Real(t)}.NewEnv()
	defer w.Close()
	w.Submitted(picket.TaskSpec{})
	hit := w.FaultNext(rig.HoldRequest, "grant")
	go hit.GiveUp()
	_, err := w.Via.Acquire(w.Ctx, kit.Operator, picket.AcquireRequest{AgentID: "a1"})
	kit.Refused(t, err, picket.CodeUnavailable)
	hit.Release()
	w.Await(hit.Over(), "the late grant")
	for _, want := range []picket.TaskState{picket.TaskLeased, picket.TaskQueued} {
		task, err := w.Direct.Task(w.Ctx, w.Task.TaskID)
		kit.OK(t, err)
		if task.State != want || task.Failures != 0 {
			t.Fatalf("the task is %s with %d failures, want %s", task.State, task.Failures, want)
		}
		w.JumpStoreTime(30 * time.Second)
		_, err = w.Direct.ExpireDue(w.Ctx, 100)
		kit.OK(t, err)
	}
	leases, err := w.Direct.Acquire(w.Ctx, kit.Operator, picket.AcquireRequest{AgentID: "a1"})
	kit.OK(t, err)
	if len(leases) != 1 || leases[0].FencingToken != 2 || leases[0].PreviousExit.Class != picket.ExitUndelivered {
		t.Errorf("leased again: %+v", leases)
	}
}

func batching(off bool) string {
	if off {
		return ", plain"
	}
	return ", with batches"
}
