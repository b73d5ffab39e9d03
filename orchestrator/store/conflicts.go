package store

import "fmt"

// conflictTexts are the messages and remedies of "state_conflict.reason", by reason.
// Without a reason, the refusal has the facts state and need.
var conflictTexts = map[string]func(f facts) (message, remedy string){
	"webhook_limit": func(f facts) (string, string) {
		return "there are " + f["limit"] + " webhooks already, and more are not kept",
			"Delete one that nobody needs, or let one target pass things on to others."
	},
	"webhook_deleted": func(facts) (string, string) {
		return "the webhook that this request made was deleted", "Send a new Idempotency-Key to make a new one."
	},
	"webhook_claim_over": func(facts) (string, string) {
		return "the claim on this webhook is over", "Claim it again. The process that holds the claim now continues the deliveries."
	},
	"call_uncertain": func(facts) (string, string) {
		return "the call was made, and its outcome is unknown",
			"Look at what it was to change before you decide; to make the call again send a new Idempotency-Key."
	},
	"result_not_kept": func(facts) (string, string) {
		return "the call was made, but its result was not kept",
			"Send a new Idempotency-Key to make the call again."
	},
	"evidence_replaced": func(f facts) (string, string) {
		return "the run has replaced its evidence " + f["limit"] + " times, which is the limit",
			"Keep the changes where they are. The evidence that was sent last is kept."
	},
	"log_closed": func(facts) (string, string) {
		return "the run has said that nothing follows in this stream", "Send no more of it; what was kept stays."
	},
	"exec_over": func(facts) (string, string) {
		return "no call waits for this result: its deadline has passed",
			"Drop the result; the call was settled without it."
	},
	"retried": func(f facts) (string, string) {
		return f.alreadyDecided() + ", as " + f["newTaskId"],
			"Look at that one: picket task get " + f["newTaskId"] +
				". When it has ended this one can be retried again."
	},
	"decided": func(f facts) (string, string) {
		return f.alreadyDecided(), "Look at what was decided before you go on."
	},
	"other_run": func(f facts) (string, string) {
		return "the run " + f["meant"] + " has lost the task already: " + f["current"] + " has it now",
			"Look at what that run does before you decide."
	},
	"claimed": func(f facts) (string, string) {
		return f.decidedBy() + " has claimed it" + f.decidedAt(),
			`Leave it to them, decide it all the same, or take it over: {"takeOver":true}, or picket handoff claim ` +
				f["handoffId"] + " --take-over"
	},
	"last_admin_key": func(facts) (string, string) {
		return "this is the last admin key: without it nobody could make another",
			"Make another admin key, then revoke this one with it."
	},
	"agent_status": func(f facts) (string, string) {
		return fmt.Sprintf("an agent that is %s cannot be made %s", f["status"], f["asked"]),
			"Read the agent again before you decide; one that is dead or deregistered registers again."
	},
	"agent_registered": func(f facts) (string, string) {
		return "an agent of this id is registered already and is " + f["status"],
			"Deregister it first (DELETE), wait until it is dead, or register under another id."
	},
}
