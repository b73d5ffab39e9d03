package webhooks

import (
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/budget"
	"github.com/picket-dev/picket/internal/text"
)

// notice is an event as people read it: what happened, what they need to know, the page in the
// console, and the commands. All texts are clean: bounded, on one line, without control characters.
type notice struct {
	Headline string    `json:"headline"`
	About    string    `json:"about,omitempty"` // what the link is called: a title or an id
	URL      string    `json:"url,omitempty"`   // a page of the console, if its address is known
	Lines    []string  `json:"lines"`
	Commands []command `json:"commands"`
}

// command is a shell command that can be run as it is printed.
type command struct {
	Does string `json:"does"`
	Run  string `json:"run"`
}

// noticeData has the members of an event's data that notices use.
type noticeData struct {
	State   picket.TaskState `json:"state"`
	Kind    string           `json:"kind"`
	Subject string           `json:"subject"`
	Reason  string           `json:"reason"`
	Class   string           `json:"class"`
	Name    string           `json:"name"`
	Error   string           `json:"error"`

	Task      picket.TaskFacts `json:"task"`
	WebhookID string           `json:"webhookId"`

	HandoffID       string   `json:"handoffId"`
	Assignee        string   `json:"assignee"` // of the hand-off, if a claim named one
	Question        string   `json:"question"`
	Options         []string `json:"options"`
	MoreOptions     int      `json:"moreOptions"` // beside Options
	DeadlineSeconds *int64   `json:"deadlineSeconds"`
	OnDeadline      string   `json:"onDeadline"`
	Summary         string   `json:"summary"`
	Note            string   `json:"note"`
	ClaimedBy       string   `json:"claimedBy"`
	WaitedSeconds   *float64 `json:"waitedSeconds"`

	ElapsedSeconds   *float64 `json:"elapsedSeconds"`
	TimeoutSeconds   *float64 `json:"timeoutSeconds"`
	RemainingSeconds *float64 `json:"remainingSeconds"`

	Envelope  string         `json:"envelope"`
	Dimension string         `json:"dimension"`
	Percent   int            `json:"percent"`
	Need      jsontext.Value `json:"need"`
	Spent     jsontext.Value `json:"spent"`
	Held      jsontext.Value `json:"held"`
	Left      jsontext.Value `json:"left"`
	Granted   jsontext.Value `json:"granted"`

	AgentName string `json:"agentName"`
	Role      string `json:"role"`
	Leases    *int   `json:"leases"`
}

// headlines say what has happened, by event type.
var headlines = map[string]string{
	picket.EventTaskHandoff:         "A task needs a person",
	picket.EventHandoffOverdue:      "A hand-off is overdue: nobody decided before its deadline",
	picket.EventTaskReview:          "A task waits for review",
	picket.EventHandoffReminder:     "A task still needs a person",
	picket.EventReviewReminder:      "A task still waits for review",
	picket.EventTaskCompleted:       "A task is completed",
	picket.EventTaskApproved:        "A task is approved",
	picket.EventTaskFinished:        "A task was finished by a person",
	picket.EventTaskRejected:        "A task is rejected",
	picket.EventTaskCancelled:       "A task is cancelled",
	picket.EventRunStalled:          "An agent seems to be stuck",
	picket.EventAgentTimeoutWarning: "A run will soon reach its timeout",
	picket.EventAgentTimedOut:       "A run reached its timeout and is killed",
	picket.EventBudgetWarning:       "Most of a budget is spent",
	picket.EventBudgetExceeded:      "A call was refused: the budget does not cover it",
	picket.EventBudgetOverrun:       "A call cost more than was available",
	picket.EventBudgetUnverified:    "An agent reported usage that nobody was charged for",
	picket.EventAgentDrainOverdue:   "A drain passed its deadline: the leases of the agent were ended",
	picket.EventStoreAdopted:        "The store was restarted, restored or replaced",
	picket.EventInvariantViolated:   "An invariant is violated",
	picket.EventPaused:              "Work is paused",
	picket.EventResumed:             "Work is resumed",
	picket.EventWebhookDead:         "A webhook gets no more events",
	picket.EventWebhookGap:          "A webhook has missed events",
	eventTest:                       "Picket can reach you: this is a test",
}

// headline returns what an event means to people, or the type if the event is never a notice.
func headline(ev picket.Event, data noticeData) string {
	switch ev.Type {
	case picket.EventLeaseReleased, picket.EventLeaseFailed, picket.EventLeaseExpired:
		switch data.State {
		case picket.TaskFailed:
			return "A task has failed"
		case picket.TaskHandoff:
			return "A task needs a person: its last attempt has ended"
		}
	case picket.EventAgentLifecycle:
		switch ev.NewStatus {
		case picket.AgentUnhealthy:
			return "An agent is silent"
		case picket.AgentDead:
			return "An agent is dead"
		}
	}
	if h := headlines[ev.Type]; h != "" {
		return h
	}
	return ev.Type
}

// newNotice makes the notice of an event.
func (s *Sender) newNotice(ev picket.Event) notice {
	var data noticeData
	_ = json.Unmarshal(ev.Data, &data) // what cannot be read is left out
	n := notice{Headline: headline(ev, data), Lines: []string{}, Commands: []command{}}
	n.About, n.URL = s.subject(ev, data)
	n.addTask(ev, data)
	n.addQuestion(ev, data)
	n.addTimes(ev, data)
	n.addMoney(data)
	n.Commands = append(n.Commands, commandsFor(ev, data)...)
	return n
}

// subject returns what the notice is about, and its page in the console.
func (s *Sender) subject(ev picket.Event, data noticeData) (about, page string) {
	about = clean(data.Task.Title, maxTitle)
	switch {
	case data.HandoffID != "" && ev.Type != picket.EventTaskFinished:
		page = "handoffs/" + url.PathEscape(data.HandoffID)
	case ev.Type == picket.EventTaskReview || ev.Type == picket.EventReviewReminder:
		page = "reviews/" + url.PathEscape(ev.TaskID)
	case strings.HasPrefix(ev.Type, "budget.") && firstNonEmpty(data.Envelope, ev.TaskID) != "":
		page = "budgets/" + url.PathEscape(firstNonEmpty(data.Envelope, ev.TaskID))
	case ev.TaskID != "":
		page = "tasks/" + url.PathEscape(ev.TaskID)
	case ev.AgentID != "":
		page = "agents/" + url.PathEscape(ev.AgentID)
	}
	if about == "" {
		about = clean(firstNonEmpty(ev.TaskID, data.Envelope, ev.AgentID), maxTitle)
	}
	if s.cfg.PublicURL == "" || page == "" {
		return about, ""
	}
	return about, strings.TrimSuffix(s.cfg.PublicURL, "/") + "/console/" + page
}

func firstNonEmpty(texts ...string) string {
	for _, t := range texts {
		if t != "" {
			return t
		}
	}
	return ""
}

// Bounds of the texts in a notice, in bytes.
const (
	maxTitle = 200
	maxFact  = 500
)

// clean makes one bounded line of a text that an agent or a person wrote.
func clean(s string, most int) string {
	return strings.TrimSpace(text.Shorten(text.OneLine(s), most))
}

// add adds a line, unless its value is empty.
func (n *notice) add(name, value string) {
	if value = clean(value, maxFact); value != "" {
		n.Lines = append(n.Lines, name+": "+value)
	}
}

// addTask adds the task, its assignee, its labels, and the agent.
func (n *notice) addTask(ev picket.Event, data noticeData) {
	if ev.TaskID != "" && n.About != ev.TaskID {
		n.add("Task", ev.TaskID)
	}
	n.add("Assignee", firstNonEmpty(data.Assignee, data.Task.Assignee))
	n.add("Role", firstNonEmpty(data.Task.Role, data.Role))
	switch {
	case data.AgentName != "" && ev.AgentID != "":
		n.add("Agent", data.AgentName+" ("+ev.AgentID+")")
	case data.AgentName != "":
		n.add("Agent", data.AgentName)
	case ev.AgentID != n.About:
		n.add("Agent", ev.AgentID)
	}
	var labels []string
	for _, name := range slices.Sorted(maps.Keys(data.Task.Labels)) {
		labels = append(labels, name+"="+data.Task.Labels[name])
	}
	n.add("Labels", strings.Join(labels, ", "))
	if data.Leases != nil {
		n.add("Leases", strconv.Itoa(*data.Leases))
	}
}

// addQuestion adds what is asked or was handed in, and the reason.
func (n *notice) addQuestion(ev picket.Event, data noticeData) {
	if data.WaitedSeconds != nil {
		n.add("Waited", secondsText(*data.WaitedSeconds))
	}
	n.add("Claimed by", data.ClaimedBy)
	n.add("Kind", data.Kind)
	n.add("Name", data.Name)
	n.add("Subject", data.Subject)
	reason := firstNonEmpty(data.Reason, ev.Reason)
	if data.Class != reason {
		n.add("Class", data.Class)
	}
	n.add("Reason", reason)
	n.add("Error", data.Error)
	n.add("Question", data.Question)
	for i, o := range data.Options[:min(len(data.Options), maxOptions)] {
		n.add("Option "+strconv.Itoa(i+1), o)
	}
	if data.MoreOptions > 0 {
		n.add("More options", strconv.Itoa(data.MoreOptions))
	}
	if data.DeadlineSeconds != nil {
		at := ev.At.Time().Add(time.Duration(*data.DeadlineSeconds) * time.Second)
		n.add("Deadline", at.UTC().Format(time.RFC3339)+", then: "+data.OnDeadline)
	}
	n.add("Summary", data.Summary)
	n.add("Note", data.Note)
}

// maxOptions is how many options an event contains at most.
const maxOptions = 8

// addTimes adds how long a run has worked and what is left of its timeout. A launcher event
// has these members at its top level.
func (n *notice) addTimes(ev picket.Event, data noticeData) {
	for _, t := range []struct {
		name    string
		seconds [2]*float64
	}{
		{"Elapsed", [2]*float64{ev.ElapsedSeconds, data.ElapsedSeconds}},
		{"Timeout", [2]*float64{ev.TimeoutSeconds, data.TimeoutSeconds}},
		{"Time left", [2]*float64{ev.RemainingSeconds, data.RemainingSeconds}},
	} {
		for _, seconds := range t.seconds {
			if seconds != nil {
				n.add(t.name, secondsText(*seconds))
				break
			}
		}
	}
}

func secondsText(seconds float64) string {
	const most = 10 * 365 * 24 * 3600 // beyond it a Duration could overflow
	return (time.Duration(min(max(seconds, 0), most)) * time.Second).String()
}

// addMoney adds what is spent, held and left.
func (n *notice) addMoney(data noticeData) {
	if data.Percent > 0 {
		n.add("Threshold", strconv.Itoa(data.Percent)+" %")
	}
	if bothAmounts(data.Need) == (budget.Envelope{}) {
		data.Need = nil // nothing was refused
	}
	for _, amount := range []struct {
		name  string
		value jsontext.Value
	}{
		{"Needed", data.Need}, {"Spent", data.Spent}, {"Held", data.Held}, {"Left", data.Left},
		{"Granted", data.Granted},
	} {
		n.add(amount.name, amountText(amount.value, data.Dimension))
	}
}

// amountText formats an amount of one dimension, or of both.
func amountText(v jsontext.Value, dimension string) string {
	var both budget.Envelope
	var dollars budget.Money
	switch {
	case len(v) == 0:
		return ""
	case v.Kind() == '{':
		if json.Unmarshal(v, &both) != nil {
			return ""
		}
		if both.Tokens == 0 {
			return both.USD.Dollars()
		}
		return fmt.Sprintf("%s and %d tokens", both.USD.Dollars(), both.Tokens)
	case dimension == "tokens":
		return v.String() + " tokens"
	case json.Unmarshal(v, &dollars) != nil:
		return ""
	}
	return dollars.Dollars()
}
