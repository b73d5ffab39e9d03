package agentheartbeat

import (
	"fmt"
	"net/url"
	"strings"

	"github.com/oklog/ulid/v2"

	"github.com/picket-dev/picket/internal/conformance"
)

const (
	agentsPath   = "/api/v1/agents"
	sessionsPath = "/api/v1/agent-sessions"
)

// keeper is an agent that keeps sessions, as an adapter does.
type keeper struct {
	t           *Trial
	id          string
	name        string // of the agent, which the policy is for
	incarnation int
	sessions    []string
	metered     bool    // its sessions are reported as metered
	key         keyName // by which it speaks
}

// patient are thresholds with which no agent falls silent in a rule.
var patient = fields{"interval_seconds": 30, "unhealthy_after_seconds": 3600, "dead_after_seconds": 7200}

// hasty are thresholds with which an agent is unhealthy after two seconds of silence.
var hasty = fields{"interval_seconds": 1, "unhealthy_after_seconds": 2, "dead_after_seconds": 7200}

// keep registers an agent under a name, with a number of idle sessions.
func (t *Trial) keep(name string, sessions int) *keeper { return t.keepWith(name, sessions, patient) }

func (t *Trial) keepWith(name string, sessions int, thresholds fields) *keeper {
	return t.registerKeeper(name, thresholds).begin(sessions)
}

// begin reports a number of new idle sessions.
func (k *keeper) begin(sessions int) *keeper {
	for range sessions {
		k.sessions = append(k.sessions, newSession())
	}
	k.reportIdle()
	return k
}

// registerKeeper registers an agent under a name. It keeps no sessions yet.
func (t *Trial) registerKeeper(name string, thresholds fields) *keeper {
	k := &keeper{t: t, id: t.ID(fmt.Sprintf("a%d", len(t.keepers)+1)), name: name, key: owner}
	t.keepers = append(t.keepers, k)
	a := t.ExpectStatus(t.Call(k.key, "POST", agentsPath, fields{
		"agent_id": k.id, "metadata": fields{"agent_name": name}, "heartbeat_config": thresholds,
		"capabilities": []string{t.ID("t")},
	}), 201)
	k.incarnation = a.Num("incarnation")
	return k
}

// wakeable is an agent with one idle session and a policy.
func (t *Trial) wakeable(text string) *keeper {
	name := t.name()
	t.write(name, text)
	return t.keep(name, 1)
}

func newSession() string { return "asession_" + ulid.Make().String() }

func newPrompt() string { return "prompt_" + ulid.Make().String() }

// idle is a session that waits for prompts, as it is reported.
func idle(id string) fields {
	return fields{"sessionId": id, "kind": "resident", "preset": "exec", "state": "idle"}
}

// tryReport reports a list of sessions with any key.
func (k *keeper) tryReport(by keyName, sessions ...fields) *answer {
	if sessions == nil {
		sessions = []fields{}
	}
	return k.t.Call(by, "PUT", agentsPath+"/"+k.id+"/sessions",
		fields{"incarnation": k.incarnation, "sessions": sessions})
}

func (k *keeper) report(sessions ...fields) {
	k.t.ExpectStatus(k.tryReport(k.key, sessions...), 200, 204)
}

// reportIdle reports that all its sessions are idle.
func (k *keeper) reportIdle() {
	var list []fields
	for _, id := range k.sessions {
		list = append(list, merge(idle(id), fields{"metered": k.metered}))
	}
	k.report(list...)
}

// session is the id of its first session.
func (k *keeper) session() string { return k.sessions[0] }

// look reads its first session.
func (k *keeper) look() *answer {
	return k.t.ExpectStatus(k.t.Call(operator, "GET", sessionsPath+"/"+k.session(), nil), 200)
}

// expectHealth reads the session, and expects state, health, reason and detail. An empty one is null.
func (k *keeper) expectHealth(state, health, reason, detail string) *answer {
	a := k.look()
	k.t.expectHealth(a, state, health, reason, detail)
	return a
}

func (t *Trial) expectHealth(a *answer, state, health, reason, detail string) {
	t.ExpectMember(a, "health.state", state)
	t.ExpectMember(a, "health.health", health)
	t.ExpectMember(a, "health.ineligibility_reason", orNull(reason))
	t.ExpectMember(a, "health.detail_code", orNull(detail))
	t.ExpectMember(a, "health.eligible_for_wake", reason == "")
}

func orNull(text string) any {
	if text == "" {
		return nil
	}
	return text
}

// pending is one long poll for commands. known are ids that it has.
func (k *keeper) pending(seconds int, known ...string) []fields {
	a := k.t.ExpectStatus(k.t.Call(k.key, "GET", k.pendingPath(seconds, known...), nil), 200)
	return a.List("sessions")
}

func (k *keeper) pendingPath(seconds int, known ...string) string {
	q := url.Values{"incarnation": {fmt.Sprint(k.incarnation)}, "waitSeconds": {fmt.Sprint(seconds)}}
	if len(known) > 0 {
		q.Set("known", strings.Join(known, ","))
	}
	return agentsPath + "/" + k.id + "/commands/pending?" + q.Encode()
}

// next waits for a command of a kind for its sessions.
func (k *keeper) next(kind string) fields {
	list := k.pending(8)
	k.t.Assert(len(list) > 0 && conformance.Text(list[0], "command") == kind, k.t.Last, "a command %s", kind)
	return list[0]
}

// result says what became of a command.
func (k *keeper) result(id, state, reason string) *answer {
	return k.t.Call(k.key, "POST", agentsPath+"/"+k.id+"/commands/"+id+"/result",
		merge(fields{"incarnation": k.incarnation, "state": state, "reason": orNull(reason)}))
}

// answers ends a prompt that the adapter has accepted, and reports that the session is idle again.
func (k *keeper) answers(id string) {
	k.mustResult(id, "answered")
	k.reportIdle()
}

func (k *keeper) mustResult(id, state string) { k.t.ExpectStatus(k.result(id, state, ""), 200, 204) }

// wakeBody asks for a wake of its first session.
func (k *keeper) wakeBody(change ...fields) fields {
	return merge(append([]fields{{"session_id": k.session()}}, change...)...)
}

// wake asks for a wake as an operator, and answers what was decided.
func (k *keeper) wake(change ...fields) *answer {
	return k.t.Call(operator, "POST", policyPath(k.name, "/wake"), k.wakeBody(change...))
}

// dryRun asks what would be decided at an instant; empty: now.
func (k *keeper) dryRun(at string) *answer { return k.wake(fields{"dry_run": true, "at": orNull(at)}) }

// beginWake asks for a wake, and does not wait for the decision.
func (k *keeper) beginWake(by keyName, change ...fields) <-chan *answer {
	decided := make(chan *answer, 1)
	k.t.s.noteWake(k.name)
	body, ctx := k.wakeBody(change...), k.t.Ctx
	go func() { decided <- k.t.s.Ask(ctx, by, "POST", policyPath(k.name, "/wake"), body) }()
	return decided
}

// deliver begins a wake, waits until it reaches the adapter, and gives the adapter's answer. It answers the
// command and the decision.
func (k *keeper) deliver(state, reason string, change ...fields) (fields, *answer) {
	decided := k.beginWake(operator, change...)
	command, decision := k.reached(decided)
	k.t.Assert(command != nil, k.t.Last, "a wake that reaches the adapter")
	k.t.Assert(conformance.Text(command, "command") == "wake", k.t.Last, "a command wake")
	k.t.ExpectStatus(k.result(conformance.Text(command, "commandId"), state, reason), 200, 204)
	return command, decision()
}

// reached waits until a wake reaches the adapter. Without a command, the wake was refused before. decision waits for
// the decision.
func (k *keeper) reached(decided <-chan *answer) (command fields, decision func() *answer) {
	for {
		if list := k.pending(1); len(list) > 0 {
			return list[0], func() *answer { return k.t.Accept(<-decided) }
		}
		select {
		case a := <-decided:
			k.t.Accept(a)
			return nil, func() *answer { return a }
		default:
			k.t.Sleep(k.t.s.cfg.Poll) // the poll of a wrong server may end at once
		}
	}
}

// sent wakes the session, and ends the prompt of the wake.
func (k *keeper) sent(change ...fields) (command fields, decision *answer) {
	command, decision = k.deliver("accepted", "", change...)
	k.t.expectDecision(decision, "sent", "wake_sent")
	k.mustResult(conformance.Text(command, "commandId"), "answered")
	return command, decision
}

// expectDecision expects a result and its reason.
func (t *Trial) expectDecision(a *answer, result, reason string) *answer {
	t.ExpectStatus(a, 200)
	t.ExpectMember(a, "result", result)
	t.ExpectMember(a, "reason", reason)
	return a
}

// refuses expects that a wake of the session is skipped for a reason.
func (k *keeper) refuses(reason string) *answer {
	return k.t.expectDecision(k.wake(), "skipped", reason)
}

// prompt sends a prompt of a person, and answers its id.
func (k *keeper) prompt() string {
	a := k.t.Call(operator, "POST", sessionsPath+"/"+k.session()+"/prompts", fields{"text": "hello"})
	return k.t.ExpectStatus(a, 201).Str("promptId")
}

// prompted has a prompt of a person that the adapter has accepted, and reports it.
func (k *keeper) prompted() string {
	id := k.prompt()
	c := k.next("prompt")
	k.t.ExpectEqual("commandId", c["commandId"], id)
	k.mustResult(id, "accepted")
	k.report(merge(idle(k.session()), fields{"state": "prompting", "promptId": id}))
	return id
}

// prompts are those of its first session, newest first.
func (k *keeper) prompts() []fields {
	a := k.t.ExpectStatus(k.t.Call(operator, "GET", sessionsPath+"/"+k.session()+"/prompts", nil), 200)
	return a.List("prompts")
}

// wakes are the kept decisions about its first session, newest first.
func (k *keeper) wakes() (list []fields) {
	a := k.t.ExpectStatus(k.t.Call(operator, "GET", policyPath(k.name, "/wakes?limit=100"), nil), 200)
	for _, w := range a.List("wakes") {
		if conformance.Text(w, "session_id") == k.session() {
			list = append(list, w)
		}
	}
	return list
}
