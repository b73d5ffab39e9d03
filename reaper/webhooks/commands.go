package webhooks

import (
	"strconv"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/budget"
)

// commandsFor returns the commands with which a person can act on an event. The one that
// decides comes first. None of them contains text that an agent wrote: ids are made by Picket or checked
// by it, and options are named by their numbers.
func commandsFor(ev picket.Event, data noticeData) []command {
	task, agent := quote(ev.TaskID), quote(ev.AgentID)
	switch ev.Type {
	case picket.EventTaskHandoff, picket.EventHandoffOverdue, picket.EventHandoffReminder:
		return handoffCommands(ev, data)
	case picket.EventLeaseReleased, picket.EventLeaseFailed, picket.EventLeaseExpired:
		if data.State == picket.TaskHandoff {
			return handoffCommands(ev, data)
		}
		return commandList("Run it again as a new task", "picket task retry "+task,
			"See what its runs did", "picket task show "+task)
	case picket.EventTaskReview, picket.EventReviewReminder:
		return commandList("See the result and the changes", "picket review show "+task,
			"Approve", "picket review approve "+task, "Reject", "picket review reject "+task)
	case picket.EventTaskCompleted, picket.EventTaskApproved, picket.EventTaskFinished, picket.EventTaskCancelled,
		picket.EventTaskRejected, picket.EventAgentTimedOut:
		return commandList("See the task", "picket task show "+task)
	case picket.EventRunStalled, picket.EventAgentTimeoutWarning:
		return commandList("See what it reported", "picket task show "+task,
			"End this run", "picket lease expire "+task+" --run "+quote(ev.RunID))
	case picket.EventBudgetWarning, picket.EventBudgetExceeded, picket.EventBudgetOverrun, picket.EventBudgetUnverified:
		return budgetCommands(ev, data)
	case picket.EventAgentLifecycle, picket.EventAgentDrainOverdue:
		return commandList("See the agent", "picket agent get "+agent, "See what runs", "picket ps")
	case picket.EventStoreAdopted:
		return commandList("Check the server", "picket doctor")
	case picket.EventInvariantViolated:
		return commandList("Check the whole store", "picket doctor --invariants")
	case picket.EventPaused:
		// A later pause may have another reason, so the command ends this one only.
		return commandList("Resume work", "picket resume --paused-at "+ev.At.String())
	case picket.EventWebhookDead:
		return commandList("Send events to it again", "picket webhook revive "+quote(data.WebhookID))
	case picket.EventWebhookGap:
		return commandList("See the webhook", "picket webhook show "+quote(data.WebhookID))
	}
	return nil
}

// commandList makes commands from pairs of what a command does and the command itself. A
// command without its id is left out.
func commandList(pairs ...string) []command {
	var list []command
	for i := 0; i+1 < len(pairs); i += 2 {
		if !strings.Contains(pairs[i+1]+" ", " '' ") {
			list = append(list, command{Does: pairs[i], Run: pairs[i+1]})
		}
	}
	return list
}

// handoffCommands returns the commands for a hand-off of any kind.
func handoffCommands(ev picket.Event, data noticeData) []command {
	id, task := quote(data.HandoffID), quote(ev.TaskID)
	answer := "picket handoff answer " + id
	typed := []string{"Answer in your own words, and end with Ctrl-D", answer + " --text -"}
	var pairs []string
	switch {
	case data.Kind == string(picket.HandoffEscalation):
		pairs = []string{"Run it again", "picket task retry " + task, "Cancel the task", "picket task cancel " + task}
	case data.Kind == string(picket.HandoffBudget):
		pairs = append([]string{"Top up, and continue the task",
			picket.TopUpCommand(task, lacking(data)) + " --handoff " + id}, typed...)
	case len(data.Options) > 0 && data.MoreOptions == 0 && !hasNumber(data.Options):
		for i, o := range data.Options[:min(len(data.Options), maxOptions)] {
			pairs = append(pairs, "Answer “"+clean(o, maxTitle)+"”", answer+" --option "+strconv.Itoa(i+1))
		}
	default:
		pairs = typed
	}
	return commandList(append(pairs, "See the whole hand-off", "picket handoff show "+id)...)
}

// hasNumber reports whether an option is itself a number. In a command it could then be
// mistaken for the number of another option. An option that the event leaves out
// can be a number too. Then there is no command for any option.
func hasNumber(options []string) bool {
	for _, o := range options {
		if _, err := strconv.Atoi(strings.TrimSpace(o)); err == nil {
			return true
		}
	}
	return false
}

// budgetCommands returns the commands that add to the envelope what is lacking, and show it.
func budgetCommands(ev picket.Event, data noticeData) []command {
	id := quote(firstNonEmpty(data.Envelope, ev.TaskID))
	show := []string{"See the budget", "picket budget show " + id}
	if ev.Type == picket.EventBudgetUnverified {
		return commandList(show...)
	}
	return commandList(append([]string{"Top up", picket.TopUpCommand(id, lacking(data))}, show...)...)
}

// lacking returns what a call needs beyond what is left. If nothing is known to lack, it
// returns half a dollar, or 100,000 tokens if the event is about tokens.
func lacking(data noticeData) budget.Envelope {
	need, left := bothAmounts(data.Need), bothAmounts(data.Left)
	missing := budget.Envelope{USD: max(0, need.USD-left.USD), Tokens: max(0, need.Tokens-left.Tokens)}
	if missing != (budget.Envelope{}) {
		return missing
	}
	if data.Dimension == "tokens" {
		return budget.Envelope{Tokens: 100_000}
	}
	return budget.Envelope{USD: 500_000_000}
}

// bothAmounts reads an amount of both dimensions, and 0 from anything else.
func bothAmounts(v jsontext.Value) (both budget.Envelope) {
	if len(v) > 0 && v.Kind() == '{' {
		_ = json.Unmarshal(v, &both)
	}
	return both
}

// quote quotes an id as one word of a shell.
func quote(id string) string {
	const plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./:@%+=-"
	if id != "" && id[0] != '-' && strings.Trim(id, plain) == "" {
		return id
	}
	return "'" + strings.ReplaceAll(clean(id, maxTitle), "'", `'\''`) + "'"
}
