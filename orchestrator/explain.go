package orchestrator

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/orchestrator/store"
)

// Explain answers "why is it not running", with the commands to run next.
func (e *Engine) Explain(ctx context.Context, taskID string) (picket.Explanation, error) {
	r := e.runChecked(ctx, picket.CheckID("taskId", "task", taskID), "explain", taskID)
	var f explainResult
	r.Decode(&f.explainReply)
	f.task = r.taskOf(f.Task)
	if r.Err != nil {
		return picket.Explanation{}, r.Err
	}
	if err := e.countServingAgents(ctx, &f); err != nil {
		return picket.Explanation{}, err
	}
	return f.explain(), nil
}

// countServingAgents looks into the registry for who could take a queued task: the
// agent it is pinned to, or how many serve its lane. Agents need not register,
// so nobody being there says nothing.
func (e *Engine) countServingAgents(ctx context.Context, f *explainResult) error {
	if f.task.State != picket.TaskQueued {
		return nil
	}
	if agent, pinned := strings.CutPrefix(f.Lane, "agent:"); pinned {
		a, _, err := e.Agent(ctx, agent)
		f.attached = a.RoleID == picket.RoleAttached
		if f.pinnedTo = a.Status; errors.Is(err, picket.CodeNotFound) {
			return nil
		}
		return err
	}
	_, lane := store.SplitLane(f.Lane)
	role, _, _ := strings.Cut(lane, "|")
	page, err := e.Agents(ctx,
		picket.AgentQuery{Role: role, Statuses: []picket.AgentStatus{picket.AgentActive, picket.AgentUnhealthy}})
	var serving []string
	for _, a := range page.Agents {
		if covers(picket.AcquireRequest{AgentID: a.AgentID, Role: a.RoleID, Capabilities: a.Capabilities}, f.Lane) {
			serving = append(serving, a.AgentID)
		}
	}
	f.serving = len(serving)
	if err != nil || waitedFor(f.Waiters, f.Lane) {
		return err
	}
	f.asleep, err = e.sleepingSessions(ctx, serving, f.Lane)
	return err
}

// maxSleepingAgents bounds the agents whose sessions an explanation looks at.
const maxSleepingAgents = 3

// sleepingSession is a session of an agent that could take a task which nobody asks for.
type sleepingSession struct {
	picket.WakeDecision // what the scheduler would decide now
	plan                picket.WakePlan
	due                 bool // the scheduler wakes it in its next cycle
	// seen is true if the task waited already when the session was woken last, and no other work has come since.
	seen bool
}

// sleepingSessions says why sessions of the first of these agents are not woken now, one of each agent. lane is that
// of the task.
func (e *Engine) sleepingSessions(ctx context.Context, agents []string, lane string) (asleep []sleepingSession,
	err error) {
	for _, id := range agents[:min(len(agents), maxSleepingAgents)] {
		page, err := e.AgentSessions(ctx, picket.AgentSessionQuery{AgentID: id, Limit: 1})
		if err != nil {
			return nil, err
		}
		for _, s := range page.Sessions {
			if s.AgentName == "" {
				continue
			}
			f, err := e.wakeFacts(ctx, s.AgentName, s.SessionID, true)
			if err != nil {
				return nil, err
			}
			if f.Row != nil {
				asleep = append(asleep, e.sleepingSession(f, lane))
			}
		}
	}
	return asleep, nil
}

func (e *Engine) sleepingSession(f wakeFacts, lane string) sleepingSession {
	w := wake{e: e, name: f.name, source: picket.WakeSourceScheduler, unmetered: e.store.cfg.Unmetered[f.name]}
	_, counted := f.Lanes[lane]
	return sleepingSession{
		WakeDecision: w.decide(f, picket.Instant(f.Raw)),
		plan:         f.plan(w.unmetered),
		due:          f.schedule().Due(picket.Instant(f.Raw)),
		seen: counted && store.LaneAgent(lane) == "" && f.Last != 0 && !f.UnderWay && f.Context != "" &&
			f.Context == f.contextNow(),
	}
}

// explainReply is what the script explain answers. Times are ms.
type explainReply struct {
	Task    taskView `reply:"task"`
	Tick    int64    `reply:"tick"`    // the last one
	Delayed int64    `reply:"delayed"` // until
	Lane    string   `reply:"lane"`
	KeptFor string   `reply:"kept_for"` // retry, answer or instance, where the lane is that of the agent it is kept for
	Ahead   int64    `reply:"ahead"`    // better tasks in the lane
	Paused  string   `reply:"paused"`
	Call    struct { // a tool that still acts outside, and until when at the latest
		Tool string `reply:"tool"`
		Ends int64  `reply:"ends"`
	} `reply:"call"`
	CancelledWith string   `reply:"cancelled_with"` // the task above that was cancelled
	Waiters       []string `reply:"waiters"`
}

// explainResult is all that an explanation is made of.
type explainResult struct {
	explainReply
	task     picket.Task
	pinnedTo picket.AgentStatus // of the agent it is pinned to; "" when that is not registered
	attached bool               // that agent is the worker of a `picket run`
	serving  int                // registered agents that could take it
	asleep   []sleepingSession  // of these agents
}

func (f explainResult) explain() picket.Explanation {
	x := explanation{picket.Explanation{
		State:   f.task.State,
		Because: []string{},
		Reasons: []picket.Reason{},
		Next:    []string{},
	}}
	if f.Task.Raw-f.Tick > 5000 {
		x.say(picket.ReasonNoReaper, "no reaper is running: store time stands still, leases do not expire and delayed tasks do not move")
		x.next("picket serve reaper")
	}
	switch f.task.State {
	case picket.TaskQueued:
		f.explainQueued(&x)
	case picket.TaskLeased:
		run := f.task.CurrentRun
		x.sayUntil(f.task.LeaseExpiresAt, picket.ReasonRunning, "it is running: %s holds it under token %d, until %s unless renewed", run.RunID, f.task.FencingToken,
			f.task.LeaseExpiresAt)
		x.next("picket task watch %s", f.task.TaskID)
	case picket.TaskReview:
		x.say(picket.ReasonInReview, "it is done and waits for a review")
		x.next("picket review approve %s", f.task.TaskID)
		x.next("picket review reject %s --note …", f.task.TaskID)
	case picket.TaskHandoff:
		x.say(picket.ReasonInHandoff, "it waits for a person: %s", f.task.Handoff.Question)
		x.next("picket handoff show %s", f.task.Handoff.HandoffID)
		if f.task.Handoff.Kind == picket.HandoffEscalation {
			x.next("picket task retry %s", f.task.TaskID)
		} else {
			if f.task.Handoff.Kind == picket.HandoffBudget {
				x.next("picket budget top-up %s --usd …", f.task.TaskID) // this also answers the hand-off
			} else {
				x.next("picket handoff answer %s …", f.task.Handoff.HandoffID)
			}
		}
	default:
		x.say(picket.ReasonEnded, "it is %s and will not run again", f.task.State)
		if f.task.Reason != "" {
			x.say(picket.ReasonGiven, "reason: %s", f.task.Reason)
		}
		if f.task.State != picket.TaskCompleted {
			x.next("picket task retry %s", f.task.TaskID)
		}
	}
	return x.Explanation
}

// explainSleep says why sessions of agents that could take the task are not woken for it.
func (f explainResult) explainSleep(x *explanation) {
	for _, s := range f.asleep {
		switch s.Reason {
		case picket.WakeReasonSent, picket.WakeReasonCoalesced, picket.WakeReasonRateLimited:
			if s.seen {
				x.sayWoken(s)
				continue
			}
		}
		x.sayAsleep(s)
	}
}

// sayWoken is about a session that was woken for the work that waits now.
func (x *explanation) sayWoken(s sleepingSession) {
	until, next := picket.Instant(0), "it is woken again when something else comes for it"
	if s.plan.NextAt != nil && !s.plan.OnlyIfChanged {
		until, next = *s.plan.NextAt, "it is woken again at "+s.plan.NextAt.String()+" at the earliest"
	}
	x.sayUntil(until, picket.ReasonSessionAsleep,
		"session %s of %s was woken at %s, when the task waited already, and has not taken it; %s", s.SessionID,
		s.AgentName, s.plan.LastAt, next)
	x.next("picket agent heartbeat wake %s --session %s", s.AgentName, s.SessionID)
}

// sayAsleep is about a session that was not woken for the work that waits now.
func (x *explanation) sayAsleep(s sleepingSession) {
	switch {
	case s.Result == picket.WakeResultSent && s.due:
		x.say(picket.ReasonSessionAsleep, "session %s of %s is idle; the scheduler wakes it within a minute",
			s.SessionID, s.AgentName)
		return
	case s.Result == picket.WakeResultSent:
		x.say(picket.ReasonSessionAsleep, "session %s of %s is idle; the scheduler does not wake it for this task",
			s.SessionID, s.AgentName)
		x.next("picket agent heartbeat wake %s --session %s", s.AgentName, s.SessionID)
		return
	}
	until := picket.Instant(0)
	if s.NextAllowedAt != nil {
		until = *s.NextAllowedAt
	}
	why := string(s.Reason)
	if s.Shortage != nil {
		why += ": " + s.Shortage.Message + ". " + s.Shortage.Remedy
	}
	x.sayUntil(until, picket.ReasonSessionAsleep, "session %s of %s is not woken for it: %s", s.SessionID,
		s.AgentName, why)
	if s.Reason == picket.WakeReasonNoPolicy {
		x.next("picket agent heartbeat write %s --file HEARTBEAT.md", s.AgentName)
	} else {
		x.next("picket agent heartbeat wake %s --session %s --dry-run", s.AgentName, s.SessionID)
	}
}

// explanation is an explanation that is being written.
type explanation struct{ picket.Explanation }

func (x *explanation) say(code picket.ReasonCode, format string, args ...any) {
	x.sayUntil(0, code, format, args...)
}

func (x *explanation) sayUntil(until picket.Instant, code picket.ReasonCode, format string, args ...any) {
	r := picket.Reason{Code: code, Text: fmt.Sprintf(format, args...), Until: until}
	x.Reasons, x.Because = append(x.Reasons, r), append(x.Because, r.Text)
}

// next adds a command that a person can run.
func (x *explanation) next(format string, args ...any) {
	x.Next = append(x.Next, fmt.Sprintf(format, args...))
}

func (f explainResult) explainQueued(x *explanation) {
	if f.CancelledWith != "" {
		x.say(picket.ReasonCancelledAbove, "it was cancelled with %s, which is being written down", f.CancelledWith)
		return
	}
	if f.Paused != "" {
		x.say(picket.ReasonPaused, "the namespace is paused: nothing is granted")
		x.next("picket resume")
		return
	}
	delayedUntil := picket.Instant(f.Task.Raw + f.Delayed - f.Task.Now)
	if f.Delayed > f.Task.Now && f.Task.Record["at"] == "" {
		left := (time.Duration(f.Delayed-f.Task.Now) * time.Millisecond).Round(time.Second)
		if f.Call.Tool != "" {
			x.sayUntil(picket.Instant(f.Task.Raw+f.Call.Ends-f.Task.Now), picket.ReasonCallUnderWay, "it waits for the call %s of the lease before, which may still act outside, until %s at the latest",
				f.Call.Tool, picket.Instant(f.Task.Raw+f.Call.Ends-f.Task.Now))
		}
		switch {
		case f.Task.Record["gate"] != "":
			x.sayUntil(delayedUntil, picket.ReasonAwaitingExit, "the process of %s has not reported its exit; the task waits for it, at most %s", f.Task.Record["gate"], left)
		case f.task.NotBefore.Time().UnixMilli() > f.Task.Raw:
			x.sayUntil(delayedUntil, picket.ReasonNotBefore, "it is not to start before %s (%s from now)", f.task.NotBefore, left)
		case f.Call.Tool == "" || f.Delayed > f.Call.Ends:
			x.sayUntil(delayedUntil, picket.ReasonBackoff, "it waits %s before the next attempt (failure %d)", left, f.task.Failures)
		}
		return
	}
	switch {
	case f.Ahead == 1:
		x.say(picket.ReasonTasksAhead, "one task is ahead of it in its lane")
	case f.Ahead > 1:
		x.say(picket.ReasonTasksAhead, "%d tasks are ahead of it in its lane", f.Ahead)
	}
	agent, pinned := strings.CutPrefix(f.Lane, "agent:")
	switch {
	case pinned && f.KeptFor == "instance":
		x.say(picket.ReasonKeptForAgent, "it is kept for agent %s, to which its client has sent it, as long as that agent takes "+
			"tasks", agent)
	case pinned && f.task.Agent == "":
		left := (time.Duration(f.Delayed-f.Task.Now) * time.Millisecond).Round(time.Second)
		because := "asked for the answer"
		if f.KeptFor == "retry" {
			because = "has the workspace of its last run"
		}
		x.sayUntil(delayedUntil, picket.ReasonKeptForAgent, "it is kept for agent %s, which %s; in %s any worker may take it", agent,
			because, max(left, 0))
	case pinned:
		x.say(picket.ReasonPinned, "it is pinned to agent %s", agent)
	}
	if waitedFor(f.Waiters, f.Lane) {
		x.say(picket.ReasonAgentWaiting, "an agent is waiting for this lane: it will start at once")
		return
	}
	x.say(picket.ReasonNobodyWaiting, "nobody is waiting on this lane (%s)", describeLane(f.Lane))
	f.explainSleep(x)
	if agent := store.LaneAgent(f.Lane); agent != "" && f.task.Parent != nil {
		x.say(picket.ReasonAgentAboveBusy, "agent %s, which runs the parent task, asks for no more work now: it is gone, or its slots are taken, maybe by tasks that wait for their own subtasks", agent)
	}
	switch {
	case f.pinnedTo.Gone() && f.attached:
		x.say(picket.ReasonPinnedAgentGone, "agent %s was the worker of a `picket run` that has ended: no worker takes the task until you start one", agent)
		x.next("picket adapter --agent-id %s --pinned-only --for-task %s -- COMMAND", agent, f.task.TaskID)
		return
	case f.pinnedTo.Gone():
		x.say(picket.ReasonPinnedAgentGone, "agent %s is %s, until it registers again", agent, f.pinnedTo)
	case f.pinnedTo != "":
		x.say(picket.ReasonPinnedAgentIdle, "agent %s is registered and %s", agent, f.pinnedTo)
	case f.serving == 1:
		x.say(picket.ReasonAgentsIdle, "one registered agent could take it, but does not ask for work now")
	case f.serving > 1:
		x.say(picket.ReasonAgentsIdle, "%d registered agents could take it, but none asks for work now", f.serving)
	case !pinned:
		x.say(picket.ReasonNoAgent, "no registered agent serves this lane: it waits until one is started")
	}
	if pinned {
		x.next("picket adapter --agent-id %s --pinned-only -- COMMAND", agent)
		return
	}
	_, lane := store.SplitLane(f.Lane)
	role, needs, _ := strings.Cut(lane, "|")
	command := "picket adapter"
	if role != "" {
		command += " --role " + role
	}
	for need := range strings.SplitSeq(needs, ",") {
		if need != "" {
			command += " --capability " + need
		}
	}
	x.next("%s -- COMMAND", command)
}

func describeLane(lane string) string {
	if agent, ok := strings.CutPrefix(lane, "agent:"); ok {
		return "agent " + agent
	}
	agent, lane := store.SplitLane(lane)
	if agent != "" {
		agent = "agent " + agent + ", or "
	}
	role, needs, _ := strings.Cut(lane, "|")
	if role == "" {
		role = "any"
	}
	if needs == "" {
		return agent + "role " + role
	}
	return agent + "role " + role + ", needs " + needs
}
