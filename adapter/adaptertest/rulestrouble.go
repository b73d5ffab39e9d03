//go:build unix

package adaptertest

import (
	"time"

	"github.com/picket-dev/picket"
)

// short is the window of leases that are to end in a check.
const short = 2 * time.Second

// rulesOfTrouble are about leases that are lost, servers that are away and
// answers that do not arrive.
func rulesOfTrouble() []Rule {
	return []Rule{
		{"kills the tree of a cancelled task", "work would go on that nobody wants",
			func(b *bench) { killed(b, b.s.Cancel) }},
		{"kills the tree of a superseded lease", "two agents would work on one task",
			func(b *bench) { killed(b, func(id string) { b.s.Supersede(id) }) }},
		{"kills the tree of a lease that ended while it slept", "an agent would go on after a suspend",
			func(b *bench) { killed(b, func(string) { b.s.Skip(time.Hour) }) }},
		{"reclaims its lease in an adopted store", "a restart of the store would cost every run", reclaims},
		{"kills the tree of a lease it cannot reclaim", "two agents would work on one task",
			func(b *bench) { killed(b, func(id string) { b.s.Adopt(); b.s.Expire(id) }) }},
		{"is done with a tree before the lease ends, in a storm of 503", "two agents would work on one task",
			func(b *bench) { killsInTime(b, Unavailable) }},
		{"is done with a tree before the lease ends, cut off", "two agents would work on one task",
			func(b *bench) { killsInTime(b, Hang) }},
		{"is done with a tree before the lease ends, without replies", "two agents would work on one task",
			func(b *bench) { killsInTime(b, Mute) }},
		{"goes on after a partition", "each outage would cost a worker", goesOn},
		{"keeps its agent through a reply that is lost", "each hiccup would cost a run",
			func(b *bench) { keeps(b, DropReply) }},
		{"keeps its agent through a server that is away for a moment", "each restart of a server would cost every run",
			func(b *bench) { keeps(b, Unavailable) }},
		{"asks again with the same key when an acquire's reply is lost", "the lease would wait for its end",
			acquiresOnce},
		{"backs off from a server that is away", "a server that comes back would be pushed over again", backsOff},
		{"releases once although the reply is lost", "a failure would be counted twice, or never", releasesOnce},
		{"completes once although request and reply are lost", "a result would be lost", completesOnce},
	}
}

func killed(b *bench, end func(id string)) {
	id := b.run(Task{}, tree)
	pids := b.said()
	b.s.Pause(true)
	end(id)
	b.await(id, "how the process ended", evident)
	b.dead(pids)
}

func killsInTime(b *bench, kind Trouble) {
	id := b.run(Task{Window: short}, tree)
	pids := b.said()
	b.s.Pause(true)
	b.s.mu.Lock()
	end := b.s.tasks[id].runs[0].deadline // known to both sides: nothing is renewed any more
	b.s.fail("/v1/", kind, -1)
	b.s.mu.Unlock()
	select {
	case <-time.After(time.Until(end)): // what is tested is a deadline
	case <-b.ctx.Done():
	}
	b.dead(pids)
}

func goesOn(b *bench) {
	id := b.run(Task{Window: short}, tree)
	pids := b.said()
	b.s.Pause(true)
	mend := b.s.Fail("/", Hang, -1)
	gone := func(View) bool { return !alive(pids[0]) && !alive(pids[1]) }
	for !gone(View{}) {
		select {
		case <-time.After(20 * time.Millisecond): // nothing signals the death of a stranger's child
		case <-b.ctx.Done():
			b.stop("cut off, it does not end its agent")
		}
	}
	mend()
	b.await(id, "how the process ended", func(v View) bool { return evident(v) || released(v) })
	b.s.Pause(false)
	b.await(b.queue(Task{}), "its next task", func(v View) bool { return v.State == picket.TaskLeased })
	b.said()
}

// keepsOn sees the lease renewed n times more while the agent lives.
func (b *bench) keepsOn(id string, pids []int, n int) View {
	renewed := b.s.View(id).Runs[0].Renewals
	v := b.await(id, "renewals",
		func(v View) bool { return v.Runs[0].Renewals >= renewed+n || v.State != picket.TaskLeased })
	if v.State != picket.TaskLeased || !alive(pids[0]) {
		b.wrong("the agent was ended: the task is %s", v.State)
	}
	return v
}

func keeps(b *bench, kind Trouble) {
	id := b.run(Task{Window: short}, tree)
	pids := b.said()
	b.s.Fail("/v1/lease/renew", kind, 1)
	b.keepsOn(id, pids, 4)
}

func reclaims(b *bench) {
	id := b.run(Task{Window: short}, tree)
	pids := b.said()
	b.s.Adopt()
	if v := b.keepsOn(id, pids, 3); v.Runs[0].Reclaims != 1 {
		b.wrong("the lease was reclaimed %d times", v.Runs[0].Reclaims)
	}
}

func acquiresOnce(b *bench) {
	b.s.Fail("/api/v1/leases", DropReply, 1)
	id := b.run(Task{}, tree)
	b.said()
	if v := b.s.View(id); v.Token != 1 {
		b.wrong("the agent runs under token %d", v.Token)
	}
}

// aFlood is more requests than an adapter with one slot needs in the two
// seconds of a storm.
const aFlood = 60

func backsOff(b *bench) {
	mend := b.s.Fail("/api/v1/leases", Unavailable, -1)
	id := b.run(Task{}, tree)
	if err := b.s.AwaitCalls(b.ctx, "/api/v1/leases", 1); err != nil {
		b.stop("nothing was asked for: %v", err)
	}
	select {
	case <-time.After(2 * time.Second): // what is tested is a rate
	case <-b.ctx.Done():
	}
	if n := len(b.s.Calls("/api/v1/leases")); n > aFlood {
		b.wrong("%d requests in two seconds for one slot", n)
	}
	mend()
	b.said()
	if v := b.s.View(id); v.State != picket.TaskLeased {
		b.wrong("the task is %s", v.State)
	}
}

func releasesOnce(b *bench) {
	b.s.Fail("/v1/lease/release", DropReply, 1)
	id := b.run(Task{Retries: 1}, `echo $$ > $1; exit 3`)
	b.said()
	b.said() // the second run
	v := b.await(id, "a second release", func(v View) bool { return len(v.Runs) > 1 && v.Runs[1].Released != nil })
	if len(v.Runs) != 2 || v.State != picket.TaskHandoff {
		b.wrong("after %d runs the task is %s", len(v.Runs), v.State)
	}
	if calls := b.s.Calls("/v1/lease/release"); len(calls) < 3 {
		b.wrong("a release whose reply was lost was not repeated")
	}
}

func completesOnce(b *bench) {
	b.s.Fail("/v1/tools/mark_complete", DropRequest, 1)
	b.s.Fail("/v1/tools/mark_complete", DropReply, 1)
	b.s.Advance(false)
	id := b.run(Task{OnExit: picket.OnExitComplete}, `echo hi`)
	v := b.await(id, "how the process ended", evident)
	if v.State != picket.TaskReview || len(v.Runs) != 1 || v.Runs[0].Evidence.Class != picket.ExitSuccess {
		b.wrong("the task is %s, its run ended with %+v", v.State, v.Runs[0].Evidence)
	}
}
