package model

import (
	"cmp"
	"fmt"
	"time"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/orchestrator/proof/kit"
)

// The moves of operators, people and the reaper.

// task draws a task, mostly one in a state that the verb is for.
func (x *machine) task(states ...picket.TaskState) string {
	var fit []string
	for _, id := range x.m.ids {
		for _, s := range states {
			if x.m.tasks[id].state == s {
				fit = append(fit, id)
			}
		}
	}
	if len(fit) == 0 || x.chance("any task", 25) {
		fit = x.m.ids
	}
	return x.pick("task", fit, kit.NoTask)
}

func (x *machine) help() string {
	var open []string
	for _, id := range x.m.hids {
		if x.m.helps[id].state == picket.HandoffOpen {
			open = append(open, id)
		}
	}
	if len(open) == 0 || x.chance("any hand-off", 25) {
		open = x.m.hids
	}
	return x.pick("hand-off", open, kit.NoHelp)
}

// checkTask compares the task that a verb answered with the model's.
func (x *machine) checkTask(verb string, got picket.Task, id string) {
	x.Helper()
	x.same(verb+": task", got.TaskID, id)
	x.same(verb+": state", got.State, x.m.tasks[id].state)
	x.same(verb+": failures", got.Failures, x.m.tasks[id].failures)
}

func (x *machine) expire() {
	tid := x.task(picket.TaskLeased)
	o, by := x.once("expire" + tid)
	got, err := x.e.Expire(x.ctx, by, tid, "because")
	if x.agree(err, x.m.expireByOperator(o, tid), "expire %s", tid) {
		x.checkTask("expire", got, tid)
	}
}

func (x *machine) expireDue() {
	n, err := x.e.ExpireDue(x.ctx, 100)
	x.ok(err)
	x.same("expire due", n, x.m.expireDue())
}

func (x *machine) undeliver() {
	var rids []string
	for range 1 + x.below(3, "runs") {
		rids = append(rids, x.pick("run", x.someRuns(isRunning), kit.NoRun))
	}
	x.ok(x.e.Undeliver(x.ctx, rids...))
	x.m.undeliver(rids)
}

func (x *machine) cancel() {
	tid := x.task(picket.TaskQueued, picket.TaskLeased, picket.TaskReview, picket.TaskHandoff)
	o, by := x.once("cancel" + tid)
	got, err := x.e.Cancel(x.ctx, by, tid, "because")
	if x.agree(err, x.m.cancel(o, tid), "cancel %s", tid) {
		x.checkTask("cancel", got, tid)
	}
}

func (x *machine) retry() {
	tid := x.task(append(closed, picket.TaskHandoff)...)
	o, by := x.once("retry" + tid)
	got, err := x.e.Retry(x.ctx, by, tid, "because")
	id, code := x.m.retry(o, tid, cmp.Or(got.TaskID, freshID()))
	if x.agree(err, code, "retry %s", tid) {
		x.checkTask("retry", got, id)
	}
}

func (x *machine) review() {
	tid := x.task(picket.TaskReview)
	approve, fixed := x.chance("approve", 40), x.chance("fix", 60)
	o, by := x.once(fmt.Sprint("review", approve, tid)) // two routes, so two requests
	var (
		got picket.Task
		fix string
		err error
		ms  modelSpec
		at  int64
	)
	seen := x.lookAt(tid)
	d := picket.Decision{Note: "so", Digest: seen.digest}
	switch {
	case approve:
		got, err = x.e.Approve(x.ctx, by, tid, d)
	case fixed:
		var s picket.TaskSpec
		s, ms, at = x.spec()
		got, fix, err = x.e.Reject(x.ctx, by, tid, d, &s)
	default:
		got, fix, err = x.e.Reject(x.ctx, by, tid, d, nil)
	}
	want, code := x.m.review(o, tid, seen, approve, fix, ms, at)
	if x.agree(err, code, "review %s", tid) {
		x.same("review: fix", fix, want)
		x.checkTask("review", got, tid)
	}
}

func (x *machine) answer() {
	hid := x.help()
	o, by := x.once("answer" + hid)
	edited := oneOf(x, "edited", "", "", `{"n":1}`, `"two"`)
	got, err := x.e.Answer(x.ctx, by, hid,
		picket.AnswerRequest{Answer: picket.RawJSON(`"yes"`), Input: picket.RawJSON(edited)})
	if x.agree(err, x.m.answer(o, hid, edited), "answer %s", hid) {
		x.checkTask("answer", got, x.m.helps[hid].task)
	}
}

func (x *machine) finish() {
	hid := x.help()
	o, by := x.once("finish" + hid)
	got, err := x.e.Finish(x.ctx, by, hid, picket.RawJSON(`"by hand"`))
	if x.agree(err, x.m.finish(o, hid), "finish %s", hid) {
		x.checkTask("finish", got, x.m.helps[hid].task)
	}
}

func (x *machine) cancelHelp() {
	hid := x.help()
	o, by := x.once("cancel" + hid)
	got, err := x.e.CancelHandoff(x.ctx, by, hid, "because")
	if x.agree(err, x.m.cancelHelp(o, hid), "cancel %s", hid) {
		x.checkTask("cancel", got, x.m.helps[hid].task)
	}
}

func (x *machine) claim() {
	hid := x.help()
	o, by := x.once("claim" + hid)
	takeOver, assignee := x.chance("take over", 30), oneOf(x, "assignee", "", "ada", "ben")
	got, err := x.e.Claim(x.ctx, by, hid, picket.ClaimRequest{TakeOver: takeOver, Assignee: assignee})
	if x.agree(err, x.m.claim(o, hid, by.Actor, takeOver, assignee), "claim %s", hid) {
		x.same("claim", got.ClaimedBy, x.m.helps[hid].claimed)
		x.same("claim: assignee", got.Assignee, x.m.assignedTo(x.m.helps[hid]))
	}
}

func (x *machine) pause() {
	o, by := x.once("pause")
	hard := x.chance("hard", 50)
	got, err := x.e.Pause(x.ctx, by, hard, "because")
	if x.agree(err, x.m.pause(o, hard), "pause") {
		x.same("pause", got.Paused, x.m.paused)
	}
	x.chore() // nothing is left of so few runs
}

func (x *machine) resume() {
	o, by := x.once("resume")
	got, err := x.e.Resume(x.ctx, by, "because")
	if x.agree(err, x.m.resume(o), "resume") {
		x.same("resume", got.Paused, x.m.paused)
	}
}

func (x *machine) tick() {
	x.ok(x.e.Tick(x.ctx))
	x.m.tick()
}

// pass lets time go by: with a reaper that ticks, or with nobody acting on it.
func (x *machine) pass() {
	halves := oneOf(x, "half minutes", 1, 1, 2, 3, 11, 31)
	ticks := x.chance("ticks", 50)
	if ticks {
		x.tick() // what is due already is not left to a tick on the way
	}
	for range halves {
		x.passOne(x.virtual && halves <= 3, ticks)
	}
}

// passOne lets half a minute go by.
func (x *machine) passOne(sleeps, ticks bool) {
	x.passHalf(sleeps, ticks)
	x.m.now += kit.HalfMinute
	if sleeps {
		x.m.clock += kit.HalfMinute
	}
	if ticks {
		x.tick()
	}
}

// passHalf moves store time on by half a minute and a bit: the bit keeps what
// is due at the same instant in order. On the virtual clock time passes; on a
// real store, or for long stretches, the store's clock is moved.
func (x *machine) passHalf(sleeps, ticks bool) {
	if !sleeps {
		x.ok(x.raw.HIncrBy(x.ctx, x.prefix+"meta", "now", kit.HalfMinute+1).Err())
		return
	}
	const second = 900 // store time follows a clock by a second at most
	for left := kit.HalfMinute + 1; left > 0; left -= second {
		time.Sleep(time.Duration(min(left, second)) * time.Millisecond)
		if ticks {
			x.ok(x.e.Tick(x.ctx))
		} else {
			_, err := x.e.Stats(x.ctx) // any look at the store keeps its time
			x.ok(err)
		}
	}
}
