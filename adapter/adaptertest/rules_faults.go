//go:build unix

package adaptertest

import (
	"time"

	"github.com/picket-dev/picket"
)

// shortWindow is the window of leases that end during a check.
const shortWindow = 2 * time.Second

// faultRules are about leases that are lost, servers that are away and
// answers that do not arrive.
func faultRules() []Rule {
	return []Rule{
		{"kills the tree of a cancelled task", "work would go on that nobody wants",
			func(b *ruleCheck) { killsTree(b, b.s.Cancel) }},
		{"kills the tree of a superseded lease", "two agents would work on one task",
			func(b *ruleCheck) { killsTree(b, func(id string) { b.s.Supersede(id) }) }},
		{"kills the tree of a lease that ended while it slept", "an agent would go on after a suspend",
			func(b *ruleCheck) { killsTree(b, func(string) { b.s.AdvanceClock(time.Hour) }) }},
		{"reclaims its lease in an adopted store", "a restart of the store would cost every run", reclaims},
		{"kills the tree of a lease it cannot reclaim", "two agents would work on one task",
			func(b *ruleCheck) { killsTree(b, func(id string) { b.s.Adopt(); b.s.Expire(id) }) }},
		{"is done with a tree before the lease ends, in a storm of 503", "two agents would work on one task",
			func(b *ruleCheck) { killsInTime(b, Unavailable) }},
		{"is done with a tree before the lease ends, cut off", "two agents would work on one task",
			func(b *ruleCheck) { killsInTime(b, Hang) }},
		{"is done with a tree before the lease ends, without replies", "two agents would work on one task",
			func(b *ruleCheck) { killsInTime(b, HangReply) }},
		{"goes on after a partition", "each outage would cost a worker", resumesAfterPartition},
		{"keeps its agent through a reply that is lost", "each hiccup would cost a run",
			func(b *ruleCheck) { survivesFault(b, DropReply) }},
		{"keeps its agent through a server that is away for a moment", "each restart of a server would cost every run",
			func(b *ruleCheck) { survivesFault(b, Unavailable) }},
		{"asks again with the same key when an acquire's reply is lost", "the lease would wait for its end",
			acquiresOnce},
		{"backs off from a server that is away", "a server that comes back would be pushed over again", backsOff},
		{"releases once although the reply is lost", "a failure would be counted twice, or never", releasesOnce},
		{"completes once although request and reply are lost", "a result would be lost", completesOnce},
	}
}

func killsTree(b *ruleCheck, end func(id string)) {
	id := b.run(Task{}, scriptWithChild)
	pids := b.agentPIDs()
	b.s.Pause(true)
	end(id)
	b.await(id, "how the process ended", reportsEvidence)
	b.expectDead(pids)
}

func killsInTime(b *ruleCheck, kind Fault) {
	id := b.run(Task{Window: shortWindow}, scriptWithChild)
	pids := b.agentPIDs()
	b.s.Pause(true)
	b.s.mu.Lock()
	end := b.s.tasks[id].runs[0].deadline // known to both sides: nothing is renewed any more
	b.s.fail("/v1/", kind, -1)
	b.s.mu.Unlock()
	select {
	case <-time.After(time.Until(end)): // what is tested is a deadline
	case <-b.ctx.Done():
	}
	b.expectDead(pids)
}

func resumesAfterPartition(b *ruleCheck) {
	id := b.run(Task{Window: shortWindow}, scriptWithChild)
	pids := b.agentPIDs()
	b.s.Pause(true)
	restore := b.s.Fail("/", Hang, -1)
	gone := func(View) bool { return !alive(pids[0]) && !alive(pids[1]) }
	for !gone(View{}) {
		select {
		case <-time.After(20 * time.Millisecond): // nothing signals the death of a stranger's child
		case <-b.ctx.Done():
			b.fatalf("cut off, it does not end its agent")
		}
	}
	restore()
	b.await(id, "how the process ended", func(v View) bool { return reportsEvidence(v) || releasesLease(v) })
	b.s.Pause(false)
	b.await(b.queue(Task{}), "its next task", func(v View) bool { return v.State == picket.TaskLeased })
	b.agentPIDs()
}

// expectRenewals sees the lease renewed n times more while the agent lives.
func (b *ruleCheck) expectRenewals(id string, pids []int, n int) View {
	renewed := b.s.View(id).Runs[0].Renewals
	v := b.await(id, "renewals",
		func(v View) bool { return v.Runs[0].Renewals >= renewed+n || v.State != picket.TaskLeased })
	if v.State != picket.TaskLeased || !alive(pids[0]) {
		b.errorf("the agent was ended: the task is %s", v.State)
	}
	return v
}

func survivesFault(b *ruleCheck, kind Fault) {
	id := b.run(Task{Window: shortWindow}, scriptWithChild)
	pids := b.agentPIDs()
	b.s.Fail("/v1/lease/renew", kind, 1)
	b.expectRenewals(id, pids, 4)
}

func reclaims(b *ruleCheck) {
	id := b.run(Task{Window: shortWindow}, scriptWithChild)
	pids := b.agentPIDs()
	b.s.Adopt()
	if v := b.expectRenewals(id, pids, 3); v.Runs[0].Reclaims != 1 {
		b.errorf("the lease was reclaimed %d times", v.Runs[0].Reclaims)
	}
}

func acquiresOnce(b *ruleCheck) {
	b.s.Fail("/api/v1/leases", DropReply, 1)
	id := b.run(Task{}, scriptWithChild)
	b.agentPIDs()
	if v := b.s.View(id); v.Token != 1 {
		b.errorf("the agent runs under token %d", v.Token)
	}
}

// maxRequestsInStorm is more requests than an adapter with one slot needs in the two
// seconds of a storm.
const maxRequestsInStorm = 60

func backsOff(b *ruleCheck) {
	restore := b.s.Fail("/api/v1/leases", Unavailable, -1)
	id := b.run(Task{}, scriptWithChild)
	if err := b.s.AwaitCalls(b.ctx, "/api/v1/leases", 1); err != nil {
		b.fatalf("nothing was asked for: %v", err)
	}
	select {
	case <-time.After(2 * time.Second): // what is tested is a rate
	case <-b.ctx.Done():
	}
	if n := len(b.s.Calls("/api/v1/leases")); n > maxRequestsInStorm {
		b.errorf("%d requests in two seconds for one slot", n)
	}
	restore()
	b.agentPIDs()
	if v := b.s.View(id); v.State != picket.TaskLeased {
		b.errorf("the task is %s", v.State)
	}
}

func releasesOnce(b *ruleCheck) {
	b.s.Fail("/v1/lease/release", DropReply, 1)
	id := b.run(Task{Retries: 1}, `echo $$ > $1; exit 3`)
	b.agentPIDs()
	b.agentPIDs() // the second run
	v := b.await(id, "a second release", func(v View) bool { return len(v.Runs) > 1 && v.Runs[1].Released != nil })
	if len(v.Runs) != 2 || v.State != picket.TaskHandoff {
		b.errorf("after %d runs the task is %s", len(v.Runs), v.State)
	}
	if calls := b.s.Calls("/v1/lease/release"); len(calls) < 3 {
		b.errorf("a release whose reply was lost was not repeated")
	}
}

func completesOnce(b *ruleCheck) {
	b.s.Fail("/v1/tools/mark_complete", DropRequest, 1)
	b.s.Fail("/v1/tools/mark_complete", DropReply, 1)
	b.s.SupportAdvance(false)
	id := b.run(Task{OnExit: picket.OnExitComplete}, `echo hi`)
	v := b.await(id, "how the process ended", reportsEvidence)
	if v.State != picket.TaskReview || len(v.Runs) != 1 || v.Runs[0].ExitReport.Class != picket.ExitSuccess {
		b.errorf("the task is %s, its run ended with %+v", v.State, v.Runs[0].ExitReport)
	}
}
