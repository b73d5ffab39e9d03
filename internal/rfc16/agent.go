package rfc16

import (
	"fmt"
	"maps"
	"time"
)

const agentsPath = "/api/v1/agents"

// agent is one that the rule registered.
type agent struct {
	t    *Trial
	id   string
	key  who
	body fields    // of its registration
	reg  *answer   // to it
	sent time.Time // when the last request that counts as a sign of life left here
	fell bool      // its silence is what the rule wants
}

// register makes an agent, with the thresholds that the server gives. Members of change replace
// those of the body; nil leaves one out.
func (t *Trial) register(change fields) *agent {
	a := t.try(owner, change)
	t.status(a.reg, 201)
	return a
}

// try is register without an expectation, with any key.
func (t *Trial) try(by who, change fields) *agent {
	a := &agent{t: t, key: by, body: fields{"agent_id": t.id(fmt.Sprintf("a%d", len(t.agents)+1))}}
	maps.Copy(a.body, change)
	maps.DeleteFunc(a.body, func(_ string, v any) bool { return v == nil })
	a.sent = t.cfg.Clock.Now()
	a.reg = t.s.do(t.ctx, request{
		by:     by,
		secret: t.s.keys[by],
		method: "POST",
		url:    t.cfg.URL + agentsPath,
		body:   a.body,
	})
	if a.id, _ = a.body["agent_id"].(string); a.reg.status/100 == 2 {
		a.id = a.reg.str("agent_id")
	}
	// Without an answer it may be registered all the same.
	if a.reg.status/100 == 2 || a.reg.err != nil && a.id != "" {
		t.agents = append(t.agents, a)
	}
	t.came(a.reg)
	return a
}

// again registers the same id once more.
func (a *agent) again(by who) *answer {
	a.shows()
	return a.t.call(by, "POST", agentsPath, a.body)
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

// mortal are the thresholds of an agent that is to be seen falling silent.
func (t *Trial) mortal() fields {
	c := t.cfg
	return thresholds(c.Interval, c.Unhealthy, c.Dead)
}

// lingering are those of one that becomes unhealthy and stays so.
func (t *Trial) lingering() fields {
	return thresholds(t.cfg.Interval, t.cfg.Unhealthy, 1000*t.cfg.Dead)
}

// steady are those of one that stays healthy while others do not.
func (t *Trial) steady() fields {
	return thresholds(t.cfg.Interval, 1000*t.cfg.Unhealthy, 10_000*t.cfg.Dead)
}

// also joins bodies.
func also(parts ...fields) fields {
	all := fields{}
	for _, p := range parts {
		maps.Copy(all, p)
	}
	return all
}

func (a *agent) path(rest string) string { return agentsPath + "/" + a.id + rest }

// beat sends a heartbeat with any key and body members beside the required ones.
func (a *agent) beat(by who, status string, change fields) *answer {
	body := also(fields{"status": status, "client_timestamp": a.t.now().UTC().Format(time.RFC3339Nano)}, change)
	maps.DeleteFunc(body, func(_ string, v any) bool { return v == nil })
	a.shows()
	return a.t.call(by, "POST", a.path("/heartbeat"), body)
}

// alive is a heartbeat that must be acknowledged.
func (a *agent) alive() *answer {
	a.inTime()
	return a.t.status(a.beat(a.key, "active", nil), 200)
}

// shows notes a sign of life that is on its way.
func (a *agent) shows() { a.sent, a.fell = a.t.cfg.Clock.Now(), false }

// mayHaveFallen reports whether the server may have found the agent silent
// although the rule does not want it.
func (a *agent) mayHaveFallen() bool {
	config, _ := a.body["heartbeat_config"].(fields)
	after, ok := config["unhealthy_after_seconds"].(int)
	if !ok {
		after = 90
	}
	return !a.t.cfg.Exact && !a.fell && !a.surely(seconds(after))
}

// inTime ends the try when that may have happened.
func (a *agent) inTime() {
	if a.mayHaveFallen() {
		a.t.spoiled("%s was silent for longer than it should", a.id)
	}
}

// record reads the agent as it is shown.
func (a *agent) record() *answer { return a.t.status(a.t.call(a.key, "GET", a.path(""), nil), 200) }

func (a *agent) status() string { return a.record().str("status") }

// expect reads the agent and expects a status.
func (a *agent) expect(status string) *answer {
	r := a.record()
	a.t.member(r, "status", status)
	return r
}

// etag is the version as an entity tag.
func (a *agent) etag() string { return fmt.Sprintf(`"%d"`, a.record().num("version")) }

// change asks for another status with the current version.
func (a *agent) change(by who, body fields) *answer { return a.changeIf(by, a.etag(), body) }

// changeIf does so with any If-Match; empty sends none.
func (a *agent) changeIf(by who, match string, body fields) *answer {
	var headers []string
	if match != "" {
		headers = []string{"If-Match", match}
	}
	return a.t.call(by, "PATCH", a.path("/status"), body, headers...)
}

// drain takes the agent out; it fails the rule when it cannot.
func (a *agent) drain(seconds int) *answer {
	r := a.t.status(a.change(a.key, fields{"status": "draining", "drain_timeout_seconds": seconds}), 200)
	a.inTime()
	return r
}

func (a *agent) remove() *answer {
	return a.t.status(a.t.call(a.key, "DELETE", a.path(""), nil), 200, 204)
}

// falls waits, in silence, until the server has judged the agent, which was
// last heard of just now.
func (a *agent) falls(to string) *answer {
	c := a.t.cfg
	after := c.Unhealthy
	if to == "dead" {
		after = c.Dead
	}
	a.inTime()
	a.fell = true
	a.t.sleep(seconds(after))
	return a.becomes(to, c.Slack)
}

// becomes looks at the agent until it has a status, at most for a time.
func (a *agent) becomes(status string, within time.Duration) *answer {
	for end := a.t.now().Add(within); ; a.t.sleep(a.t.cfg.Poll) {
		r := a.record()
		got := r.str("status")
		switch {
		case got == status:
			return r
		case status == "unhealthy" && got == "dead" && !a.surely(seconds(a.t.cfg.Dead)):
			a.t.spoiled("the agent was dead before it was seen unhealthy")
		case a.t.now().After(end) || status != got && gone(got):
			a.t.that(false, r, "status %q within %s", status, within)
		}
	}
}

// surely reports whether the server has had a sign of life within d, however
// long requests took.
func (a *agent) surely(d time.Duration) bool { return a.t.cfg.Clock.Now().Sub(a.sent) <= d }

func gone(status string) bool { return status == "dead" || status == "deregistered" }

// dying is an agent that has just been judged dead, silent ever since it
// registered.
func (t *Trial) dying(change fields) *agent {
	a := t.register(also(t.mortal(), change))
	a.falls("dead")
	return a
}

// unwell is an agent that has just been judged unhealthy and stays so.
func (t *Trial) unwell(change fields) *agent {
	a := t.register(also(t.lingering(), change))
	a.falls("unhealthy")
	return a
}

// draining is an agent that drains and goes on doing so, by a lease it holds
// where the server has leases.
func (t *Trial) draining(change fields) *agent {
	a := t.register(change)
	if t.s.has(Tasks) {
		t.leased(a)
	}
	if r := a.drain(3600); r.str("status") != "draining" {
		t.notRun("the server ends a drain at once when no lease is held, and leases are not used")
	}
	return a
}

// leave deregisters the agent, whatever has become of it, without a verdict.
func (a *agent) leave() bool {
	s, ctx := a.t.s, a.t.ctx
	ask := func(method, path string, body any) int {
		return s.do(ctx, request{
			by:     a.key,
			secret: s.keys[a.key],
			method: method,
			url:    s.cfg.URL + path,
			body:   body,
		}).status
	}
	status := ask("DELETE", a.path(""), nil)
	if status == 409 { // dead: only a registration leads on from there
		ask("POST", agentsPath, fields{"agent_id": a.id})
		status = ask("DELETE", a.path(""), nil)
	}
	return status/100 == 2 || status == 404
}

func seconds(n int) time.Duration { return time.Duration(n) * time.Second }
