package orchestrator_test

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/orchestrator"
)

// The verbs of the histories: each asks the engine and puts the answer into
// the terms of the specification.

func digest(parts ...string) string {
	sum := sha256.Sum256([]byte(strings.Join(parts, "\n")))
	return hex.EncodeToString(sum[:])
}

// call does an operation and writes it into the history.
func (s *arena) call(id int, e *orchestrator.Engine, op lop, by lease) lreply {
	if op.verb == "acquire" {
		op.run = "?" + ulid.Make().String() // its name if nobody hears of it
	}
	asked := time.Now()
	got := s.ask(e, op, by)
	if op.verb == "advance" {
		return s.advanced(id, op, got, asked)
	}
	s.note(id, op, got, asked, time.Now())
	if op.verb == "acquire" && got.unknown && op.key == "" {
		// The engine tries to give back what nobody will hear of.
		s.note(id, lop{verb: "undeliver", task: op.task, run: op.run}, lreply{unknown: true}, asked, time.Now())
	}
	s.letGo()
	return got
}

// letGo releases what was held back until now.
func (s *arena) letGo() {
	s.mu.Lock()
	done := s.history.calls
	s.mu.Unlock()
	s.losses.release(done)
}

// advanced writes an advance into the history: of one that was refused nothing
// may be seen on the task it would have acquired.
func (s *arena) advanced(id int, op lop, got lreply, asked time.Time) lreply {
	back, granted := time.Now(), lreply{unknown: got.unknown, run: got.run, token: got.token, ttl: got.ttl}
	completes, acquires := op.halves()
	s.note(id, completes, lreply{unknown: got.unknown, code: got.code, answer: got.answer}, asked, back)
	if got.code == "" {
		s.note(id, acquires, granted, asked, back)
	}
	if got.unknown {
		s.note(id, lop{verb: "undeliver", task: acquires.task, run: acquires.run}, lreply{unknown: true}, asked, back)
	}
	s.letGo()
	return got
}

func (s *arena) ask(e *orchestrator.Engine, op lop, by lease) lreply {
	switch op.verb {
	case "read":
		t, err := e.Task(s.ctx, op.task)
		got, fine := outcome(err)
		if fine {
			got.seen = viewOf(t)
		}
		return got
	case "clock":
		if err := s.raw.HIncrBy(s.ctx, s.prefix+"meta", "now", op.jump).Err(); err != nil {
			s.t.Error(err)
		}
		return lreply{}
	case "expire_due":
		_, err := e.ExpireDue(s.ctx, 100)
		got, _ := outcome(err)
		return got
	case "undeliver":
		got, _ := outcome(e.Undeliver(s.ctx, op.run))
		return got
	case "acquire":
		return s.acquire(e, op)
	case "dismiss":
		_, err := e.Deregister(s.ctx, operator, op.content, nil)
		got, _ := outcome(err)
		return got
	case "expire":
		return shown(e.Expire(s.ctx, operator, op.task, "because"))
	case "cancel":
		return shown(e.Cancel(s.ctx, operator, op.task, "because"))
	case "approve":
		return shown(e.Approve(s.ctx, operator, op.task, picket.Decision{Note: "fine"}))
	case "answer":
		return shown(e.Answer(s.ctx, operator, op.help, picket.AnswerRequest{Answer: picket.RawJSON(`"yes"`)}))
	}
	return s.askFenced(e, op, by)
}

// enlist registers the agent that a task's leases go to now and then. Nobody
// hears of it again, so it may be silent for as long as anybody may.
func (s *arena) enlist(role string) {
	seconds := 4_000_000
	unhealthy, dead := 2*seconds, 4*seconds
	_, err := s.clean.Register(s.ctx, operator, picket.Registration{
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

// viewOf is what the specification knows of a task. A run that nobody heard of
// has no name there.
func viewOf(t picket.Task) lview {
	v := lview{state: t.State, token: t.FencingToken, attempt: t.Attempts, failures: t.Failures}
	if len(t.Runs) > 0 {
		v.run = t.Runs[len(t.Runs)-1].RunID
	}
	if t.LastReport != nil {
		v.value, v.seq = t.LastReport.Summary, t.LastReport.Seq
	}
	return v
}

func (s *arena) acquire(e *orchestrator.Engine, op lop) lreply {
	by := operator
	if op.key != "" {
		by.Once = picket.Once{Key: op.key, Body: digest("same")}
	}
	leases, err := e.Acquire(s.ctx, by, picket.AcquireRequest{Role: op.content, AgentID: op.agent})
	got, fine := outcome(err)
	if fine && len(leases) > 0 {
		got.run, got.token, got.ttl = leases[0].RunID, leases[0].FencingToken, leases[0].LeaseTTLMs
	}
	return got
}

func shown(t picket.Task, err error) lreply {
	got, fine := outcome(err)
	if fine {
		got.answer = string(t.State)
	}
	return got
}

func (s *arena) askFenced(e *orchestrator.Engine, op lop, by lease) lreply {
	var (
		got   lreply
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
		a, err = e.Advance(s.ctx, by.held, operator,
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
	if bad, fine := outcome(err); !fine {
		return bad
	}
	if state != "" {
		got.answer = string(state)
	}
	return got
}
