package agentheartbeat

import (
	"strings"
	"time"
)

// tireless are thresholds with which an agent that sends no heartbeat stays healthy for a day.
var tireless = fields{"interval_seconds": 30, "unhealthy_after_seconds": 86_400, "dead_after_seconds": 172_800}

// Times of the scheduler.
const (
	// soon is within how long the scheduler wakes for something to look at: a look at work that nobody has told it
	// about, a cycle, and the time until a process looks for the cycle.
	soon = 2*time.Minute + 5*time.Second
	// spaced is within how long it wakes after another wake: the cooldown comes first.
	spaced = 5 * time.Minute
	// longest is how long the suite waits for a wake by the clock.
	longest = 20 * time.Minute
	// pollSeconds is one long poll of the suite's adapter.
	pollSeconds = 20
)

// metered is an agent with one idle session and a policy. A budget stops the session, so the scheduler wakes it.
func (t *Trial) metered(text string) *keeper {
	name := t.name()
	t.write(name, text)
	return t.keepMetered(name, 1)
}

func (t *Trial) keepMetered(name string, sessions int) *keeper {
	k := t.registerKeeper(name, tireless)
	k.metered = true
	return k.begin(sessions)
}

// tell sends a message of a person to the agent.
func (k *keeper) tell() {
	body := fields{"body": "Please look at this."}
	k.t.ExpectStatus(k.t.Call(operator, "POST", agentsPath+"/"+k.id+"/messages", body), 200, 201)
}

// waiting submits a task that the agent could take.
func (k *keeper) waiting(change ...fields) (taskID string) {
	t := k.t
	spec := merge(append([]fields{{"title": "conformance " + t.Prefix, "needs": []string{t.ID("t")}}}, change...)...)
	id := t.ExpectStatus(t.Call(operator, "POST", "/api/v1/tasks", spec), 201).Str("taskId")
	t.tasks = append(t.tasks, id)
	return id
}

// scheduled waits until the scheduler wakes the session for an occasion, and ends the wake. Tasks that anybody may take
// wait on a server with other work, so a wake for work before that is ended, too.
func (k *keeper) scheduled(occasion string, within time.Duration) {
	t := k.t
	for end := t.Now().Add(within); ; {
		c := k.wakeWithin(end.Sub(t.Now()))
		forWork := c != nil && strings.Contains(text(c, "text"), "(work)")
		t.holds(t.Last, "a wake for the occasion "+occasion+" within "+within.String(), c != nil &&
			text(c, "command") == "wake" && (forWork || strings.Contains(text(c, "text"), "("+occasion+")")))
		k.mustResult(text(c, "commandId"), "accepted")
		k.mustResult(text(c, "commandId"), "answered")
		if !forWork || occasion == "work" {
			break
		}
	}
	row := k.wakes()[0]
	for member, want := range (fields{"result": "sent", "source": "scheduler", "occasion": occasion}) {
		t.ExpectEqual(member, row[member], want)
	}
}

// quietFor expects that the session is not woken for a while.
func (k *keeper) quietFor(d time.Duration) {
	k.t.holds(k.t.Last, "no wake within "+d.String(), k.wakeWithin(d) == nil)
}

// wakeWithin is the next command for the session, or nil. The session is reported meanwhile.
func (k *keeper) wakeWithin(d time.Duration) fields {
	k.t.s.noteWake(k.name)
	for end := k.t.Now().Add(d); k.t.Now().Before(end); {
		k.reportIdle()
		left := int(end.Sub(k.t.Now())/time.Second) + 1
		if list := k.pending(min(pollSeconds, left)); len(list) > 0 {
			return list[0]
		}
		k.t.Sleep(k.t.s.cfg.Poll) // the poll of a wrong server may end at once
	}
	return nil
}

// asleep is what the server says about the session when it is asked why a task of the agent does not run.
func (k *keeper) asleep(taskID string) (said string) {
	t := k.t
	a := t.ExpectStatus(t.Call(operator, "GET", "/api/v1/tasks/"+taskID+"/explain", nil), 200)
	for _, reason := range a.List("reasons") {
		if text(reason, "code") == "session_asleep" && strings.Contains(text(reason, "text"), k.session()) {
			return text(reason, "text")
		}
	}
	t.holds(a, "a reason session_asleep about "+k.session(), false)
	return ""
}

// expectAsleep expects that the scheduler does not wake the session for a task, for a reason.
func (k *keeper) expectAsleep(taskID, reason string) {
	k.t.holds(k.t.Last, "the reason "+reason, strings.HasSuffix(k.asleep(taskID), ": "+reason))
}

// cancel cancels the last task of the rule.
func (k *keeper) cancel() {
	t := k.t
	last := len(t.tasks) - 1
	t.ExpectStatus(t.Call(operator, "POST", "/api/v1/tasks/"+t.tasks[last]+"/cancel", fields{"reason": "changed"}), 200)
	t.tasks = t.tasks[:last]
}

// hold acquires a task that waits, and answers the lease token. A lease that nobody uses ends after half a minute.
func (k *keeper) hold(taskID string) (token string) {
	t := k.t
	a := t.ExpectStatus(t.Call(owner, "POST", "/api/v1/leases", fields{"agentId": k.id,
		"capabilities": []string{t.ID("t")}, "waitSeconds": 10}), 200)
	leases := a.List("leases")
	t.holds(a, "a lease of "+taskID, len(leases) == 1 && leases[0]["taskId"] == taskID)
	token = text(leases[0], "leaseToken")
	t.ExpectStatus(t.tool(token, "get_task", fields{}), 200)
	return token
}

// byTheClock waits for the wake by the clock, and answers how long that took.
func (k *keeper) byTheClock() time.Duration {
	began := k.t.Now()
	k.scheduled("time", longest)
	return k.t.Now().Sub(began)
}

// holding is an agent with one idle session. It holds a task, so there is something to look at for it.
func (t *Trial) holding() *keeper {
	k := t.metered(plain)
	k.hold(k.waiting(fields{"leaseWindowSeconds": 7200}))
	return k
}

// idleWakes wakes the session by hand. The wakes lead to nothing.
func (k *keeper) idleWakes(n int) {
	for range n {
		k.reportIdle()
		if next := k.dryRun("").Time("next_allowed_at"); !next.IsZero() {
			k.t.Sleep(next.Sub(k.t.Now()))
		}
		k.sent()
	}
}

// Section 6, settled: the scheduler.
var schedulerChecks = checks{
	"6/scheduler-message": func(t *Trial) {
		k := t.metered(plain)
		k.tell()
		k.scheduled("message", soon)
	},
	"6/scheduler-coalesced": func(t *Trial) {
		k := t.metered(plain)
		k.sent()
		task := k.waiting()
		t.expectDecision(k.dryRun(""), "rate_limited", "cooldown_active")
		k.expectAsleep(task, "wake_coalesced")
	},
	"6/unmetered": func(t *Trial) {
		k := t.wakeable(plain)
		task := k.waiting()
		k.expectAsleep(task, "unmetered")
		k.metered = true
		k.reportIdle()
		said := k.asleep(task)
		t.holds(t.Last, "no reason unmetered of a metered session", !strings.HasSuffix(said, ": unmetered"))
	},
	"6/explained": func(t *Trial) {
		k := t.keepMetered(t.name(), 1)
		task := k.waiting()
		k.expectAsleep(task, "heartbeat_no_policy")
		t.write(k.name, allDay)
		k.expectAsleep(task, "quiet_window")
	},
	"6/scheduler-due": func(t *Trial) {
		k := t.metered(plain)
		k.waiting()
		k.scheduled("work", soon)
		k.cancel()
		pinned := k.waiting(fields{"agent": k.id, "leaseWindowSeconds": 7200})
		k.scheduled("handoff", spaced)
		k.scheduledForSubtask(pinned)
		k.cancel()
		k.scheduled("time", longest)
	},
	"6/scheduler-gate": func(t *Trial) {
		k := t.holding()
		interval := k.byTheClock()
		k.quietFor(2 * interval)
		k.cancel()
		k.byTheClock()
	},
	"6/scheduler-backs-off": func(t *Trial) {
		k := t.holding()
		interval := k.byTheClock()
		for _, after := range []struct{ wakes, times int }{{3, 2}, {8, 8}} { // 4 and 13 idle wakes in a row
			k.idleWakes(after.wakes)
			k.hold(k.waiting(fields{"leaseWindowSeconds": 7200})) // something changes, so a wake by the clock is sent
			longer := time.Duration(after.times) * interval
			t.holds(t.Last, "an interval of about "+longer.String(), near(k.byTheClock(), longer, longer/4))
		}
	},
	"6/scheduler-overdue": func(t *Trial) {
		k := t.metered(plain)
		k.sent()
		k.tell()
		for range 5 {
			k.report(merge(detached(k.session(), "cannot_start"), fields{"metered": true}))
			t.Sleep(time.Minute)
		}
		t.ExpectEqual("number of commands", len(k.pending(0)), 0)
		k.scheduled("message", soon)
		k.quietFor(5 * time.Minute)
	},
	"12/default_interval": func(t *Trial) {
		k := t.holding()
		interval := k.byTheClock()
		manual := t.expectDecision(k.wake(), "rate_limited", "cooldown_active")
		wait := t.ExpectTime(manual, "next_allowed_at").Sub(t.ExpectTime(manual, "at"))
		t.holds(manual, "a shorter wait of people than "+interval.String(), wait < interval)
		t.Sleep(wait)
		k.sent()
	},
}

// scheduledForSubtask has the agent take a task and delegate a part of it. The part is cancelled, and the session is
// woken for that.
func (k *keeper) scheduledForSubtask(taskID string) {
	t := k.t
	t.Sleep(time.Second) // it settles after the last wake
	part := fields{"title": "part", "needs": []string{t.ID("part")}}
	id := t.ExpectStatus(t.tool(k.hold(taskID), "delegate_subtask", part), 200).Str("taskId")
	t.tasks = append(t.tasks, id)
	k.cancel()
	k.scheduled("subtask", spaced)
}
