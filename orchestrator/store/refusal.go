package store

import (
	"cmp"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/budget"
	"github.com/picket-dev/picket/internal/text"
)

// What the scripts say to this package; a caller sees orchestrator_unavailable.
var (
	errStoreLost      = errors.New("the store has lost this namespace")
	errStoreChanged   = errors.New("the store is not the one this process knows")
	errFloorExhausted = errors.New("the tokens above the floor are used up")
	errAdoptLost      = errors.New("another process adopted the store")
	ErrJudgeDue       = errors.New("time has changed the status of the agent")
	errStoreNewer     = errors.New("the store was written by a later version of picket")
)

// scriptErrors are their codes.
var scriptErrors = map[string]error{
	"store_lost":      errStoreLost,
	"store_changed":   errStoreChanged,
	"floor_exhausted": errFloorExhausted,
	"adopt_lost":      errAdoptLost,
	"judge_due":       ErrJudgeDue,
	"store_newer":     errStoreNewer,
}

// IsInternalCode reports whether a script tells a code to this process alone. A
// client sees CodeUnavailable instead.
func IsInternalCode(code string) bool { return scriptErrors[code] != nil }

// facts are the key=value pairs of a script's refusal.
type facts map[string]string

func (f facts) or(key, otherwise string) string {
	if v := f[key]; v != "" && v != "-" {
		return v
	}
	return otherwise
}

// refusalTexts says, for each code a script answers, what happened and what to do.
// A model reads it, so the remedy is an instruction.
var refusalTexts = map[picket.Code]func(f facts) (message, remedy string){
	picket.CodeStaleFence: func(f facts) (string, string) {
		if f["owner"] == "own" {
			return fmt.Sprintf("token %s is not one of this lease; the current one is %s", f["presented"],
					f["current"]),
				"Send the fencing token of your own lease, or leave the header out."
		}
		to := "another run"
		if o := f.or("owner", ""); o != "" {
			to = o
		}
		return fmt.Sprintf("token %s was superseded by %s", f["presented"], f["current"]),
			"Stop writing and exit: this task now belongs to " + to + "."
	},
	picket.CodeUnknownFence: func(f facts) (string, string) {
		return fmt.Sprintf("token %s was never granted; the current one is %s", f["presented"], f["current"]),
			"Send the fencing token of your own lease, or leave the header out."
	},
	picket.CodeLeaseExpired: func(f facts) (string, string) {
		switch f["cause"] {
		case "evidence_closed":
			return "evidence is accepted until 15 minutes after the lease ended",
				"Keep the output where it is; the run's record is closed."
		case "replayed":
			return "a lease granted by this request has ended", "Acquire again with a new Idempotency-Key."
		}
		return "the lease has expired", "Stop writing and exit: the task will be given to another run."
	},
	picket.CodeLeaseReleased: func(f facts) (string, string) {
		return fmt.Sprintf("the lease has ended (%s); the task is in state %s", f.or("cause", "released"),
				f.or("state", "unknown")),
			"Stop writing and exit: nothing more can be changed under this lease."
	},
	picket.CodeReclaimRequired: func(facts) (string, string) {
		return "the lease was granted before the store was restored or replaced",
			"Reclaim the lease with the same lease token (POST /v1/lease/reclaim), then repeat the request."
	},
	picket.CodeTaskMismatch: func(f facts) (string, string) {
		return "the lease does not belong to this task", "Use the lease token exactly as it was handed to you."
	},
	picket.CodeTaskCancelled: func(facts) (string, string) {
		return "the task was cancelled", "Stop writing and exit: nobody needs this work any more."
	},
	picket.CodeTaskClosed: func(f facts) (string, string) {
		if f["kind"] == "exit" {
			return "the task was decided, so the reported exit of its run cannot be changed any more",
				"Send no further exit. The one that was reported first is kept."
		}
		if f["kind"] == "evidence" {
			return "the task was decided, so the evidence of its runs cannot be changed any more",
				"Keep the changes where they are. To show more, create a new task (fixes = this task)."
		}
		if f["decision"] != "" {
			return f.alreadyDecided(),
				"Look at what was decided; for what is left to do create a new task (fixes = this task)."
		}
		return "the task is " + f["state"] + " and cannot be changed any more",
			"Create a new task for what is left to do (fixes = this task)."
	},
	picket.CodeBudgetExceeded: explainBudget,
	picket.CodeChildrenOpen: func(f facts) (string, string) {
		message := f["open"] + " subtasks have not ended, the first of them is " + f["first"]
		if f["open"] == "1" {
			message = "the subtask " + f["first"] + " has not ended"
		}
		return message,
			`Await and review them first (await_subtask, review_subtask). Or decide about them: "children": "detach" leaves them to people, "cancel" ends them.`
	},
	picket.CodeDelegation: func(f facts) (string, string) {
		if f["of"] == "depth" {
			return "this task is " + f["limit"] + " levels below the first one, and deeper ones are not made",
				"Do this part yourself."
		}
		return "this task has made " + f["limit"] + " subtasks, and more are not made",
			"Do this part yourself, or give it to a subtask of a subtask."
	},
	picket.CodeAuthorCannotReview: func(facts) (string, string) {
		return "this is the task that you work on yourself", "Hand it in with mark_complete; somebody else reviews it."
	},
	picket.CodePaused: func(facts) (string, string) {
		return "the namespace is paused: nothing that costs money is called",
			"Wait until a person resumes it, then repeat the call."
	},
	picket.CodeLeaseEnding: func(facts) (string, string) {
		return "the lease ends too soon to begin something outside", "Renew the lease, or finish; then repeat the call."
	},
	picket.CodeCallRunning: func(facts) (string, string) {
		return "a call with this idempotency key is under way",
			"Wait for its answer, or repeat the same call later: it is made once."
	},
	picket.CodeStateConflict: func(f facts) (string, string) {
		return fmt.Sprintf("this needs state %s, but it is %s", strings.ReplaceAll(f["need"], "_", " "), f["state"]),
			"Look at the task again before you decide."
	},
	picket.CodeUnauthenticated: func(f facts) (string, string) {
		if f["kind"] == "session" {
			return "the session is over", "Log in again with a key."
		}
		if f["kind"] == "code" {
			return "the sign-in has expired or was used before", "Sign in again with a key."
		}
		return "the API key is not valid", "Check the key, or make a new one with: picket key create"
	},
	picket.CodeForbidden: func(f facts) (string, string) {
		if f["kind"] == "run_key" {
			return "a run key cannot make run keys", "Send the request with a key of scope operator."
		}
		if f["kind"] == "review" {
			return "a person reviews this subtask", "Go on, or wait for the decision with await_subtask."
		}
		if f["kind"] == "registration" {
			return "the agent was registered by another key, and its id stays with that key",
				"Register it with the key of before, or under another id."
		}
		return "the agent was registered by another key",
			"Use the key that registered it, or one of an operator; or register under an id of your own."
	},
	picket.CodeAgentDraining: func(facts) (string, string) {
		return "the agent is draining: it finishes what it has and gets nothing new",
			"Finish the tasks in progress, then exit; the agent is deregistered when its last lease ends."
	},
	picket.CodePreconditionRequired: func(facts) (string, string) {
		return "the task has evidence, and the decision has no digest of the review",
			"Look at the review, then send its digest with the decision."
	},
	picket.CodeVersion: func(f facts) (string, string) {
		if f["count"] != "" {
			return fmt.Sprintf("%s tasks are meant now, not %s", f["count"], f["presented"]),
				"Look at the queue again, then send the number that you see."
		}
		if f["kind"] == "review" {
			return "the review has changed since it was looked at: " +
					picket.DigestChange(f["presented"], f["current"]),
				"Look at the review again, then decide with the digest that it shows now."
		}
		return fmt.Sprintf("the agent is at version %s, not %s", f["current"], f["presented"]),
			"Read the agent again, decide again, and send its ETag as If-Match."
	},
	picket.CodeNotAvailable: func(facts) (string, string) {
		return "the adapter of this run starts no processes", "Do without it, or start them yourself."
	},
	picket.CodeRateLimited: func(f facts) (string, string) {
		if f["kind"] == "exec" {
			return f["pending"] + " processes of this run are under way already", "Wait until one has ended."
		}
		if f["kind"] == "usage" {
			return "this run reports usage too often",
				"Report again in 5 seconds. The running total then includes everything since the last report."
		}
		return f["pending"] + " commands wait for this agent already",
			"Wait until it has handled some; it gets them with its next heartbeat."
	},
	picket.CodeAgentGone: func(f facts) (string, string) {
		if !picket.AgentStatus(f["status"]).Gone() {
			return "the agent was registered again, so this process is not it any more",
				"Stop all work and exit; or register under an id of your own."
		}
		if f["kind"] == "command" {
			return "the agent is " + f["status"] + " (" + f["reason"] + ") and gets no command any more",
				"Look at the agents that are left, or wait until this one is started and registers again."
		}
		return "the agent is " + f["status"] + " (" + f["reason"] + ")",
			"Stop all work first, its leases have ended; then register again (POST /api/v1/agents)."
	},
	picket.CodeNotFound: func(f facts) (string, string) {
		if f["kind"] == "agent" {
			return "there is no such agent",
				"Check the id, or register (POST /api/v1/agents); agents that are gone are deleted after the retention time."
		}
		if f["kind"] == "subtask" {
			return "your task has no such subtask",
				"Use a taskId that delegate_subtask answered; get_task lists them as children."
		}
		if f["kind"] == "day" {
			return "there is no limit a day here, so the day has no envelope",
				"Set budget.house in picket.yaml, or name a task, by its id."
		}
		if day, isHouse := strings.CutPrefix(f["envelope"], "house:"); isHouse {
			return "there is no envelope for the day " + day,
				"Only days (UTC) on which tasks were submitted have one. Name such a day, house for today's, or a task, by its id."
		}
		if kind := f["kind"]; kind == "key" || kind == "webhook" || kind == "agent" {
			return "there is no such " + kind, "Check the id: copy it from a listing."
		}
		return "there is no such " + f.or("kind", "thing"),
			"Check the id; closed tasks are deleted after the retention time."
	},
	picket.CodeIdempotencyConflict: func(facts) (string, string) {
		return "this idempotency key was used with another body",
			"Send a new key for a new request, or the same body to repeat the old one."
	},
	picket.CodeTooManyLanes: func(f facts) (string, string) {
		return "there are " + f["limit"] + " different combinations of role, needs and agent waiting already",
			"Use fewer different roles and needs, or wait until queued tasks have been taken."
	},
	picket.CodeQuota: explainQuota,
	picket.CodeOffset: func(f facts) (string, string) {
		return fmt.Sprintf("the log is known up to byte %s, not %s", f["expected"], f["presented"]),
			"Continue from the offset expected."
	},
	picket.CodeValidation: func(f facts) (string, string) {
		if f["field"] == "/session" {
			return "this run has reported " + f["limit"] + " sessions, and more are not kept",
				"Report under a session that was reported before."
		}
		if limit := f["limit"]; limit != "" {
			if f["field"] == "/usd" {
				limit = budget.Money(ParseInt(limit)).Dollars()
			}
			return f["field"] + " would be beyond " + limit + ", which is as much as is counted", "Add less."
		}
		return f["field"] + " is not one of the options offered",
			"Choose an option of the hand-off, or answer with text."
	},
}

// parseFacts reads the facts of "code key=value ...".
func parseFacts(line string) facts {
	f := facts{}
	for _, w := range strings.Fields(line) {
		if k, v, ok := strings.Cut(w, "="); ok {
			f[k] = v
		}
	}
	return f
}

// ParseRefusal reads "code key=value ..." or "code.reason key=value ..." as a script
// writes it. It returns nil if the code or the reason is not known.
func ParseRefusal(line string) *picket.Error {
	word, rest, _ := strings.Cut(line, " ")
	word, reason, _ := strings.Cut(word, ".")
	code := picket.Code(word)
	say := refusalTexts[code]
	if reason != "" {
		if say = conflictTexts[reason]; code != picket.CodeStateConflict {
			return nil
		}
	}
	if say == nil {
		return nil
	}
	f := parseFacts(rest)
	for _, k := range freeTextFacts {
		if s, err := url.PathUnescape(f[k]); err == nil && f[k] != "" {
			f[k] = text.Excerpt(s, maxFreeText)
		}
	}
	message, remedy := say(f)
	e := picket.Refuse(code, remedy, "%s", message)
	for k, v := range f {
		if v == "" || v == "-" || v == "own" || k == "refused" || k == "kind" {
			continue
		}
		if k == "status" {
			k = "agent_status" // status is that of HTTP in every error body
		}
		if slices.Contains(freeTextFacts, k) {
			e.With(k, v)
		} else if n, err := strconv.ParseInt(v, 10, 64); err == nil && k == "at" {
			e.With(k, picket.Instant(n))
		} else if err == nil {
			e.With(k, n)
		} else {
			e.With(k, v)
		}
	}
	if code == picket.CodeBudgetExceeded {
		addAmounts(e, f)
	}
	return e
}

// What the second of two people is told: who has decided what, and when.

// decidedBy names the person who decided first.
func (f facts) decidedBy() string {
	by := f.or("by", "somebody")
	if by == "deadline" {
		return "its deadline"
	}
	if name := f.or("byName", ""); name != "" {
		return name + " (" + by + ")"
	}
	return by
}

// decidedAt says when that was; "" when nobody knows.
func (f facts) decidedAt() string {
	if at := ParseInt(f["at"]); at > 0 {
		return " at " + picket.Instant(at).String()
	}
	return ""
}

// pastTense are decisions as they are told.
var pastTense = map[string]string{
	"answer":  "answered",
	"finish":  "finished",
	"cancel":  "cancelled",
	"approve": "approved",
	"reject":  "rejected",
	"pause":   "paused",
	"stop":    "stopped",
	"retry":   "retried",
}

// alreadyDecided is who has decided what, and when.
func (f facts) alreadyDecided() string {
	said := cmp.Or(f["answer"], f["note"], f["reason"])
	if said != "" {
		said = ": " + said
	}
	return f.decidedBy() + " " + pastTense[f["decision"]] + " it already" + f.decidedAt() + said
}

// maxFreeText is how many characters of a free text a refusal repeats.
const maxFreeText = 500

// freeTextFacts are the facts that hold free text: a script has escaped it.
var freeTextFacts = []string{"byName", "answer", "note", "reason"}
