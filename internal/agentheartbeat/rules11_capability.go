package agentheartbeat

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"slices"
	"strings"
	"time"

	"github.com/picket-dev/picket/internal/conformance"
)

// tool calls a tool of the tool proxy with a lease token or a session capability.
func (t *Trial) tool(secret, name string, arguments fields) *answer {
	return t.bearer(secret, "POST", "/v1/tools/"+name, arguments)
}

func (t *Trial) bearer(secret, method, path string, body any) *answer {
	return t.Send(conformance.Request{By: conformance.LeaseHolder, Secret: secret, Method: method, URL: t.s.Base + path,
		Body: body})
}

// capable has the agent work on a prompt of a person. It answers the prompt and its capability.
func (k *keeper) capable() (promptID, capability string) {
	c := k.promptCommand()
	id := text(c, "commandId")
	capability = newCapability(text(c, "namespace"), id)
	hash := sha256.Sum256([]byte(capability))
	accepted := fields{"incarnation": k.incarnation, "state": "accepted", "capabilityHash": hex.EncodeToString(hash[:])}
	a := k.t.Call(k.key, "POST", agentsPath+"/"+k.id+"/commands/"+id+"/result", accepted)
	k.t.ExpectStatus(a, 200, 204)
	return id, capability
}

// newCapability makes a session capability as an adapter does. Only the server can say whether it is valid.
func newCapability(namespace, promptID string) string {
	random := make([]byte, 32)
	_, _ = rand.Read(random) // it never fails
	return "pks_" + namespace + "." + strings.TrimPrefix(promptID, "prompt_") + "." +
		base64.RawURLEncoding.EncodeToString(random)
}

// envelope is one of money, by its id.
func (t *Trial) envelope(id string) *answer {
	return t.ExpectStatus(t.Call(operator, "GET", "/api/v1/envelopes/"+id, nil), 200)
}

// Section 11 and others: what the capability of a session opens, and what its prompts may spend.
var capabilityChecks = checks{
	"11/capability": func(t *Trial) {
		k := t.keep(t.name(), 1)
		id, capability := k.capable()
		t.ExpectStatus(t.bearer(capability, "GET", "/agent/context", nil), 200)
		namespace, _, _ := strings.Cut(strings.TrimPrefix(capability, "pks_"), ".")
		forged := newCapability(namespace, id)
		t.ExpectCode(t.bearer(forged, "GET", "/agent/context", nil), 401, "session_capability_invalid")
		t.ExpectCode(t.tool(capability, "mark_complete", fields{"output": "x"}), 403, "lease_required")
		k.mustResult(id, "answered")
		t.ExpectCode(t.bearer(capability, "GET", "/agent/context", nil), 401, "session_capability_invalid")
	},
	"11/next-task": func(t *Trial) {
		k := t.keep(t.name(), 1)
		id, capability := k.capable()
		t.ExpectMember(t.ExpectStatus(t.tool(capability, "next_task", fields{}), 200), "reserved", false)
		task := k.waiting()
		t.ExpectMember(t.ExpectStatus(t.tool(capability, "next_task", fields{}), 200), "reserved", true)
		t.ExpectMember(t.ExpectStatus(k.result(id, "answered", ""), 200), "nextTask", true)
		t.ExpectMember(t.Call(operator, "GET", "/api/v1/tasks/"+task, nil), "state", "queued")
	},
	"11/get-context": func(t *Trial) {
		k := t.keep(t.name(), 1)
		id, capability := k.capable()
		k.tell()
		k.waiting()
		for _, a := range []*answer{t.tool(capability, "get_context", fields{}),
			t.bearer(capability, "GET", "/agent/context", nil)} {
			t.ExpectStatus(a, 200)
			for path, want := range (fields{"self.agentId": k.id, "self.agentName": k.name,
				"session.sessionId": k.session(), "session.promptId": id, "unread.messages": 1}) {
				t.ExpectMember(a, path, want)
			}
			t.holds(a, "one task that could be taken", len(a.List("claimable")) == 1)
		}
	},
	"13/peek": func(t *Trial) {
		k := t.keep(t.name(), 1)
		_, capability := k.capable()
		k.tell()
		for i, peek := range []bool{true, true, false, false} {
			a := t.ExpectStatus(t.tool(capability, "read_messages", fields{"peek": peek}), 200)
			t.holds(a, "the message until it was read", len(a.List("messages")) == []int{1, 1, 1, 0}[i])
		}
	},
	"11/money": func(t *Trial) {
		k := t.metered(plain)
		day := t.day(k.name)
		k.sent()
		first := t.envelope("wake:" + k.name + ":" + day)
		id := k.prompted()
		p := t.envelope("prompt:" + k.name + ":" + day)
		for _, a := range []*answer{first, p} {
			t.ExpectMember(a, "parent", "sessions:"+day)
		}
		reserved := slices.ContainsFunc(p.List("children"), func(e fields) bool {
			return text(e, "id") == id && money(e, "granted.usd") > 0
		})
		t.holds(p, "what the prompt has reserved", reserved)
		k.answers(id)
		t.holds(t.Last, "nothing that a prompt keeps", money(t.envelope(id).Body, "available.usd") == 0)
		t.holds(t.Last, "nothing that a prompt spends", money(t.Last.Body, "spent.usd") == 0)
	},
	"6/wake_budget_exceeded": func(t *Trial) {
		t.retired = true
		name := t.name()
		t.write(name, plain)
		k := t.keepMetered(name, mostWakes)
		a := k.untilPoor()
		t.expectDecision(a, "skipped", "wake_budget_exceeded")
		t.holds(a, "an envelope of the day", strings.HasSuffix(a.Str("envelope"), ":"+t.day(name)))
		k.mustResult(text(k.prompts()[0], "promptId"), "answered")
		k.sessions = []string{a.Str("session_id")}
		t.expectDecision(k.dryRun(""), "sent", "wake_sent")
	},
}

// day is the UTC day whose budget the wakes of a name have now.
func (t *Trial) day(name string) string {
	renewed := t.ExpectTime(t.status(name, ""), "wake_budget.renewed_at")
	return renewed.Add(-24 * time.Hour).UTC().Format(time.DateOnly)
}

// money is an amount of dollars, or -1.
func money(in fields, path string) float64 {
	v, _ := conformance.Member(in, path)
	if amount, ok := v.(float64); ok {
		return amount
	}
	return -1
}

// untilPoor wakes sessions of one agent, each of which keeps what it has reserved, until one is refused. It answers
// that refusal.
func (k *keeper) untilPoor() *answer {
	t := k.t
	for _, id := range slices.Clone(k.sessions) {
		decided := k.beginWake(operator, fields{"session_id": id})
		command, decision := k.reached(decided)
		if command == nil && decision().Str("reason") == "heartbeat_rate_limited" {
			break
		} else if command == nil {
			return decision()
		}
		k.mustResult(text(command, "commandId"), "accepted")
		t.expectDecision(decision(), "sent", "wake_sent")
	}
	t.NotRun("no wake was refused for lack of money: the wakes of a day may reserve more than those of a cycle")
	return nil
}
