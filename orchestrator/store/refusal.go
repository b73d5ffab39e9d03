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
	"github.com/picket-dev/picket/internal/lazyregexp"
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
	errStoreMigrating = errors.New("the store is converted to a new format")
	errPartlyWritten  = errors.New("some writes of this request were refused by Redis, so its outcome is unknown")
)

// scriptErrors are their codes.
var scriptErrors = map[string]error{
	"store_lost":      errStoreLost,
	"store_changed":   errStoreChanged,
	"floor_exhausted": errFloorExhausted,
	"adopt_lost":      errAdoptLost,
	"judge_due":       ErrJudgeDue,
	"store_newer":     errStoreNewer,
	"store_migrating": errStoreMigrating,
	"partly_written":  errPartlyWritten,
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

// refusalText is what a refusal says. In either text {name} stands for a fact, see
// [facts.word].
type refusalText struct {
	message string // what happened
	remedy  string // what to do: a model reads it, so it is an instruction
}

// refusalTexts are the texts of each code that a script answers. A code can have
// variants, see [facts.variant]; "" is for all others.
var refusalTexts = map[picket.Code]map[string]refusalText{
	picket.CodeStaleFence: {
		"own": {"token {presented} is not one of this lease; the current one is {current}",
			"Send the fencing token of your own lease, or leave the header out."},
		"-": {"token {presented} was superseded by {current}",
			"Stop writing and exit: the task was taken away from this run."},
		"": {"token {presented} was superseded by {current}",
			"Stop writing and exit: this task now belongs to {owner}."},
	},
	picket.CodeUnknownFence: {"": {"token {presented} was never granted; the current one is {current}",
		"Send the fencing token of your own lease, or leave the header out."}},
	picket.CodeLeaseExpired: {
		"evidence_closed": {"evidence is accepted until 15 minutes after the lease ended",
			"Keep the output where it is; the run's record is closed."},
		"replayed": {"a lease granted by this request has ended", "Acquire again with a new Idempotency-Key."},
		"":         {"the lease has expired", "Stop writing and exit: nothing more can be changed under this lease."},
	},
	picket.CodeLeaseReleased: {"": {"the lease has ended ({cause}); the task is in state {state}",
		"Stop writing and exit: nothing more can be changed under this lease."}},
	picket.CodeReclaimRequired: {"": {"the lease was granted before the store was restored or replaced",
		"Reclaim the lease with the same lease token (POST /v1/lease/reclaim), then repeat the request."}},
	picket.CodeTaskMismatch: {"": {"the lease does not belong to this task",
		"Use the lease token exactly as it was handed to you."}},
	picket.CodeTaskCancelled: {"": {"the task was cancelled", "Stop writing and exit: nobody needs this work any more."}},
	picket.CodeInboxFull: {"": {"{unread} messages with {bytes} bytes wait in this inbox, and it takes no more",
		"Wait until the agent has read some of them, or let a person ask it what keeps it."}},
	picket.CodeNoPolicy: {"": {"the agent name has no wake policy",
		"Write one: picket agent heartbeat write NAME --file HEARTBEAT.md"}},
	picket.CodeRevisionNotFound: {"": {"no revision that is kept has this id",
		"List them: picket agent heartbeat history NAME"}},
	picket.CodePolicyConflict: {"": {"the wake policy was changed meanwhile", "Read it, and send the change again."}},
	picket.CodeTaskClosed: {
		"message": {"the task is {state}, so no agent reads messages to it any more",
			"Create a new task for what is left to do (fixes = this task)."},
		"exit": {"the task was decided, so the reported exit of its run cannot be changed any more",
			"Send no further exit. The one that was reported first is kept."},
		"evidence": {"the task was decided, so the evidence of its runs cannot be changed any more",
			"Keep the changes where they are. To show more, create a new task (fixes = this task)."},
		"decided": {"{alreadyDecided}",
			"Look at what was decided; for what is left to do create a new task (fixes = this task)."},
		"": {"the task is {state} and cannot be changed any more",
			"Create a new task for what is left to do (fixes = this task)."},
	},
	picket.CodeChildrenOpen: {
		"one": {"the subtask {first} has not ended", remedyOfChildren},
		"":    {"{open} subtasks have not ended, the first of them is {first}", remedyOfChildren},
	},
	picket.CodeDelegation: {
		"depth": {"this task is {limit} levels below the first one, and deeper ones are not made",
			"Do this part yourself."},
		"": {"this task has made {limit} subtasks, and more are not made",
			"Do this part yourself, or give it to a subtask of a subtask."},
	},
	picket.CodeAuthorCannotReview: {"": {"this is the task that you work on yourself",
		"Hand it in with mark_complete; somebody else reviews it."}},
	picket.CodePaused: {"": {"the namespace is paused: nothing that costs money is called",
		"Wait until a person resumes it, then repeat the call."}},
	picket.CodeLeaseEnding: {"": {"the lease ends too soon to begin something outside",
		"Renew the lease, or finish; then repeat the call."}},
	picket.CodeCallRunning: {"": {"a call with this idempotency key is under way",
		"Wait for its answer, or repeat the same call later: it is made once."}},
	picket.CodeCallRepeated: {"": {"this call was made {limit} times with the same arguments and nothing else in between",
		"Use the answers that you have. If they do not help, change the arguments or report_progress what blocks you. After any other tool call this one is admitted again."}},
	picket.CodeUnauthenticated: {
		"session": {"the login has ended", "Log in again with a key."},
		"code":    {"the sign-in has expired or was used before", "Sign in again with a key."},
		"lease": {"the lease token is malformed, or it does not belong to a lease of this key",
			"Send the leaseToken of a lease that this key has acquired; it starts with pkl_."},
		"": {"the API key is not valid", "Check the key, or make a new one with: picket key create"},
	},
	picket.CodeSessionCapability: capabilityTexts,
	picket.CodeForbidden: {
		"run_key":    {"a run key cannot make run keys", "Send the request with a key of scope operator."},
		"client_key": {"a key with scope client cannot make run keys", "Send the request with a key of scope operator."},
		"message": {"a message can go to an agent, a subtask of this task, or the task above it",
			"Send it to one of these, or leave /to out to tell the people who follow this task."},
		"agent_session": {"the session is that of another agent", "Use the key that registered that agent. If it is the same key, the session can be reported when that agent is dead."},
		"review":        {"a person reviews this subtask", "Go on, or wait for the decision with await_subtask."},
		"registration": {"the agent was registered by another key, and its id stays with that key",
			"Register it with the key that registered it first, or under another id."},
		"": {"the agent was registered by another key",
			"Use the key that registered it, or one of an operator; or register under an id of your own."},
	},
	picket.CodeAgentDraining: {"": {"the agent is draining: it finishes what it has and gets nothing new",
		"Finish the tasks in progress, then exit; the agent is deregistered when its last lease ends."}},
	picket.CodePreconditionRequired: {"": {"the task has evidence, and the decision has no digest of the review",
		"Look at the review, then send its digest with the decision."}},
	picket.CodeVersion: {
		"count": {"{count} tasks are meant now, not {presented}",
			"Look at the queue again, then send the number that you see."},
		"review": {"the review has changed since it was looked at: {digestChange}",
			"Look at the review again, then decide with the digest that it shows now."},
		"": {"the agent is at version {current}, not {presented}",
			"Read the agent again, decide again, and send its ETag as If-Match."},
	},
	picket.CodeNotAvailable: {"": {"the adapter of this run starts no processes", "Do without it, or start them yourself."}},
	picket.CodeRateLimited: {
		"messages": {"this key or lease has sent more than {limit} messages within a minute",
			"Wait a few seconds before the next message, or say more in one."},
		"agent_session": {"the agent begins sessions too often",
			"Keep the sessions that there are. It may begin one every 10 seconds, and 128 at once."},
		"exec": {"{pending} processes of this run are under way already", "Wait until one has ended."},
		"usage": {"this run reports usage too often",
			"Report again in 5 seconds. The running total then includes everything since the last report."},
		"": {"{pending} commands wait for this agent already",
			"Wait until it has handled some; it gets them with its next heartbeat."},
	},
	picket.CodeAgentGone: {
		"registered": {"the agent was registered again, so this process is not it any more",
			"Stop all work and exit; or register under an id of your own."},
		"message": {"the agent is {status} ({reason}) and reads no messages any more",
			"Look at the agents that are left, or wait until this one is started and registers again."},
		"command": {"the agent is {status} ({reason}) and gets no command any more",
			"Look at the agents that are left, or wait until this one is started and registers again."},
		"": {"the agent is {status} ({reason})",
			"Stop all work first, its leases have ended; then register again (POST /api/v1/agents)."},
	},
	picket.CodeNotFound: {
		"agent": {"there is no such agent",
			"Check the id, or register (POST /api/v1/agents); agents that are gone are deleted after the retention time."},
		"subtask": {"your task has no such subtask",
			"Use a taskId that delegate_subtask answered; get_task lists them as children."},
		"day": {"there is no limit a day here, so the day has no envelope",
			"Set budget.house in picket.yaml, or name a task, by its id."},
		"artifact": {"the task has no artifact with this id", "Emit it first without append."},
		"message": {"there is no message with this id in the conversation",
			"Copy replyTo from a message that was read here, or leave it out."},
		"house": {"there is no envelope for the day {day}",
			"Only days (UTC) on which tasks were submitted have one. Name such a day, house for today's, or a task, by its id."},
		"key": {"there is no such key", "Check the id: copy it from a listing."},
		"push": {"the task has no such push configuration",
			"List those of the task. A configuration is deleted once the end of its task was delivered or given up."},
		"webhook": {"there is no such webhook", "Check the id: copy it from a listing."},
		"agent_session": {"there is no such session",
			"Check the id: picket session list. A session that was never prompted is deleted when it ends."},
		"prompt": {"there is no such prompt", "Check the ids. A prompt is deleted a week after it has ended."},
		"":       {"there is no such {kind}", "Check the id; closed tasks are deleted after the retention time."},
	},
	picket.CodeIdempotencyConflict: {
		"message": {"this message id, or this idempotency key, was used for another message",
			"Leave it out, or make a new one for each message."},
		"": {"this idempotency key was used with another body",
			"Send a new key for a new request, or the same body to repeat the old one."},
	},
	picket.CodeTooManyLanes: {"": {"there are {limit} different combinations of role, needs and agent waiting already",
		"Use fewer different roles and needs, or wait until queued tasks have been taken."}},
	picket.CodeQuota: {
		"agents": {"the key has registered {limit} agents",
			"Register an id again that this key has used before, wait until records of deregistered agents are deleted, or use another key."},
		"metadata_bytes": {"the metadata of the agents of this key would have more than {limit} bytes",
			"Send less metadata, or deregister agents. Their records are deleted after retention.tasks."},
		"subtasks": {"the tree of this task has {limit} subtasks",
			"Do this part yourself, or complete the task with what you have and let a person submit the rest."},
		"calls": {"the tree of this task has made {limit} calls within a day",
			"Make fewer calls, or repeat the call in some hours."},
		"run_keys": {"the key has {limit} run keys",
			"Wait until a `picket run` with this key has ended, or use another key."},
		"bundle_bytes": {"the bundle has more than {limit} bytes, which is the most that this server keeps of one",
			"Go on without it, or raise quota.bundle_bytes. The branch stays on the machine of the worker."},
		"bundles_bytes": {"the bundles of this key with its run keys, or of this tree, would have more than {limit} bytes",
			"Go on without it, or raise quota.bundles_bytes. Bundles are deleted with their tasks."},
		"messages_bytes": {"the messages of this key, or of this tree of tasks, would have more than {limit} bytes",
			"Write less, or raise quota.messages_bytes. Messages are deleted after 30 days and with their tasks."},
		"emissions": {"the agents of this task have emitted {limit} times, which is the most that is kept",
			"Emit nothing more; hand the rest in with mark_complete."},
		"emitted_bytes": {"what the agents of this task emit would have more than {limit} bytes",
			"Emit less, or hand the rest in with mark_complete."},
		"client_tasks": {"{limit} tasks of this key have not ended, and it may have no more",
			"Wait until one has ended, cancel one, or ask for a key with a higher limit."},
		"client_kept": {"{limit} tasks of this key are kept, with those that have ended, and it may have no more",
			"Wait until some are deleted: retention.tasks says when. Or use another key."},
		"client_bytes": {"the inputs of the tasks of this key would have more than {limit} bytes",
			"Send less, and put large inputs where the agent can read them. Inputs are deleted with their tasks."},
		"client_pushes": {"{limit} push configurations of this key exist, and it may have no more",
			"Delete some, or wait until tasks with configurations end and their last updates are delivered."},
		"task_pushes": {"the task has {limit} push configurations, and it may have no more",
			"Delete one of them, or replace one by sending its id."},
		"pool_queue": {"{limit} tasks wait in the queue of this pool, which is the most that it takes",
			"Send the message again later, or start more workers of the pool."},
		"open_calls": {"{limit} calls of this task are under way", "Wait until one has ended, then repeat the call."},
		"": {"the answers stored for the calls of this tree of tasks have reached their limit of {limit}",
			"Call without an Idempotency-Key, or repeat the call in some hours. Answers are stored for a day."},
	},
	picket.CodeOffset: {"": {"the log is known up to byte {expected}, not {presented}",
		"Continue from the offset expected."}},
	picket.CodeValidation: {
		"/session": {"this run has reported {limit} sessions, and more are not kept",
			"Report under a session that was reported before."},
		"/to":   {"this is your own agent", "Send the message to another agent, or leave /to out."},
		"limit": {"{field} would be beyond {amount}, which is as much as is counted", "Add less."},
		"/handoffId": {"the hand-off belongs to another task, {task}",
			"Name the task of the hand-off, or leave /handoffId out."},
		"": {"{field} is not one of the options offered",
			"Choose an option of the hand-off, or answer with text."},
	},
}

const remedyOfChildren = `Await and review them first (await_subtask, review_subtask). Or decide about them: "children": "detach" leaves them to people, "cancel" ends them.`

// variant says which text of a code is meant.
func (f facts) variant(code picket.Code) string {
	switch {
	case code == picket.CodeStaleFence:
		return f["owner"]
	case code == picket.CodeTaskClosed && f["decision"] != "":
		return "decided"
	case code == picket.CodeChildrenOpen && f["open"] == "1":
		return "one"
	case code == picket.CodeVersion && f["count"] != "":
		return "count"
	case code == picket.CodeAgentGone && !picket.AgentStatus(f["status"]).Gone():
		return "registered"
	case code == picket.CodeNotFound && strings.HasPrefix(f["envelope"], "house:"):
		return "house"
	case code == picket.CodeValidation && f["field"] != "/session" && f["limit"] != "":
		return "limit"
	case code == picket.CodeValidation:
		return f["field"]
	}
	return cmp.Or(f["kind"], f["cause"], f["of"], f["quota"])
}

// word is what stands for {name} in a text: a fact, or what follows from several.
func (f facts) word(name string) string {
	switch name {
	case "owner":
		return f.or("owner", "another run")
	case "cause":
		return f.or("cause", "released")
	case "state":
		return f.or("state", "unknown")
	case "kind":
		return f.or("kind", "thing")
	case "need":
		return strings.ReplaceAll(f["need"], "_", " ")
	case "day":
		return strings.TrimPrefix(f["envelope"], "house:")
	case "amount":
		if f["field"] == "/usd" {
			return budget.Money(ParseInt(f["limit"])).Dollars()
		}
		return f["limit"]
	case "digestChange":
		return picket.DigestChange(f["presented"], f["current"])
	case "alreadyDecided":
		return f.alreadyDecided()
	case "decidedBy":
		return f.decidedBy()
	case "decidedAt":
		return f.decidedAt()
	}
	return f[name]
}

var placeholder = lazyregexp.New(`\{\w+\}`)

// fill puts the facts into a text.
func (f facts) fill(text string) string {
	word := func(name string) string { return f.word(strings.Trim(name, "{}")) }
	return placeholder().ReplaceAllStringFunc(text, word)
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
	code, f := picket.Code(word), parseFacts(rest)
	said, known := refusalTexts[code][f.variant(code)]
	if !known {
		said, known = refusalTexts[code][""]
	}
	if reason != "" {
		said, known = conflictTexts[reason]
		known = known && code == picket.CodeStateConflict
	}
	if !known && code != picket.CodeBudgetExceeded {
		return nil
	}
	for _, k := range freeTextFacts {
		if s, err := url.PathUnescape(f[k]); err == nil && f[k] != "" {
			f[k] = text.Excerpt(s, maxFreeText)
		}
	}
	e := picket.Refuse(code, f.fill(said.remedy), "%s", f.fill(said.message))
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
		e.Message, e.Remedy = explainBudget(f)
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

// What a refused call is told about money: the amounts, and the exact command
// that helps.

// amount is one dimension of an envelope in words.
func (f facts) amount(key string) string {
	n := ParseInt(f[key])
	if f["dimension"] == "tokens" {
		return fmt.Sprintf("%d tokens", n)
	}
	return budget.Money(n).Dollars()
}

// topUpCommand is what a person runs so that the same call fits.
func (f facts) topUpCommand() string {
	return picket.TopUpCommand(f["envelope"],
		budget.Envelope{USD: budget.Money(ParseInt(f["less_u"])), Tokens: ParseInt(f["less_t"])})
}

func explainBudget(f facts) (string, string) {
	message := fmt.Sprintf("this needs %s, and %s are available", f.amount("need"), f.amount("available"))
	if ParseInt(f["available"]) < 0 {
		message = fmt.Sprintf("the envelope is overdrawn (%s available): more was spent than it covers, so no paid call goes on", f.amount("available"))
	}
	if day, isHouse := strings.CutPrefix(f["envelope"], "house:"); isHouse {
		return "the installation's budget of " + day + ": " + message,
			"Approve or cancel tasks that are done (they give back what is left), raise budget.house, wait for the next day (UTC), or run: " + f.topUpCommand()
	}
	if said, remedy, ok := f.sessionBudget(message); ok {
		return said, remedy
	}
	return message, "Report what is done, then wait for a top-up (await_top_up) or ask a person; a person runs: " +
		f.topUpCommand()
}

// addAmounts states the facts of a shortage in dollars or tokens.
func addAmounts(e *picket.Error, f facts) {
	delete(e.Facts, "less_t")
	delete(e.Facts, "less_u")
	if !f.ofSession() {
		e.With("topUp", f.topUpCommand())
	}
	if f["dimension"] == "tokens" {
		return
	}
	for _, key := range []string{"need", "available", "held", "spent"} {
		e.With(key, budget.Money(ParseInt(f[key])))
	}
}
