package storeloss

import (
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/orchestrator"
	"github.com/picket-dev/picket/orchestrator/proof/kit"
)

// What is checked of a store that was lost and adopted while no call is on its
// way: what it holds is read past the engine and held against what clients get.

// restCounts counts what was looked at in all rests.
type restCounts struct {
	adoptions int
	survivors int
	forgotten int
	ended     int
	zombies   int
	unclaimed int
	reports   int
	floor     int64
}

const lossPrefix = "pk:{default}:"

// storedLease is what the store itself holds of a lease.
type storedLease struct {
	run      map[string]string
	task     map[string]string
	deadline float64
	floor    int64
	now      int64
}

func (l *lossHistory) stateOf(h *clientLease) storedLease {
	p := l.raw.Pipeline()
	run, task := p.HGetAll(l.ctx, lossPrefix+"run:"+h.RunID), p.HGetAll(l.ctx, lossPrefix+"task:"+h.TaskID)
	deadline, meta := p.ZScore(l.ctx, lossPrefix+"deadlines", h.TaskID),
		p.HMGet(l.ctx, lossPrefix+"meta", "floor", "now")
	_, err := p.Exec(l.ctx)
	if err != nil && err != redis.Nil {
		l.t.Fatalf("look at run %s: %v", h.RunID, err)
	}
	s := storedLease{run: run.Val(), task: task.Val(), deadline: deadline.Val()}
	s.floor, s.now = number(meta.Val()[0]), number(meta.Val()[1])
	return s
}

func number(v any) int64 {
	text, _ := v.(string)
	n, _ := strconv.ParseInt(text, 10, 64)
	return n
}

// void reports a lease from before the adoption.
func (s storedLease) void() bool { return number(s.run["token"]) <= s.floor }

// lives reports whether the store remembers the lease as held; one from before
// the adoption may be reclaimed whatever its deadline.
func (s storedLease) lives(h *clientLease) bool {
	return s.run["state"] == "running" && s.task["state"] == "leased" && s.task["run"] == h.RunID &&
		s.run["token"] == s.task["token"] && (s.void() || float64(s.now) < s.deadline)
}

// checkAtRest checks everything that can be told only while nothing moves.
func (l *lossHistory) checkAtRest() {
	l.t.Helper()
	l.promises.keepHighest()
	l.readToEnd()
	l.readAgain()
	if diff := kit.AuditDiffers(l.ctx, l.raw); diff != "" {
		l.promises.recordBroken("the audit log is part of the event log", "%s", diff)
	}
	floor := number(l.raw.HGet(l.ctx, lossPrefix+"meta", "floor").Val())
	if floor != l.reader.floor {
		l.promises.recordBroken("consumers get every floor", "it is %d, the last one told %d", floor,
			l.reader.floor)
	}
	if floor < l.rested.floor {
		l.promises.recordBroken("floors rise", "it is %d after %d", floor, l.rested.floor)
	}
	l.rested.floor = floor
	l.rested.adoptions = l.reader.leaps
	valid := map[string]string{}
	left := map[*clientLease]bool{}
	for _, w := range l.clients {
		for _, h := range w.held {
			if l.rnd.IntN(3) == 0 {
				left[h] = true // nobody speaks for it now
				continue
			}
			l.probe(h, valid, false)
		}
	}
	l.mu.Lock()
	zombies := l.zombies
	l.mu.Unlock()
	for _, h := range zombies {
		l.probe(h, valid, true)
	}
	l.checkTasks()
	if l.graces || l.rnd.IntN(3) == 0 {
		l.checkGrace()
	}
}

// probe lets a holder speak and compares the answer with what the store holds.
func (l *lossHistory) probe(h *clientLease, valid map[string]string, zombie bool) {
	l.t.Helper()
	before := l.stateOf(h)
	highest := l.promises.highest(h.TaskID)
	p := l.anyProcess(l.rnd)
	err := l.retryUnavailable(func() error { return l.renew(l.ctx, h, p) })
	if !before.lives(h) {
		switch code := picket.CodeOf(err); {
		case err == nil:
			l.promises.recordBroken("only a lease that holds is admitted", "run %s, which the store holds as %v",
				h.RunID,
				before.run)
		case !code.Fenced(), len(before.run) == 0 && code != picket.CodeLeaseExpired:
			l.promises.recordBroken("a lost lease is refused permanently", "run %s, held as %v, got %s (%v)", h.RunID,
				before.run,
				code, err)
		case zombie:
			l.rested.zombies++
		case len(before.run) == 0:
			l.rested.forgotten++
		default:
			l.rested.ended++
		}
		return
	}
	if err != nil {
		l.promises.recordBroken("a holder whose lease survived goes on", "run %s, held as %v, got %s (%v)", h.RunID,
			before.run,
			picket.CodeOf(err), err)
		return
	}
	if before.void() && (h.token <= before.floor || h.token <= highest) {
		l.promises.recordBroken("tokens rise", "%s: run %s got %d over the floor %d; %d was given", h.TaskID, h.RunID,
			h.token,
			before.floor, highest)
	}
	if other, twice := valid[h.TaskID]; twice && other != h.RunID {
		l.promises.recordBroken("one valid lease per task", "%s: runs %s and %s", h.TaskID, other, h.RunID)
	}
	valid[h.TaskID] = h.RunID
	l.rested.survivors++
}

// zombie remembers a lease that its holder gave up without a word.
func (l *lossHistory) zombie(h *clientLease) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.zombies = append(l.zombies, h)
	if len(l.zombies) > 12 {
		l.zombies = l.zombies[1:]
	}
}

// readAgain reads the end of the log a second time, past the engine: nothing
// may stand under a number that a consumer has seen with other contents.
func (l *lossHistory) readAgain() {
	got, err := l.raw.XRevRangeN(l.ctx, lossPrefix+"events", "+", "-", 500).Result()
	kit.OK(l.t, err)
	got, err = kit.EventEntries(got)
	kit.OK(l.t, err)
	for _, m := range got {
		seq, ok := strings.CutSuffix(m.ID, "-0")
		if !ok {
			l.t.Fatalf("event %s is not a sequence number", m.ID)
		}
		l.reader.readAgain(number(seq), m.Values)
	}
}

// checkTasks reads all tasks: tokens rise from run to run, one run at most is
// running, and it is the one that the task is leased to.
func (l *lossHistory) checkTasks() {
	l.t.Helper()
	leased, err := l.raw.ZRange(l.ctx, lossPrefix+"by-state:leased", 0, -1).Result()
	kit.OK(l.t, err)
	deadlines, err := l.raw.ZCard(l.ctx, lossPrefix+"deadlines").Result()
	kit.OK(l.t, err)
	if int(deadlines) != len(leased) {
		l.promises.recordBroken("every lease has a deadline", "%d leases, %d deadlines", len(leased), deadlines)
	}
	open, err := l.raw.ZRange(l.ctx, lossPrefix+"by-state:queued", 0, -1).Result()
	kit.OK(l.t, err)
	for i, task := range append(leased, open...) {
		l.checkTask(task, i < len(leased))
	}
}

func (l *lossHistory) checkTask(task string, leased bool) {
	runs, err := l.raw.LRange(l.ctx, lossPrefix+"runs:"+task, 0, -1).Result()
	kit.OK(l.t, err)
	if last := l.raw.HGet(l.ctx, lossPrefix+"task:"+task, "run").Val(); last != "" {
		runs = append(runs, last)
	}
	p := l.raw.Pipeline()
	got := make([]*redis.SliceCmd, len(runs))
	for i, run := range runs {
		got[i] = p.HMGet(l.ctx, lossPrefix+"run:"+run, "state", "tokens")
	}
	if len(runs) > 0 {
		_, err = p.Exec(l.ctx)
		kit.OK(l.t, err)
	}
	last, running := int64(0), 0
	for i := range runs {
		state, _ := got[i].Val()[0].(string)
		if state == "running" {
			running++
		}
		tokens, _ := got[i].Val()[1].(string)
		for part := range strings.SplitSeq(strings.Trim(tokens, ","), ",") {
			token := number(part)
			if token <= last {
				l.promises.recordBroken("tokens rise", "%s: run %s has %d after %d", task, runs[i], token, last)
			}
			last = token
		}
	}
	l.checkReports(task)
	if leased && running != 1 || !leased && running != 0 {
		l.promises.recordBroken("one valid lease per task", "%s, leased %v, has %d running", task, leased, running)
	}
}

// checkReports looks at the token that is recorded with every write: it never
// falls, so nothing was written under a token that another had replaced.
func (l *lossHistory) checkReports(task string) {
	rows, err := l.raw.LRange(l.ctx, lossPrefix+"reports:"+task, -50, -1).Result()
	kit.OK(l.t, err)
	last := int64(0)
	for _, row := range rows {
		words := strings.SplitN(row, " ", 5) // number, time, run, token, body
		token := number(words[3])
		if token < last {
			l.promises.recordBroken("no write under a void token", "%s: report %s has token %d after %d", task,
				words[0], token,
				last)
		}
		last = token
		l.rested.reports++
	}
}

// checkGrace lets the time pass in which a lease from before the adoption may be
// reclaimed: until its end none is ended, then all are, without a failure.
func (l *lossHistory) checkGrace() {
	l.t.Helper()
	meta, err := l.raw.HMGet(l.ctx, lossPrefix+"meta", "floor", "now", "adopted").Result()
	kit.OK(l.t, err)
	floor, now, adopted := number(meta[0]), number(meta[1]), number(meta[2])
	if adopted == 0 {
		return
	}
	void := l.voidLeases(floor)
	if remains := adopted + 30_000 - now; remains > 5_000 {
		l.pass(remains - 5_000)
		for task := range void {
			if state := l.raw.HGet(l.ctx, lossPrefix+"task:"+task, "state").Val(); state != "leased" {
				l.promises.recordBroken("the grace is 30 s", "%s is %s %d ms too early", task, state, 5_000)
			}
		}
		l.pass(5_500)
	} else {
		l.pass(remains + 500)
	}
	for task, failures := range void {
		got, err := l.raw.HMGet(l.ctx, lossPrefix+"task:"+task, "state", "failures", "run").Result()
		kit.OK(l.t, err)
		run, _ := got[2].(string)
		class := l.raw.HGet(l.ctx, lossPrefix+"run:"+run, "class").Val()
		if got[0] != "queued" || got[1] != failures || class != "store_adopted" {
			l.promises.recordBroken("what nobody reclaims ends without a failure",
				"%s is %v, %v failures after %v, class %s", task,
				got[0], got[1], failures, class)
			continue
		}
		l.rested.unclaimed++
	}
	l.readToEnd()
}

// voidLeases are the tasks whose lease is from before the adoption, with their
// failures.
func (l *lossHistory) voidLeases(floor int64) map[string]any {
	leased, err := l.raw.ZRange(l.ctx, lossPrefix+"by-state:leased", 0, -1).Result()
	kit.OK(l.t, err)
	out := map[string]any{}
	for _, task := range leased {
		got, err := l.raw.HMGet(l.ctx, lossPrefix+"task:"+task, "token", "failures").Result()
		kit.OK(l.t, err)
		if number(got[0]) <= floor {
			out[task] = got[1]
		}
	}
	return out
}

// pass moves store time on and does what a reaper does, by a process that has
// no witness.
func (l *lossHistory) pass(ms int64) {
	l.t.Helper()
	kit.OK(l.t, l.raw.HIncrBy(l.ctx, lossPrefix+"meta", "now", ms).Err())
	reaper := l.procs[l.orchestrators+l.rnd.IntN(len(l.procs)-l.orchestrators)]
	l.waitUntilServed(reaper)
	for _, sweep := range []func(*orchestrator.Engine) (int, error){
		func(e *orchestrator.Engine) (int, error) { return e.ExpireDue(l.ctx, 100) },
		func(e *orchestrator.Engine) (int, error) { return e.RunChores(l.ctx, 100) },
	} {
		for n := 100; n >= 100; {
			_, err := reaper.do(func(e *orchestrator.Engine) (_ any, err error) {
				n, err = sweep(e)
				return nil, err
			})
			kit.OK(l.t, err)
		}
	}
}
