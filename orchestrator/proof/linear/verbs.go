package linear

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/orchestrator"
	"github.com/picket-dev/picket/orchestrator/proof/kit"
)

// The verbs of the histories: each asks the engine and puts the answer into
// the terms of the specification.

func requestKey(parts ...string) string {
	sum := sha256.Sum256([]byte(strings.Join(parts, "\n")))
	return hex.EncodeToString(sum[:])
}

// call does an operation and writes it into the history.
func (s *historyRecorder) call(id int, e *orchestrator.Engine, op linearOp, by grantedLease) linearResult {
	if op.verb == "acquire" {
		op.run = "?" + ulid.Make().String() // its name if its answer is lost
	}
	asked := time.Now()
	got := s.execute(e, op, by)
	if op.verb == "advance" {
		return s.advanced(id, op, got, asked)
	}
	s.addOperation(id, op, got, asked, time.Now())
	if op.verb == "acquire" && got.unknown && op.key == "" {
		// The engine tries to give back leases whose answer was lost.
		s.addOperation(id, linearOp{verb: "undeliver", task: op.task, run: op.run}, linearResult{unknown: true}, asked,
			time.Now())
	}
	s.releaseHeld()
	return got
}

// releaseHeld releases what was held back until now.
func (s *historyRecorder) releaseHeld() {
	s.mu.Lock()
	done := s.history.calls
	s.mu.Unlock()
	s.losses.release(done)
}

// advanced writes an advance into the history: of one that was refused nothing
// may be seen on the task it would have acquired.
func (s *historyRecorder) advanced(id int, op linearOp, got linearResult, asked time.Time) linearResult {
	back, granted := time.Now(), linearResult{unknown: got.unknown, run: got.run, token: got.token, ttl: got.ttl}
	completes, acquires := op.split()
	s.addOperation(id, completes, linearResult{unknown: got.unknown, code: got.code, answer: got.answer}, asked, back)
	if got.code == "" {
		s.addOperation(id, acquires, granted, asked, back)
	}
	if got.unknown {
		s.addOperation(id, linearOp{verb: "undeliver", task: acquires.task, run: acquires.run},
			linearResult{unknown: true}, asked, back)
	}
	s.releaseHeld()
	return got
}

func (s *historyRecorder) execute(e *orchestrator.Engine, op linearOp, by grantedLease) linearResult {
	switch op.verb {
	case "read":
		t, err := e.Task(s.ctx, op.task)
		got, fine := classifyError(err)
		if fine {
			got.seen = viewOf(t)
		}
		return got
	case "clock":
		if err := s.raw.HIncrBy(s.ctx, s.prefix+"meta", "now", op.jump).Err(); err != nil {
			s.t.Error(err)
		}
		return linearResult{}
	case "expire_due":
		_, err := e.ExpireDue(s.ctx, 100)
		got, _ := classifyError(err)
		return got
	case "undeliver":
		got, _ := classifyError(e.Undeliver(s.ctx, op.run))
		return got
	case "acquire":
		return s.acquire(e, op)
	case "dismiss":
		_, err := e.Deregister(s.ctx, kit.Operator, op.content, nil)
		got, _ := classifyError(err)
		return got
	case "expire":
		return shownResult(e.Expire(s.ctx, kit.Operator, op.task, "because"))
	case "cancel":
		return shownResult(e.Cancel(s.ctx, kit.Operator, op.task, "because"))
	case "approve":
		return shownResult(e.Approve(s.ctx, kit.Operator, op.task, picket.Decision{Note: "fine"}))
	case "answer":
		return shownResult(e.Answer(s.ctx, kit.Operator, op.help,
			picket.AnswerRequest{Answer: picket.RawJSON(`"yes"`)}))
	}
	return s.executeFenced(e, op, by)
}

// registerAgent registers the agent that a task's leases go to now and then. It never returns, so
// it may be silent for as long as an agent can be.
func (s *historyRecorder) registerAgent(role string) {
	seconds := 4_000_000
	unhealthy, dead := 2*seconds, 4*seconds
	_, err := s.clean.Register(s.ctx, kit.Operator, picket.Registration{
		AgentID: role,
		RoleID:  role,
		Heartbeat: &picket.Thresholds{
			IntervalSeconds:       &seconds,
			UnhealthyAfterSeconds: &unhealthy,
			DeadAfterSeconds:      &dead,
		},
	})
	if err != nil {
		s.t.Error(err)
	}
}

// viewOf is what the specification knows of a task. A run whose answer was lost has no name there.
func viewOf(t picket.Task) taskView {
	v := taskView{state: t.State, token: t.FencingToken, attempt: t.Attempts, failures: t.Failures}
	if len(t.Runs) > 0 {
		v.run = t.Runs[len(t.Runs)-1].RunID
	}
	if t.LastReport != nil {
		v.value, v.seq = t.LastReport.Summary, t.LastReport.Seq
	}
	return v
}

func (s *historyRecorder) acquire(e *orchestrator.Engine, op linearOp) linearResult {
	by := kit.Operator
	if op.key != "" {
		by.Idempotency = picket.Idempotency{Key: op.key, Body: requestKey("same")}
	}
	leases, err := e.Acquire(s.ctx, by, picket.AcquireRequest{Role: op.content, AgentID: op.agent})
	got, fine := classifyError(err)
	if fine && len(leases) > 0 {
		got.run, got.token, got.ttl = leases[0].RunID, leases[0].FencingToken, leases[0].LeaseTTLMs
	}
	return got
}

func shownResult(t picket.Task, err error) linearResult {
	got, fine := classifyError(err)
	if fine {
		got.answer = string(t.State)
	}
	return got
}

func (s *historyRecorder) executeFenced(e *orchestrator.Engine, op linearOp, by grantedLease) linearResult {
	var (
		got   linearResult
		state picket.TaskState
		err   error
	)
	switch op.verb {
	case "renew":
		var r picket.Renewal
		r, err = e.Renew(s.ctx, by.held)
		got.token, got.ttl = r.FencingToken, r.LeaseTTLMs
	case "report":
		var r picket.Reported
		r, err = e.Report(s.ctx, by.held, op.key, picket.Progress{Summary: op.content})
		got.seq = r.Seq
	case "complete":
		state, err = e.Complete(s.ctx, by.held, picket.Completion{Output: picket.RawJSON(`"` + op.content + `"`)})
	case "advance":
		var a picket.Advanced
		a, err = e.Advance(s.ctx, by.held, kit.Operator,
			picket.AdvanceRequest{Output: picket.RawJSON(`"` + op.content + `"`),
				Acquire: picket.AcquireRequest{Role: op.next.role}})
		if state = a.State; len(a.Leases) > 0 {
			got.run, got.token, got.ttl = a.Leases[0].RunID, a.Leases[0].FencingToken, a.Leases[0].LeaseTTLMs
		}
	case "fail":
		state, err = e.Fail(s.ctx, by.held, "cannot", op.content == "again")
	case "release":
		state, err = e.Release(s.ctx, by.held, picket.Exit{Class: picket.ExitClass(op.content)})
	case "help":
		var r picket.HelpRequested
		r, err = e.RequestHelp(s.ctx, by.held, picket.HelpRequest{Question: op.content})
		got.answer = r.HandoffID
	default:
		panic("no verb " + op.verb)
	}
	if bad, fine := classifyError(err); !fine {
		return bad
	}
	if state != "" {
		got.answer = string(state)
	}
	return got
}
