package replies

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/orchestrator/proof/kit"
)

// stormClient has a role of its own, so it meets its own tasks only and knows
// every event they should have.
type stormClient struct {
	*storm
	name       string
	rnd        *rand.Rand
	keys       int
	wantEvents map[string][]string // event types by task
	wantLogs   map[string]string   // run logs, by run

	task  string
	token int64
	held  picket.LeaseCredential

	// Of one that is a registered agent.
	incarnation int64
	fallen      int
	closed      bool // the task ended in a drain
}

// once is a caller with a fresh key, to be used for one request and its
// repeats.
func (w *stormClient) once() picket.Caller {
	w.keys++
	key := fmt.Sprintf("%s-%d-", w.name, w.keys)
	return picket.Caller{
		Actor:       "key_" + w.name,
		Idempotency: picket.Idempotency{Key: key + strings.Repeat("0", 64-len(key)), Body: strings.Repeat("b", 64)},
	}
}

// expectEvent notes the event that a call has caused.
func (w *stormClient) expectEvent(kind string) {
	w.wantEvents[w.task] = append(w.wantEvents[w.task], kind)
}

// life takes one task from submission to its end.
func (w *stormClient) life() {
	spec := picket.TaskSpec{
		Title: "a task",
		Role:  w.name,
		Retry: &picket.Retry{MaxAttempts: kit.Ptr(20), BackoffSeconds: kit.Ptr(0),
			On: []picket.ExitClass{picket.ExitCrash}},
	}
	if w.rnd.IntN(2) == 0 {
		spec.Review = picket.ReviewByNone
	}
	by := w.once()
	w.task, w.token = retryUntilAnswered(w.storm, "submit",
		func() (picket.Task, error) { return w.e.Submit(w.ctx, by, spec) }).TaskID, 0
	w.made.Add(1)
	w.expectEvent(picket.EventTaskSubmitted)
	for attempt := 0; ; attempt++ {
		w.attempt()
		if w.incarnation > 0 && attempt < 3 && w.endRegistration() {
			if w.closed {
				w.closed = false
				return
			}
			continue
		}
		end := w.rnd.IntN(8)
		if attempt == 4 {
			end = 7
		}
		if w.end(end) {
			return
		}
	}
}

// attempt takes the lease and works a little under it.
func (w *stormClient) attempt() {
	by := w.once()
	leases := retryUntilAnswered(w.storm, "acquire", func() ([]picket.Lease, error) {
		return w.e.Acquire(w.ctx, by, picket.AcquireRequest{AgentID: w.name, Role: w.name, Incarnation: w.incarnation})
	})
	if len(leases) != 1 || leases[0].TaskID != w.task || leases[0].FencingToken != w.token+1 {
		w.t.Errorf("seed %d: %s acquired %+v after token %d of %s", w.seed, w.name, leases, w.token, w.task)
		runtime.Goexit()
	}
	w.token++
	w.expectEvent(picket.EventTaskLeased)
	h, err := w.sealer.OpenLeaseToken(leases[0].LeaseToken.Reveal())
	if err != nil {
		w.t.Errorf("seed %d: %v", w.seed, err)
		runtime.Goexit()
	}
	w.held = h
	retryUntilAnswered(w.storm, "get task", func() (picket.Task, error) { return w.e.HeldTask(w.ctx, h, "look") })
	if w.incarnation > 0 {
		w.sendHeartbeats()
	}
	launched := []picket.RunEvent{{Type: picket.EventRunLaunched, Containment: picket.ContainmentGroup}}
	retryUntilAnswered(w.storm, "launched",
		func() (struct{}, error) { return noResult(w.e.RunEvents(w.ctx, h, launched)) })
	w.expectEvent(picket.EventRunLaunched)
	at := int64(0)
	for i := range w.rnd.IntN(4) {
		got := retryUntilAnswered(w.storm, "report", func() (picket.Reported, error) {
			return w.e.Report(w.ctx, h, fmt.Sprint("r", i), picket.Progress{Summary: fmt.Sprint("step ", i)})
		})
		w.expectEvent(picket.EventTaskProgress)
		if want := int64(w.count(picket.EventTaskProgress)); got.Seq != want {
			w.t.Errorf("seed %d: report %d of %s got number %d", w.seed, want, w.task, got.Seq)
		}
		line := fmt.Sprintf("%s says %d\n", w.name, i)
		at = retryUntilAnswered(w.storm, "log", func() (int64, error) {
			return w.e.RunLog(w.ctx, h, picket.LogWrite{Stream: "stdout", Offset: at, Data: []byte(line)})
		})
		retryUntilAnswered(w.storm, "renew", func() (picket.Renewal, error) { return w.e.Renew(w.ctx, h) })
		w.log(line)
	}
}

func (w *stormClient) log(line string) {
	if w.wantLogs == nil {
		w.wantLogs = map[string]string{}
	}
	w.wantLogs[w.task+" "+w.held.RunID] += line
}

func (w *stormClient) count(kind string) (n int) {
	for _, k := range w.wantEvents[w.task] {
		if k == kind {
			n++
		}
	}
	return n
}

// end ends the lease in one of eight ways, and reports whether the task is
// closed.
func (w *stormClient) end(how int) (closed bool) {
	h, by := w.held, w.once()
	state := func(what, event string, call func() (picket.TaskState, error)) {
		retryUntilAnswered(w.storm, what, call)
		w.expectEvent(event)
	}
	task := func(what, event string, call func() (picket.Task, error)) {
		retryUntilAnswered(w.storm, what, call)
		w.expectEvent(event)
	}
	switch how {
	case 0, 1:
		class := []picket.ExitClass{picket.ExitReleased, picket.ExitCrash}[how]
		state("release", picket.EventLeaseReleased,
			func() (picket.TaskState, error) { return w.e.Release(w.ctx, h, picket.Exit{Class: class}) })
	case 2:
		state("fail", picket.EventLeaseFailed,
			func() (picket.TaskState, error) { return w.e.Fail(w.ctx, h, "no luck", true) })
		w.exit()
	case 3:
		task("expire", picket.EventLeaseExpired,
			func() (picket.Task, error) { return w.e.Expire(w.ctx, by, w.task, "it hangs") })
		w.exit()
	case 4:
		w.help()
	case 5:
		task("cancel", picket.EventTaskCancelled,
			func() (picket.Task, error) { return w.e.Cancel(w.ctx, by, w.task, "no need") })
		return true
	case 6:
		w.advance()
		return true
	default:
		got := retryUntilAnswered(w.storm, "complete", func() (picket.TaskState, error) {
			return w.e.Complete(w.ctx, h, picket.Completion{Output: picket.RawJSON(`"done"`)})
		})
		w.expectEvent("task." + string(got))
		w.exit()
		if got == picket.TaskReview {
			task("approve", picket.EventTaskApproved,
				func() (picket.Task, error) { return w.e.Approve(w.ctx, by, w.task, picket.Decision{Note: "good"}) })
		}
		return true
	}
	return false
}

// advance completes the task and leases another, which it cancels.
func (w *stormClient) advance() {
	h, submits, by, cancels, approves := w.held, w.once(), w.once(), w.once(), w.once()
	next := retryUntilAnswered(w.storm, "submit", func() (picket.Task, error) {
		return w.e.Submit(w.ctx, submits, picket.TaskSpec{Title: "the next", Role: w.name})
	}).TaskID
	got := retryUntilAnswered(w.storm, "advance", func() (picket.Advanced, error) {
		return w.e.Advance(w.ctx, h, by,
			picket.AdvanceRequest{
				Output:  picket.RawJSON(`"done"`),
				Acquire: picket.AcquireRequest{AgentID: w.name, Role: w.name},
			})
	})
	if len(got.Leases) != 1 || got.Leases[0].TaskID != next || got.Leases[0].FencingToken != 1 {
		w.t.Errorf("seed %d: %s advanced to %+v, not to %s", w.seed, w.name, got, next)
		runtime.Goexit()
	}
	w.expectEvent("task." + string(got.State))
	w.exit()
	if got.State == picket.TaskReview {
		retryUntilAnswered(w.storm, "approve", func() (picket.Task, error) {
			return w.e.Approve(w.ctx, approves, w.task, picket.Decision{Note: "good"})
		})
		w.expectEvent(picket.EventTaskApproved)
	}
	retryUntilAnswered(w.storm, "cancel",
		func() (picket.Task, error) { return w.e.Cancel(w.ctx, cancels, next, "enough") })
	w.made.Add(1)
	w.wantEvents[next] = []string{picket.EventTaskSubmitted, picket.EventTaskLeased, picket.EventTaskCancelled}
}

// exit is the evidence that a task waits for before it is leased again.
func (w *stormClient) exit() {
	retryUntilAnswered(w.storm, "exit", func() (struct{}, error) {
		return noResult(w.e.RunExit(w.ctx, w.held, picket.Exit{Class: picket.ExitCrash, Code: kit.Ptr(1)},
			picket.ContainmentGroup))
	})
	w.expectEvent(picket.EventRunExited)
}

// help asks a person and is one.
func (w *stormClient) help() {
	got := retryUntilAnswered(w.storm, "request help", func() (picket.HelpRequested, error) {
		return w.e.RequestHelp(w.ctx, w.held, picket.HelpRequest{Question: "which one?", Options: []string{"a", "b"}})
	})
	w.expectEvent(picket.EventTaskHandoff)
	w.exit()
	claim, answer := w.once(), w.once()
	retryUntilAnswered(w.storm, "claim",
		func() (picket.Handoff, error) { return w.e.Claim(w.ctx, claim, got.HandoffID, picket.ClaimRequest{}) })
	w.expectEvent(picket.EventHandoffClaimed)
	retryUntilAnswered(w.storm, "answer", func() (picket.Task, error) {
		return w.e.Answer(w.ctx, answer, got.HandoffID, picket.AnswerRequest{Option: kit.Ptr("a")})
	})
	w.expectEvent(picket.EventTaskAnswered)
}

// check holds what the store knows of the worker's tasks against what it did.
func (w *stormClient) check() {
	w.t.Helper()
	for id, want := range w.wantEvents {
		page, err := w.past.Events(w.ctx, picket.EventQuery{TaskID: id, Limit: 1000})
		kit.OK(w.t, err)
		var got []string
		for _, ev := range page.Events {
			if ev.Type != picket.EventWriteRefused {
				got = append(got, ev.Type)
			}
		}
		if !slices.Equal(got, want) {
			w.t.Errorf("seed %d: the events of %s are\n %v, want\n %v", w.seed, id, got, want)
		}
	}
	for ids, want := range w.wantLogs {
		task, run, _ := strings.Cut(ids, " ")
		chunk, err := w.past.Log(w.ctx, task, run, "stdout", 0, 1<<20)
		kit.OK(w.t, err)
		if string(chunk.Data) != want {
			w.t.Errorf("seed %d: the log of %s is %q, want %q", w.seed, run, chunk.Data, want)
		}
	}
}
