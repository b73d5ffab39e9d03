//go:build unix

package adaptertest

import (
	"os"
	"slices"
	"sync/atomic"
	"time"

	"github.com/picket-dev/picket"
)

// scriptWaiting is an agent that ends with code 0 when something is written into its
// FIFO.
const scriptWaiting = `echo $$ > $1; read x < $1; exit 0`

// RegistryRules are the names of the rules that only an adapter that registers
// can keep, for Conform to leave out: registration is optional. The others have
// to be started with the [Server.Thresholds] of the check.
func RegistryRules() (names []string) {
	for _, r := range agentRules() {
		names = append(names, r.Name)
	}
	return names
}

// agentRules are about the adapter as a registered agent.
func agentRules() []Rule {
	return []Rule{
		{"registers before it asks for work", "its death would be noticed only when its leases end", registersFirst},
		{"registers once although the reply is lost", "it would wait for its own death", registersOnce},
		{"beats in time", "it would be taken for dead", heartbeatsInTime},
		{"says what it holds", "work would go on that nobody knows of", reportsHeldTasks},
		{"obeys a drain", "a machine could not be emptied", obeysDrain},
		{"drains when it is told to end", "each restart would cost the work under way", drainsOnTerm},
		{"obeys stop_task, and reports it", "an operator's stop button would stop nothing", obeysStopTask},
		{"stops its work before it registers again", "two agents would work on one task",
			func(b *ruleCheck) { reregisters(b, b.s.Kill) }},
		{"comes back to a registry that has lost it", "a lost store would cost every worker",
			func(b *ruleCheck) { reregisters(b, func(string) { b.s.ForgetAgents() }) }},
		{"ends its work when its heartbeats are not answered", "two agents would work on one task", endsInSilence},
		{"stays away when an operator has removed it", "an operator could remove nobody", staysDeregistered},
	}
}

// awaitAgent waits until the server has seen of the agent what is wanted.
func (b *ruleCheck) awaitAgent(what string, ok func(AgentView) bool) AgentView {
	v, err := b.s.AwaitAgent(b.ctx, "", ok)
	if err != nil {
		b.fatalf("not seen in time: %s; the agent has registered %d times, its heartbeats are %+v", what,
			len(v.Registrations), v.Heartbeats)
	}
	return v
}

func isRegistered(v AgentView) bool { return len(v.Registrations) > 0 }

func (b *ruleCheck) id() string { return b.awaitAgent("a registration", isRegistered).Record.AgentID }

// frequentHeartbeats asks for the most frequent heartbeats, and for thresholds that a slow
// machine keeps.
var frequentHeartbeats = picket.HeartbeatConfig{IntervalSeconds: 1, UnhealthyAfterSeconds: 30, DeadAfterSeconds: 60}

func registersFirst(b *ruleCheck) {
	id := b.run(Task{}, scriptWithChild)
	b.agentPIDs()
	calls := b.s.Calls("")
	first := func(path string) int { return slices.IndexFunc(calls, func(c Call) bool { return c.Path == path }) }
	if at := first("/api/v1/agents"); at < 0 || at > first("/api/v1/leases") {
		b.errorf("it asked for work before it registered")
	}
	if v := b.awaitAgent("a registration", isRegistered); v.Record.AgentID == "" || b.s.holder(id) != v.Record.AgentID {
		b.errorf("it registered as %q and leases as %q", v.Record.AgentID, b.s.holder(id))
	}
}

// holder is the registered agent that holds a task.
func (s *Server) holder(taskID string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if l := s.tasks[taskID].current(); l != nil {
		return l.agent
	}
	return ""
}

func registersOnce(b *ruleCheck) {
	b.s.Fail("/api/v1/agents", DropReply, 1)
	b.run(Task{}, scriptWithChild)
	b.agentPIDs()
	if v := b.awaitAgent("a registration", isRegistered); len(v.Registrations) != 1 ||
		v.Record.Status != picket.AgentActive {
		b.errorf("it registered %d times and is %s", len(v.Registrations), v.Record.Status)
	}
}

func heartbeatsInTime(b *ruleCheck) {
	b.s.Thresholds = frequentHeartbeats
	b.run(Task{}, scriptWithChild)
	b.agentPIDs()
	v := b.awaitAgent("heartbeats", func(v AgentView) bool { return len(v.Heartbeats) >= 3 })
	if slices.Contains(v.Transitions, picket.ReasonHeartbeatTimeout) {
		b.errorf("it was silent for so long that it counted as %v", v.Transitions)
	}
	if took := v.Heartbeats[2].At.Sub(v.Registrations[0].At); took < time.Second {
		b.errorf("three heartbeats in %s, with an interval of %d s", took, v.Record.Heartbeat.IntervalSeconds)
	}
}

func reportsHeldTasks(b *ruleCheck) {
	b.s.Thresholds = frequentHeartbeats
	id := b.run(Task{}, scriptWithChild)
	b.agentPIDs()
	v := b.awaitAgent("a heartbeat with the task and a load of 1", func(v AgentView) bool {
		return slices.ContainsFunc(v.Heartbeats, func(hb HeartbeatView) bool {
			return slices.Equal(hb.TasksInProgress, []string{id}) && hb.CurrentLoad != nil && *hb.CurrentLoad == 1
		})
	})
	if n := v.Heartbeats[len(v.Heartbeats)-1].Incarnation; n != v.Record.Incarnation {
		b.errorf("its heartbeats are of incarnation %d, not %d", n, v.Record.Incarnation)
	}
}

func isDraining(v AgentView) bool { return v.Record.Status == picket.AgentDraining }

// expectDrained lets the agent of a drain end, and sees the adapter leave.
func (b *ruleCheck) expectDrained(id string, pids []int) {
	late := b.queue(Task{})
	if !alive(pids[0]) {
		b.errorf("the drain has ended what was running")
	}
	f, err := os.OpenFile(b.fifo, os.O_WRONLY, 0)
	if err != nil {
		b.fatalf("the agent cannot be told: %v", err)
	}
	f.WriteString("go\n")
	f.Close()
	if v := b.await(id, "the result",
		func(v View) bool { return v.State != picket.TaskLeased }); v.State != picket.TaskReview {
		b.errorf("the task that was running is %s", v.State)
	}
	b.awaitAgent("that it left", func(v AgentView) bool { return v.Record.Status == picket.AgentDeregistered })
	if v := b.s.View(late); v.Token != 0 {
		b.errorf("it took another task")
	}
}

func obeysDrain(b *ruleCheck) {
	b.s.Thresholds = frequentHeartbeats
	id := b.run(Task{OnExit: picket.OnExitComplete}, scriptWaiting)
	pids := b.agentPIDs()
	b.s.CommandAgent(b.id(), picket.AgentCommand{Command: picket.CommandDrain, Reason: "maintenance"})
	b.awaitAgent("the drain", isDraining)
	b.expectDrained(id, pids)
}

func drainsOnTerm(b *ruleCheck) {
	id := b.run(Task{OnExit: picket.OnExitComplete}, scriptWaiting)
	pids := b.agentPIDs()
	b.end()
	b.awaitAgent("the drain", isDraining)
	b.expectDrained(id, pids)
}

func obeysStopTask(b *ruleCheck) {
	b.s.Thresholds = frequentHeartbeats
	id := b.run(Task{}, scriptIgnoringTERM)
	pids := b.agentPIDs()
	b.s.Pause(true)
	agent := b.id()
	b.s.CommandAgent(agent, picket.AgentCommand{Command: picket.CommandStopTask, TaskID: id, Reason: "enough"})
	v := b.await(id, "how the process ended", func(v View) bool { return releasesLease(v) || reportsEvidence(v) })
	b.expectDead(pids)
	if e := v.Runs[0].Released; e != nil && e.Class != picket.ExitReleased {
		b.errorf("released with class %s, want released", e.Class)
	}
	b.awaitAgent("that it handled the command", func(AgentView) bool { return len(b.s.Pending(agent)) == 0 })
}

func reregisters(b *ruleCheck, lose func(agentID string)) {
	b.s.Thresholds = frequentHeartbeats
	var running atomic.Pointer[[]int]
	var survivors atomic.Int32
	b.s.OnRegister = func(picket.Registration) {
		if pids := running.Load(); pids != nil {
			survivors.Add(int32(len(slices.DeleteFunc(slices.Clone(*pids), func(pid int) bool { return !alive(pid) }))))
		}
	}
	b.run(Task{Retries: 1}, scriptIgnoringTERM)
	pids := b.agentPIDs()
	running.Store(&pids)
	before := b.awaitAgent("a registration", isRegistered).Record
	b.s.Pause(true)
	restore := b.s.Fail("/v1/lease/watch", Hang, -1) // only the registry reports it
	lose(before.AgentID)
	again := b.awaitAgent("that it registers again",
		func(v AgentView) bool { return v.Record.Incarnation > before.Incarnation })
	running.Store(nil)
	if n := survivors.Load(); n > 0 {
		b.errorf("%d processes ran when it registered again", n)
	}
	restore()
	b.s.Pause(false)
	b.agentPIDs()
	last := again.Registrations[len(again.Registrations)-1]
	for _, asked := range b.s.AgentView("").Acquires {
		if asked.At.After(last.At) && asked.Incarnation != 0 && asked.Incarnation != last.Incarnation {
			b.errorf("it asked under incarnation %d when it was %d", asked.Incarnation, last.Incarnation)
		}
	}
}

func endsInSilence(b *ruleCheck) {
	b.s.Thresholds = picket.HeartbeatConfig{IntervalSeconds: 1, UnhealthyAfterSeconds: 2, DeadAfterSeconds: 4}
	b.run(Task{}, scriptIgnoringTERM)
	pids := b.agentPIDs()
	id := b.id()
	b.s.mu.Lock()
	b.s.paused = true
	a := b.s.agents[id]
	end := a.beatAt.Add(time.Duration(a.record.Heartbeat.DeadAfterSeconds) * time.Second) // known to both sides
	b.s.fail("/api/", Hang, -1)
	b.s.mu.Unlock()
	if time.Until(end) > time.Minute {
		b.fatalf("it did not register with the thresholds of the check")
	}
	select {
	case <-time.After(time.Until(end)): // what is tested is a deadline
	case <-b.ctx.Done():
	}
	b.expectDead(pids)
}

func staysDeregistered(b *ruleCheck) {
	b.s.Thresholds = frequentHeartbeats
	b.mayFail = true
	b.run(Task{}, scriptIgnoringTERM)
	pids := b.agentPIDs()
	id := b.id()
	b.s.Pause(true)
	b.s.Deregister(id)
	select {
	case <-b.ended:
	case <-b.ctx.Done():
		b.fatalf("it did not end")
	}
	b.expectDead(pids)
	if n := len(b.s.AgentView(id).Registrations); n != 1 {
		b.errorf("it registered %d times", n)
	}
}
