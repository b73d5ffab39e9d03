package linear

import (
	"fmt"
	"strings"

	"github.com/oklog/ulid/v2"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/orchestrator/proof/kit"
)

// The sequential specification that histories are held against: one task, its
// lease and its register, whose value is the last report. It is a plain value,
// so porcupine compares states with ==.

// linearOp is an operation as a client asked for it. One on no task, such as the
// reaper's, happened to every task.
type linearOp struct {
	verb    string
	task    string
	run     string // the lease it presents
	token   int64  // and the token that lease was granted with
	key     string // of a request that can be repeated
	content string
	help    string
	jump    int64    // ms
	next    nextTask // of an advance: what it acquires
	agent   string   // that acquires: the registered one, "" for one that is not
}

// nextTask is a task and the role that nobody but it asks for.
type nextTask struct {
	task string
	role string
}

// split are an advance as two operations that happened at the same time, each
// on a task of its own.
func (op linearOp) split() (completes, acquires linearOp) {
	completes, acquires = op,
		linearOp{verb: "acquire", task: op.next.task, content: op.next.role, run: "?" + ulid.Make().String()}
	completes.verb, completes.next = "complete", nextTask{}
	return completes, acquires
}

// linearResult is what the client was told. A lost one is unknown: the operation took
// effect at any time after it was asked for, or never.
type linearResult struct {
	unknown bool
	code    picket.Code
	run     string // granted; "" for none
	token   int64
	ttl     int64
	answer  string // of a closing verb, or the state of the task shown
	seq     int64
	seen    taskView
}

// taskView is what a read shows of a task.
type taskView struct {
	state    picket.TaskState
	token    int64
	seq      int64
	attempt  int
	failures int
	run      string
	value    string
}

type linearTask struct {
	taskView
	now       int64
	deadline  int64
	confirmed bool
	ended     picket.RunState // of the last run, "" while it runs
	by        string          // the acquire that granted it
	help      string          // the open hand-off
	escalated bool            // which is the engine's own
	member    bool            // whether the registered agent holds it
	gone      bool            // whether that was deregistered
	// until when an answered task is kept for the registered agent, which asked; no longer when that is gone
	kept    int64
	granted string // "key=run " of every acquire that can be repeated
	closed  string // "run verb content=answer " of every run that closed its lease
	told    string // "run request content=seq " of every report that can be repeated
}

// What every task of a history is made with.
const (
	linearWindow   = 120_000 // ms
	linearAttempts = 5
)

func newLinearTask() linearTask { return linearTask{taskView: taskView{state: picket.TaskQueued}} }

// step applies an operation. An unknown one is legal in any state; what it did
// there, if anything, the operations after it show.
func (t linearTask) step(op linearOp, got linearResult) (linearTask, bool) {
	want := t.apply(op, got)
	if got.unknown {
		return t, true
	}
	if want.ttl > 0 { // what the machine took to answer is gone
		if got.ttl > want.ttl || got.ttl <= want.ttl-kit.HalfMinute {
			return t, false
		}
		want.ttl = got.ttl
	}
	return t, want == got
}

// apply changes the task and says what the operation has to answer.
func (t *linearTask) apply(op linearOp, got linearResult) linearResult {
	switch op.verb {
	case "read":
		t.name(got.seen.run)
		return linearResult{seen: t.taskView}
	case "clock":
		t.now += op.jump
	case "expire_due":
		t.expireDue()
	case "acquire":
		return t.acquire(op, got)
	case "undeliver":
		if t.state == picket.TaskLeased && (t.run == op.run || t.by == op.run) && !t.confirmed {
			t.end(picket.RunExpired)
			t.state = picket.TaskQueued
		}
	case "dismiss":
		t.gone, t.kept = true, 0
		if t.state == picket.TaskLeased && t.member {
			t.end(picket.RunExpired)
			t.state = picket.TaskQueued
		}
	case "expire", "cancel", "approve":
		return t.operate(op.verb)
	case "answer":
		return t.answer(op.help)
	default:
		return t.fenced(op)
	}
	return linearResult{}
}

func find(record, key string) (value string, ok bool) {
	_, rest, ok := strings.Cut(" "+record, " "+key+"=")
	value, _, _ = strings.Cut(rest, " ")
	return value, ok
}

// name gives the run of an acquire whose reply was lost its name: until it is
// shown for the first time it is called after the acquire.
func (t *linearTask) name(run string) {
	if t.run == t.by && run != "" {
		t.granted = strings.Replace(t.granted, "="+t.run+" ", "="+run+" ", 1)
		t.run = run
	}
}

func (t *linearTask) acquire(op linearOp, got linearResult) linearResult {
	if was, again := find(t.granted, op.key); op.key != "" && again {
		if t.state != picket.TaskLeased || t.run != was || t.now >= t.deadline {
			return linearResult{code: picket.CodeLeaseExpired}
		}
		t.name(got.run)
		return linearResult{run: t.run, token: t.token, ttl: t.deadline - t.now}
	}
	if op.agent != "" && t.gone {
		return linearResult{code: picket.CodeAgentGone}
	}
	if t.state != picket.TaskQueued {
		return linearResult{}
	}
	if t.now < t.kept && op.agent == "" {
		return linearResult{}
	}
	t.member, t.kept = op.agent != "", 0
	t.token++
	t.attempt++
	t.state, t.run, t.by, t.ended, t.confirmed = picket.TaskLeased, op.run, op.run, "", false
	if !got.unknown {
		t.run = got.run
	}
	if op.key != "" {
		t.granted += op.key + "=" + t.run + " "
	}
	t.deadline = t.now + min(linearWindow, 30_000)
	return linearResult{run: t.run, token: t.token, ttl: t.deadline - t.now}
}

func (t *linearTask) end(how picket.RunState) {
	t.ended, t.deadline = how, 0
}

func (t *linearTask) expireDue() {
	if t.state != picket.TaskLeased || t.now < t.deadline {
		return
	}
	t.end(picket.RunExpired)
	t.state = picket.TaskQueued
	if t.confirmed { // a lease that nobody received is nobody's failure
		t.failed(true)
	}
}

// failed counts a failure and decides the next state of the task.
func (t *linearTask) failed(again bool) {
	t.failures++
	t.state = picket.TaskQueued
	if !again || t.failures >= linearAttempts {
		t.park(true)
	}
}

func (t *linearTask) park(escalated bool) {
	t.state, t.escalated = picket.TaskHandoff, escalated
	t.help = "handoff_" + strings.TrimPrefix(t.run, "run_")
}

func (t *linearTask) operate(verb string) linearResult {
	need := map[string]picket.TaskState{
		"expire":  picket.TaskLeased,
		"approve": picket.TaskReview,
		"cancel":  t.state,
	}[verb]
	switch {
	case t.state.Terminal():
		return linearResult{code: picket.CodeTaskClosed}
	case t.state != need:
		return linearResult{code: picket.CodeStateConflict}
	case verb == "expire":
		t.end(picket.RunExpired)
		t.state = picket.TaskQueued
	case verb == "approve":
		t.state = picket.TaskCompleted
	default:
		if t.state == picket.TaskLeased {
			t.end(picket.RunCancelled)
		}
		t.state, t.help = picket.TaskCancelled, ""
	}
	return linearResult{answer: string(t.state)}
}

func (t *linearTask) answer(help string) linearResult {
	switch {
	case t.state.Terminal():
		return linearResult{code: picket.CodeTaskClosed}
	case t.help != help:
		return linearResult{code: picket.CodeStateConflict}
	}
	if t.escalated {
		t.failures = 0
	} else if t.member && !t.gone {
		t.kept = t.now + 60_000
	}
	t.state, t.help = picket.TaskQueued, ""
	return linearResult{answer: string(t.state)}
}

// fenced runs a verb of the lease's own holder.
func (t *linearTask) fenced(op linearOp) linearResult {
	call := op.run + "/" + op.verb + "/" + op.content
	if was, again := find(t.closed, call); again {
		return linearResult{answer: was}
	}
	if code := t.refuses(op); code != "" {
		return linearResult{code: code}
	}
	if op.verb == "report" {
		return t.report(op)
	}
	switch op.verb {
	case "renew":
		t.confirmed, t.deadline = true, max(t.deadline, t.now+linearWindow)
		return linearResult{token: t.token, ttl: t.deadline - t.now}
	case "complete":
		t.end(picket.RunCompleted)
		t.state = picket.TaskReview
	case "release":
		t.end(picket.RunReleased)
		t.state = picket.TaskQueued
		if op.content == string(picket.ExitCrash) {
			t.failed(true)
		}
	case "fail":
		t.end(picket.RunFailed)
		t.failed(op.content == "again")
	case "help":
		t.end(picket.RunReleased)
		t.park(false)
	default:
		panic("no verb " + op.verb)
	}
	answer := string(t.state)
	if op.verb == "help" {
		answer = t.help
	}
	t.closed += call + "=" + answer + " "
	return linearResult{answer: answer}
}

// refuses is the one definition of "still holds".
func (t *linearTask) refuses(op linearOp) picket.Code {
	switch {
	case t.state == picket.TaskCancelled:
		return picket.CodeTaskCancelled
	case op.token < t.token:
		return picket.CodeStaleFence
	case t.ended == picket.RunExpired:
		return picket.CodeLeaseExpired
	case t.state != picket.TaskLeased:
		return picket.CodeLeaseReleased
	case t.now >= t.deadline:
		return picket.CodeLeaseExpired
	}
	return ""
}

func (t *linearTask) report(op linearOp) linearResult {
	if op.key != "" {
		if was, again := find(t.told, op.run+"/"+op.key); again {
			content, seq, _ := strings.Cut(was, "@")
			if content != op.content {
				return linearResult{code: picket.CodeIdempotencyConflict}
			}
			var n int64
			_, _ = fmt.Sscan(seq, &n)
			return linearResult{seq: n}
		}
	}
	if !t.confirmed { // the first call starts the window, a report does not extend it
		t.confirmed, t.deadline = true, max(t.deadline, t.now+linearWindow)
	}
	if t.seq, t.value = t.seq+1, op.content; op.key != "" {
		t.told += fmt.Sprintf("%s/%s=%s@%d ", op.run, op.key, op.content, t.seq)
	}
	return linearResult{seq: t.seq}
}
