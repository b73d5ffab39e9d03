package model

import (
	"crypto/sha256"
	"encoding/hex"
	stdjson "encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/orchestrator/proof/kit"
)

// The moves of the model test: each draws a verb's arguments, asks the engine
// and the model, and compares what they answer.

// once draws whether a request can be repeated and, if so, one of few keys.
func (x *machine) once(verb string) (requestID, picket.Caller) {
	caller := picket.Caller{Actor: oneOf(x, "actor", "key_a", "key_b")}
	if !x.chance("once", 30) {
		return requestID{}, caller
	}
	digest := func(s string) string {
		sum := sha256.Sum256([]byte(s))
		return hex.EncodeToString(sum[:])
	}
	key := digest(fmt.Sprint(verb, x.below(3, "key")))
	body := digest("0")
	if x.chance("other body", 15) {
		body = digest("1")
	}
	caller.Idempotency = picket.Idempotency{Key: key, Body: body}
	return requestID{key, body}, caller
}

func (x *machine) spec() (picket.TaskSpec, modelSpec, int64) {
	s := picket.TaskSpec{Title: "a task"}
	switch x.below(6, "lane") {
	case 3:
		s.Role = "coder"
	case 4:
		s.Role, s.Needs = "coder", []string{"py", "go"}
	case 5:
		s.Agent = "a1"
	}
	s.Priority = kit.Ptr(oneOf(x, "priority", 5, 0, 9))
	s.LeaseWindowSeconds = seconds(oneOf(x, "window", 2, 1, 4))
	s.Retry = &picket.Retry{
		MaxAttempts:    kit.Ptr(oneOf(x, "attempts", 3, 1, 8, 8)),
		BackoffSeconds: seconds(oneOf(x, "backoff", 1, 0, 2, 30)),
	}
	if x.chance("retry on", 60) {
		s.Retry.On = []picket.ExitClass{picket.ExitCrash, picket.ExitTimeout}
	}
	if x.chance("fails", 40) {
		s.Escalate = picket.EscalateFail
	}
	if x.chance("unreviewed", 30) {
		s.Review = picket.ReviewByNone
	}
	ready := int64(0)
	if n := oneOf(x, "not before", 0, 0, 0, 1, 3); n > 0 {
		ready = x.m.now + int64(n*kit.HalfMinute)
		s.NotBefore = picket.InstantOf(time.Now().Add(time.Duration(n*kit.HalfMinute) * time.Millisecond))
	}
	if x.chance("not before is past", 5) {
		ready, s.NotBefore = 0, picket.InstantOf(time.Now().Add(-time.Hour))
	}
	if x.chance("label", 30) {
		s.Labels = map[string]string{"team": oneOf(x, "team", "a", "b"), "other": "a"}
	}
	s.Assignee = oneOf(x, "assignee", "", "ada", "ben")
	m := modelSpec{
		lane:        s.Role + "|",
		role:        s.Role,
		team:        s.Labels["team"],
		assignee:    s.Assignee,
		priority:    *s.Priority,
		window:      int64(*s.LeaseWindowSeconds) * 1000,
		backoff:     int64(*s.Retry.BackoffSeconds) * 1000,
		maxAttempts: *s.Retry.MaxAttempts,
		retryOn:     s.Retry.On,
		fails:       s.Escalate == picket.EscalateFail,
		unreviewed:  s.Review == picket.ReviewByNone,
	}
	m.envelope = x.amount("envelope")
	s.BudgetEnvelope = &m.envelope
	if len(s.Needs) > 0 {
		m.lane = "coder|go,py"
	}
	if s.Agent != "" {
		m.lane = "agent:" + s.Agent
	}
	return s, m, ready
}

func (x *machine) submit() {
	o, by := x.once("submit")
	s, ms, ready := x.spec()
	switch {
	case x.chance("fixes", 10):
		s.Fixes = x.pick("fixes", x.m.ids, kit.NoTask)
	case x.chance("client", 30):
		if x.chance("own key", 30) {
			by.Actor = x.clientKey()
		}
		x.asClient(by.Actor, &s, &ms, 40)
	}
	x.submitBy(o, by, s, ms, ready)
}

// submitLasting submits a task that is tried again at once after any failure,
// under leases that outlive an agent's silence.
func (x *machine) submitLasting() {
	granted := x.amount("envelope")
	s := picket.TaskSpec{
		Title:              "a lasting task",
		Priority:           kit.Ptr(0),
		LeaseWindowSeconds: seconds(4),
		BudgetEnvelope:     &granted,
		Retry:              &picket.Retry{MaxAttempts: kit.Ptr(8), BackoffSeconds: kit.Ptr(0)},
	}
	x.submitBy(requestID{}, picket.Caller{Actor: "key_a"}, s,
		modelSpec{lane: "|", window: 4 * kit.HalfMinute, maxAttempts: 8, envelope: granted}, 0)
}

func (x *machine) submitBy(o requestID, by picket.Caller, s picket.TaskSpec, ms modelSpec, ready int64) {
	got, err := x.e.Submit(x.ctx, by, s)
	id, code := x.m.submit(o, got.TaskID, ms, ready, s.Fixes)
	if x.agree(err, code, "submit") {
		x.same("submit", got.TaskID, id)
		x.same("submit", got.State, x.m.tasks[id].state)
	}
}

// checkRemaining compares what remains of a lease: time that the machine lost is gone.
func (x *machine) checkRemaining(what string, got, want int64) {
	x.Helper()
	if got > want || got <= want-kit.HalfMinute {
		x.Fatalf("%s is %d ms, want %d", what, got, want)
	}
}

// holder draws a credential: mostly of a run that lives, often of one that has
// ended, now and then one that was tampered with.
func (x *machine) holder() (picket.LeaseCredential, modelCredential) { return x.holderOf(isRunning) }

func (x *machine) holderOf(fits func(*modelRun) bool) (picket.LeaseCredential, modelCredential) {
	rid := x.pick("run", x.someRuns(fits), kit.NoRun)
	h, known := x.held[rid]
	if !known {
		h = picket.LeaseCredential{
			Namespace: x.e.Namespace(),
			TaskID:    kit.NoTask,
			RunID:     rid,
			Secret:    x.sealer.Fingerprint(x.e.Namespace(), rid),
		}
	}
	mh := modelCredential{task: h.TaskID, run: rid}
	switch x.below(25, "tamper") {
	case 24:
		h.Secret, mh.forged = strings.Repeat("0", 64), true
	case 23:
		h.TaskID = x.pick("other task", x.m.ids, kit.NoTask)
		mh.task = h.TaskID
	}
	if known && x.chance("shows token", 20) {
		mh.fence = oneOf(x, "token", x.m.runs[rid].token, x.m.runs[rid].tokens[0], 1, 2, 3,
			x.m.tasks[x.m.runs[rid].task].token)
		h.Fence = mh.fence
	}
	return h, mh
}

// refused sometimes tells the engine of a refused write, as a proxy does: not
// so often of one run that the engine would begin to count instead of writing.
func (x *machine) refused(h picket.LeaseCredential, err error, verb string) {
	if refusal, ok := err.(*picket.Error); ok && refusal.Code.Fenced() && x.refusals[h.RunID] < 19 &&
		x.chance("tell", 30) {
		x.refusals[h.RunID]++
		x.e.RecordRefusedWrite(x.ctx, h, verb, refusal)
		// It is about the run's own task, whatever task was presented; that of
		// an unknown run is about none.
		about := ""
		if r := x.m.runs[h.RunID]; r != nil {
			about = r.task
		}
		x.m.emit(picket.EventWriteRefused, about)
	}
}

func (x *machine) renew() { x.renewAs(x.holder()) }

func (x *machine) getTask() {
	h, mh := x.holder()
	x.getTaskBy(h, mh, oneOf(x, "look", "", "g1"))
}

// report sends up to three reports in a row: only so do they share a memory.
func (x *machine) report() {
	h, mh := x.holder()
	for range 1 + x.below(3, "reports") {
		x.reportBy(h, mh)
	}
}

func (x *machine) reportBy(h picket.LeaseCredential, mh modelCredential) {
	request := oneOf(x, "request", "", "r1", "r2")
	text := oneOf(x, "summary", "half way", "there")
	x.callsAs(h, mh, func(h picket.LeaseCredential, mh modelCredential) {
		got, err := x.e.Report(x.ctx, h, request, picket.Progress{Summary: text})
		seq, nudge, code := x.m.report(mh, request, text)
		if x.agree(err, code, "report %+v", mh) {
			x.same("report", got.Seq, seq)
			x.nudged("report", got.Nudge, nudge)
		}
		x.refused(h, err, "report_progress")
	})
}

func (x *machine) checkClosing(h picket.LeaseCredential, got, want string, err error, code picket.Code, verb string) {
	x.Helper()
	if x.agree(err, code, "%s by %s", verb, h.RunID) {
		x.same(verb, got, want)
	}
	x.refused(h, err, verb)
}

func (x *machine) complete() {
	output, how := oneOf(x, "output", `"done"`, `{"n":1}`),
		oneOf(x, "children", "", picket.ChildrenDetach, picket.ChildrenCancel)
	x.calls(func(h picket.LeaseCredential, mh modelCredential) {
		got, err := x.e.Complete(x.ctx, h, picket.Completion{Output: stdjson.RawMessage(output), Children: how})
		want, code := x.m.complete(mh, output+string(how), how)
		x.checkClosing(h, string(got), want, err, code, "complete")
	})
}

func (x *machine) fail() {
	retryable := x.chance("retryable", 70)
	x.calls(func(h picket.LeaseCredential, mh modelCredential) {
		got, err := x.e.Fail(x.ctx, h, "cannot", retryable)
		want, code := x.m.fail(mh, "cannot", retryable)
		x.checkClosing(h, string(got), want, err, code, "fail")
	})
}

func (x *machine) release() {
	class := oneOf(x, "class", picket.ReleaseClasses...)
	exit := x.below(2, "code")
	x.calls(func(h picket.LeaseCredential, mh modelCredential) {
		got, err := x.e.Release(x.ctx, h, picket.Exit{Class: class, Code: &exit})
		want, code := x.m.release(mh, class, fmt.Sprint(exit))
		x.checkClosing(h, string(got), want, err, code, "release")
	})
}

func (x *machine) requestHelp() {
	req := picket.HelpRequest{
		Question:   "which?",
		Kind:       oneOf(x, "kind", picket.HandoffQuestion, picket.HandoffApproval, picket.HandoffBudget),
		OnDeadline: picket.OnDeadlineWait,
	}
	wait := int64(0)
	if n := x.below(3, "deadline"); n > 0 {
		req.DeadlineSeconds, wait = seconds(n), int64(n*kit.HalfMinute)
		req.OnDeadline = oneOf(x, "policy", picket.OnDeadlineDeny, picket.OnDeadlineEscalate, picket.OnDeadlineWait)
	}
	x.calls(func(h picket.LeaseCredential, mh modelCredential) {
		got, err := x.e.RequestHelp(x.ctx, h, req)
		want, code := x.m.requestHelp(mh, req.Kind, req.Question, wait, req.OnDeadline)
		x.checkClosing(h, got.HandoffID, want, err, code, "request_help")
	})
}

// madeCall is a fenced call that may come again.
type madeCall struct {
	h    picket.LeaseCredential
	mh   modelCredential
	verb func(picket.LeaseCredential, modelCredential)
}

// calls makes a fenced call and remembers it.
func (x *machine) calls(verb func(picket.LeaseCredential, modelCredential)) {
	h, mh := x.holder()
	x.callsAs(h, mh, verb)
}

func (x *machine) callsAs(h picket.LeaseCredential, mh modelCredential,
	verb func(picket.LeaseCredential, modelCredential)) {
	verb(h, mh)
	x.made = append(x.made, madeCall{h, mh, verb})
	x.made = x.made[max(0, len(x.made)-4):]
}

// again repeats one of the last calls as it was, or under a forged credential:
// replies get lost, and requests overtake one another.
func (x *machine) again() {
	if len(x.made) == 0 {
		return
	}
	c := x.made[len(x.made)-1-x.below(len(x.made), "call")]
	if x.chance("forged", 25) {
		c.h.Secret, c.mh.forged = strings.Repeat("0", 64), true
	}
	c.verb(c.h, c.mh)
}

func (x *machine) launched() {
	x.launchedBy(x.holderOf(func(r *modelRun) bool { return isRunning(r) && !r.launched }))
}

func (x *machine) launchedBy(h picket.LeaseCredential, mh modelCredential) {
	err := x.e.RunEvents(x.ctx, h,
		[]picket.RunEvent{{Type: picket.EventRunLaunched, Containment: picket.ContainmentGroup}})
	x.agree(err, x.m.launched(mh), "run.launched %+v", mh)
}

func (x *machine) runExit() {
	x.exitBy(x.holderOf(mayExit))
}

func (x *machine) exitBy(h picket.LeaseCredential, mh modelCredential) {
	exit := x.below(2, "code")
	err := x.e.RunExit(x.ctx, h, picket.Exit{Class: picket.ExitKilled, Code: &exit}, picket.ContainmentGroup)
	x.agree(err, x.m.runExit(mh, fmt.Sprint(exit)), "run exit %+v", mh)
}

// freshID stands for an id that the engine makes when it refuses to.
func freshID() string { return "task_" + ulid.Make().String() }
