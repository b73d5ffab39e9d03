package rfc16

import (
	"fmt"
	"maps"
	"time"
)

const agentsPath = "/api/v1/agents"

// agent is one that the rule registered.
type agent struct {
	t               *Trial
	id              string
	key             keyName
	body            fields    // of its registration
	reg             *answer   // to it
	sent            time.Time // when the last request that counts as a sign of life left here
	silentOnPurpose bool      // its silence is what the rule wants
}

// register makes an agent, with the thresholds that the server gives. Members of change replace
// those of the body; nil leaves one out.
func (t *Trial) register(change fields) *agent {
	a := t.tryRegister(owner, change)
	t.ExpectStatus(a.reg, 201)
	return a
}

// tryRegister is register without an expectation, with any key.
func (t *Trial) tryRegister(by keyName, change fields) *agent {
	a := &agent{t: t, key: by, body: fields{"agent_id": t.ID(fmt.Sprintf("a%d", len(t.agents)+1))}}
	maps.Copy(a.body, change)
	maps.DeleteFunc(a.body, func(_ string, v any) bool { return v == nil })
	a.sent = time.Now()
	a.reg = t.s.Ask(t.Ctx, by, "POST", agentsPath, a.body)
	if a.id, _ = a.body["agent_id"].(string); a.reg.Status/100 == 2 {
		a.id = a.reg.Str("agent_id")
	}
	// Without an answer it may be registered all the same.
	if a.reg.Status/100 == 2 || a.reg.Err != nil && a.id != "" {
		t.agents = append(t.agents, a)
	}
	t.Accept(a.reg)
	return a
}

// reregister registers the same id once more.
func (a *agent) reregister(by keyName) *answer {
	a.noteContact()
	return a.t.Call(by, "POST", agentsPath, a.body)
}

// thresholds is a heartbeat_config.
func thresholds(interval, unhealthy, dead int) fields {
	return fields{
		"heartbeat_config": fields{
			"interval_seconds":        interval,
			"unhealthy_after_seconds": unhealthy,
			"dead_after_seconds":      dead,
		},
	}
}

// shortThresholds are the thresholds of an agent that falls silent in a check.
func (t *Trial) shortThresholds() fields {
	c := t.cfg
	return thresholds(c.Interval, c.Unhealthy, c.Dead)
}

// unhealthyOnlyThresholds are those of one that becomes unhealthy and stays so.
func (t *Trial) unhealthyOnlyThresholds() fields {
	return thresholds(t.cfg.Interval, t.cfg.Unhealthy, 1000*t.cfg.Dead)
}

// longThresholds are those of one that stays healthy while others do not.
func (t *Trial) longThresholds() fields {
	return thresholds(t.cfg.Interval, 1000*t.cfg.Unhealthy, 10_000*t.cfg.Dead)
}

// merge joins bodies.
func merge(parts ...fields) fields {
	all := fields{}
	for _, p := range parts {
		maps.Copy(all, p)
	}
	return all
}

func (a *agent) path(rest string) string { return agentsPath + "/" + a.id + rest }

// heartbeat sends a heartbeat with any key and body members beside the required ones.
func (a *agent) heartbeat(by keyName, status string, change fields) *answer {
	body := merge(fields{"status": status, "client_timestamp": a.t.Now().UTC().Format(time.RFC3339Nano)}, change)
	maps.DeleteFunc(body, func(_ string, v any) bool { return v == nil })
	a.noteContact()
	return a.t.Call(by, "POST", a.path("/heartbeat"), body)
}

// mustHeartbeat is a heartbeat that must be acknowledged.
func (a *agent) mustHeartbeat() *answer {
	a.checkNotSilent()
	return a.t.ExpectStatus(a.heartbeat(a.key, "active", nil), 200)
}

// noteContact notes a sign of life that is on its way.
func (a *agent) noteContact() { a.sent, a.silentOnPurpose = time.Now(), false }

// mayBeSilent reports whether the server may have found the agent silent
// although the rule does not want it.
func (a *agent) mayBeSilent() bool {
	config, _ := a.body["heartbeat_config"].(fields)
	after, ok := config["unhealthy_after_seconds"].(int)
	if !ok {
		after = 90
	}
	return !a.t.cfg.Exact && !a.silentOnPurpose && !a.heardWithin(seconds(after))
}

// checkNotSilent ends the try when that may have happened.
func (a *agent) checkNotSilent() {
	if a.mayBeSilent() {
		a.t.TooSlow("%s was silent for longer than it should", a.id)
	}
}

// record reads the agent as it is shown.
func (a *agent) record() *answer {
	return a.t.ExpectStatus(a.t.Call(a.key, "GET", a.path(""), nil), 200)
}

func (a *agent) status() string { return a.record().Str("status") }

// expect reads the agent and expects a status.
func (a *agent) expect(status string) *answer {
	r := a.record()
	a.t.ExpectMember(r, "status", status)
	return r
}

// etag is the version as an entity tag.
func (a *agent) etag() string { return fmt.Sprintf(`"%d"`, a.record().Num("version")) }

// change asks for another status with the current version.
func (a *agent) change(by keyName, body fields) *answer { return a.changeIf(by, a.etag(), body) }

// changeIf does so with any If-Match; empty sends none.
func (a *agent) changeIf(by keyName, match string, body fields) *answer {
	var headers []string
	if match != "" {
		headers = []string{"If-Match", match}
	}
	return a.t.Call(by, "PATCH", a.path("/status"), body, headers...)
}

// drain takes the agent out; it fails the rule when it cannot.
func (a *agent) drain(seconds int) *answer {
	r := a.t.ExpectStatus(a.change(a.key, fields{"status": "draining", "drain_timeout_seconds": seconds}), 200)
	a.checkNotSilent()
	return r
}

func (a *agent) remove() *answer {
	return a.t.ExpectStatus(a.t.Call(a.key, "DELETE", a.path(""), nil), 200, 204)
}

// fallSilent waits, in silence, until the server has judged the agent, which has just sent its last
// heartbeat.
func (a *agent) fallSilent(to string) *answer {
	c := a.t.cfg
	after := c.Unhealthy
	if to == "dead" {
		after = c.Dead
	}
	a.checkNotSilent()
	a.silentOnPurpose = true
	a.t.Sleep(seconds(after))
	return a.awaitStatus(to, c.Slack)
}

// awaitStatus looks at the agent until it has a status, at most for a time.
func (a *agent) awaitStatus(status string, within time.Duration) *answer {
	for end := a.t.Now().Add(within); ; a.t.Sleep(a.t.cfg.Poll) {
		r := a.record()
		got := r.Str("status")
		switch {
		case got == status:
			return r
		case status == "unhealthy" && got == "dead" && !a.heardWithin(seconds(a.t.cfg.Dead)):
			a.t.TooSlow("the agent was dead before it was seen unhealthy")
		case a.t.Now().After(end) || status != got && gone(got):
			a.t.Assert(false, r, "status %q within %s", status, within)
		}
	}
}

// heardWithin reports whether the server has had a sign of life within d, however
// long requests took.
func (a *agent) heardWithin(d time.Duration) bool { return time.Since(a.sent) <= d }

func gone(status string) bool { return status == "dead" || status == "deregistered" }

// newDeadAgent is an agent that has just been judged dead, silent ever since it
// registered.
func (t *Trial) newDeadAgent(change fields) *agent {
	a := t.register(merge(t.shortThresholds(), change))
	a.fallSilent("dead")
	return a
}

// newDeregisteredAgent is an agent that has left the registry.
func (t *Trial) newDeregisteredAgent(change fields) *agent {
	a := t.register(change)
	a.remove()
	return a
}

// newHolder is an agent that holds a lease.
func (t *Trial) newHolder(change fields) (*agent, *lease) {
	a := t.register(change)
	return a, t.newLease(a)
}

// newDrainingHolder is an agent that holds a lease and has ten minutes to finish it.
func (t *Trial) newDrainingHolder(change fields) (*agent, *lease) {
	a, l := t.newHolder(change)
	a.drain(600)
	return a, l
}

// newDeadHolder is an agent that held two leases and has just been judged dead.
func (t *Trial) newDeadHolder() (*agent, []*lease) {
	a := t.register(t.shortThresholds())
	held := []*lease{t.newLease(a), t.newLease(a)}
	a.fallSilent("dead")
	return a, held
}

// newSilentHolder is an agent that has held a lease and has just been judged unhealthy, which it
// then stays, or dead.
func (t *Trial) newSilentHolder(status string) (*agent, *lease) {
	silence := t.shortThresholds()
	if status == "unhealthy" {
		silence = t.unhealthyOnlyThresholds()
	}
	a, l := t.newHolder(silence)
	a.fallSilent(status)
	return a, l
}

// newUnhealthyAgent is an agent that has just been judged unhealthy and stays so.
func (t *Trial) newUnhealthyAgent(change fields) *agent {
	a := t.register(merge(t.unhealthyOnlyThresholds(), change))
	a.fallSilent("unhealthy")
	return a
}

// newDrainingAgent is an agent that drains and goes on doing so, by a lease it holds
// where the server has leases.
func (t *Trial) newDrainingAgent(change fields) *agent {
	a := t.register(change)
	if t.s.has(Tasks) {
		t.newLease(a)
	}
	if r := a.drain(3600); r.Str("status") != "draining" {
		t.NotRun("the server ends a drain at once when no lease is held, and leases are not used")
	}
	return a
}

// deregisterQuietly deregisters the agent, whatever has become of it, without a verdict.
func (a *agent) deregisterQuietly() bool {
	ask := func(method, path string, body any) int {
		return a.t.s.Ask(a.t.Ctx, a.key, method, path, body).Status
	}
	status := ask("DELETE", a.path(""), nil)
	if status == 409 { // dead: only a registration leads on from there
		ask("POST", agentsPath, fields{"agent_id": a.id})
		status = ask("DELETE", a.path(""), nil)
	}
	return status/100 == 2 || status == 404
}

func seconds(n int) time.Duration { return time.Duration(n) * time.Second }
