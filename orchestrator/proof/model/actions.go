package model

import (
	"cmp"
	"slices"
	"time"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/orchestrator/proof/kit"
)

// What the model test does next: which verb, and to whom.

// action is a verb. One with a larger weight is drawn more often; one that does
// not fit, because nothing is there that it could act on, mostly gives way to
// another, or a short check would hardly get anywhere.
type action struct {
	weight int
	verb   string
	fits   func() bool
	act    func()
}

func (x *machine) actions() []action {
	always := func() bool { return true }
	live, helps := x.anyRun(isRunning), func() bool { return x.openHelps() > 0 }
	// Not all at once: each kind of move gets checks in which it comes often.
	var moves []action
	switch n := x.below(10, "profile"); {
	case n < 4:
		moves = x.agentActions()
	case n < 6:
		moves = slices.Concat(x.agentActions(), x.moneyActions(), x.treeActions())
	default:
		moves = slices.Concat(x.moneyActions(), x.treeActions(), x.treeScenarios())
	}
	return append(append(moves, x.scenarios()...), []action{
		{3, "submit", func() bool { return x.openTasks() < x.most }, x.submit},
		{5, "acquire", func() bool { return !x.m.paused && x.anyTask(picket.TaskQueued)() }, x.acquire},
		{2, "renew", live, x.renew},
		{1, "get_task", live, x.getTask},
		{1, "loop", live, x.loop},
		{1, "find_agents", live, x.findAgents},
		{1, "tell", func() bool { return x.openTasks() > 0 }, x.tell},
		{2, "read_messages", live, x.readMessages},
		{1, "stalled", live, x.stalled},
		{3, "report", live, x.report},
		{2, "emission", live, x.emission},
		{1, "list_as_client", always, x.listAsClient},
		{3, "submit_to_agent", func() bool {
			return x.openTasks() < x.most && x.m.anyTakesTasks()
		}, x.submitToAgent},
		{1, "reply", live, x.reply},
		{1, "push_put", x.anyClientTask, x.putPush},
		{1, "push_delete", x.anyPush, x.deletePush},
		{1, "push_list", x.anyPush, x.listPushes},
		{3, "push_claim", x.anyPush, x.takePushTurn},
		{1, "push_advance", func() bool { return len(x.turns) > 0 }, x.latePushStep},
		{1, "revoke_client", func() bool { return x.client != "" && x.anyPush() }, x.revokeClient},
		{2, "complete", live, x.complete},
		{2, "advance", live, x.advance},
		{3, "fail", live, x.fail},
		{1, "decline", live, x.decline},
		{2, "release", live, x.release},
		{2, "request_help", live, x.requestHelp},
		{3, "again", func() bool { return len(x.made) > 0 }, x.again},
		{3, "launched", x.anyRun(func(r *modelRun) bool { return isRunning(r) && !r.launched }), x.launched},
		{2, "run_exit", x.anyRun(mayExit), x.runExit},
		{1, "expire", live, x.expire},
		{2, "expire_due", x.anyRun(func(r *modelRun) bool {
			return isRunning(r) && x.m.now >= x.m.tasks[r.task].deadline
		}),
			x.expireDue},
		{1, "undeliver", live, x.undeliver},
		{1, "cancel", func() bool { return x.openTasks() > 0 }, x.cancel},
		{3, "retry", func() bool { return x.escalated() || x.anyTask(closed...)() }, x.retry},
		{3, "review", x.anyTask(picket.TaskReview), x.review},
		{2, "review_swapped", x.anyTask(picket.TaskReview), x.reviewSwapped},
		{1, "evidence", x.anyTask(closed...), x.evidence},
		{2, "answer", helps, x.answer},
		{1, "finish", helps, x.finish},
		{1, "remind", func() bool { return helps() || x.anyTask(picket.TaskReview)() }, x.remind},
		{1, "assigned", func() bool { return helps() || x.anyTask(picket.TaskReview)() }, x.assigned},
		{1, "bundles", live, x.bundles},
		{1, "cancel_help", helps, x.cancelHelp},
		{2, "claim", helps, x.claim},
		{1, "pause", func() bool { return !x.m.paused }, x.pause},
		{6, "resume", func() bool { return x.m.paused }, x.resume},
		{1, "tick", always, x.tick},
		{3, "pass", always, x.pass},
		{2, "swap", func() bool { return live() && x.swaps < 5 }, x.changeStore},
		{1, "stop", live, x.stopAndStart},
		{1, "reclaim", x.anyRun(func(r *modelRun) bool { return isRunning(r) && r.token <= x.m.floor }), x.reclaim},
		{1, "chore", func() bool {
			return x.m.chores && x.m.now >= x.m.adopted+kit.HalfMinute || len(x.m.pendingChores) > 0
		}, x.chore},
		{1, "keyed", func() bool { return !x.m.paused && x.anyTask(picket.TaskQueued)() }, x.acquireWithRevokedKey},
		{1, "newer", always, x.showNewerFormat},
		{2, "tell late", x.anyRun(hasEnded), x.reportLateUsage},
		{1, "jump", func() bool { return x.jumps < 6 }, x.jump},
	}...)
}

var closed = []picket.TaskState{picket.TaskFailed, picket.TaskRejected, picket.TaskCancelled, picket.TaskCompleted}

func (x *machine) step(moves []action) {
	m := x.drawAction(moves)
	for range 4 {
		if m.fits() || x.chance("anyway", 10) {
			break
		}
		m = x.drawAction(moves)
	}
	x.Logf("%s", m.verb)
	x.m.wantEvents = nil
	m.act()
}

func (x *machine) drawAction(moves []action) action {
	sum := 0
	for _, m := range moves {
		sum += m.weight
	}
	n := x.below(sum, "move")
	for _, m := range moves {
		if n -= m.weight; n < 0 {
			return m
		}
	}
	panic("unreachable: n is below the sum")
}

func isRunning(r *modelRun) bool { return r.state == picket.RunRunning }

func mayExit(r *modelRun) bool { return r.launched && !r.exited }

// someRuns lists the runs that fit; a third of the time, and when none does, all.
func (x *machine) someRuns(fits func(*modelRun) bool) []string {
	if !x.chance("fitting run", 70) {
		return x.m.rids
	}
	var out []string
	for _, rid := range x.m.rids {
		if fits(x.m.runs[rid]) {
			out = append(out, rid)
		}
	}
	if len(out) == 0 {
		return x.m.rids
	}
	return out
}

func (x *machine) anyRun(fits func(*modelRun) bool) func() bool {
	return func() bool {
		for _, r := range x.m.runs {
			if fits(r) {
				return true
			}
		}
		return false
	}
}

func (x *machine) anyTask(states ...picket.TaskState) func() bool {
	return func() bool {
		for _, t := range x.m.tasks {
			for _, s := range states {
				if t.state == s {
					return true
				}
			}
		}
		return false
	}
}

func (x *machine) openTasks() (n int) {
	for _, t := range x.m.tasks {
		if !t.state.Terminal() {
			n++
		}
	}
	return n
}

func (x *machine) openHelps() (n int) {
	for _, h := range x.m.helps {
		if h.state == picket.HandoffOpen {
			n++
		}
	}
	return n
}

func (x *machine) escalated() bool {
	for _, h := range x.m.helps {
		if h.state == picket.HandoffOpen && h.kind == picket.HandoffEscalation {
			return true
		}
	}
	return false
}

// jump makes the store's clock step: store time follows by a second at most,
// and never back. A check allows itself so few steps that these seconds do not
// matter.
func (x *machine) jump() {
	x.jumps++
	x.tick() // store time is written every 100 ms only, and a step back forgets the rest
	by := oneOf(x, "jump", 3*time.Second, -3*time.Second, time.Hour, -time.Hour, 10*365*24*time.Hour)
	// The clock as it was read last is moved the other way.
	x.ok(x.raw.HIncrBy(x.ctx, x.prefix+"meta", "raw", -by.Milliseconds()).Err())
	_, err := x.e.Stats(x.ctx)
	x.ok(err)
}

func higherPriority(a, b *modelTask) int {
	return cmp.Or(cmp.Compare(b.priority, a.priority), cmp.Compare(a.order, b.order))
}
