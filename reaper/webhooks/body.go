package webhooks

import (
	"cmp"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/internal/text"
)

// maxBody is how large a request gets, in bytes.
const maxBody = 64 << 10

// body is what a target is sent of an event.
func (s *Sender) body(format picket.WebhookFormat, ev picket.Event) ([]byte, error) {
	if format == picket.WebhookSlack {
		return json.Marshal(slackMessage{Text: s.slackText(ev), Parse: "none"})
	}
	return eventBody(ev)
}

// eventBody is the event as the API shows it. Where that is too much, the
// largest members of its data are left out, and "truncated" reports it.
func eventBody(ev picket.Event) ([]byte, error) {
	full, err := json.Marshal(ev, json.Deterministic(true))
	if err != nil || len(full) <= maxBody {
		return full, err
	}
	data := map[string]jsontext.Value{}
	_ = json.Unmarshal(ev.Data, &data) // data that is not an object is left out whole
	if data == nil {
		data = map[string]jsontext.Value{}
	}
	for over := len(full) - maxBody + len(`,"truncated":true`); over > 0; {
		largest := ""
		for name, value := range data {
			if largest == "" || len(value) > len(data[largest]) {
				largest = name
			}
		}
		if largest == "" {
			break
		}
		over -= len(data[largest])
		delete(data, largest)
	}
	data["truncated"] = jsontext.Value("true")
	if ev.Data, err = json.Marshal(data, json.Deterministic(true)); err != nil {
		return nil, err
	}
	return json.Marshal(ev, json.Deterministic(true))
}

// slackMessage is what Slack's incoming webhooks take, and others with them.
type slackMessage struct {
	Text        string `json:"text"`
	Parse       string `json:"parse"`        // none: no address in a text becomes a link
	UnfurlLinks bool   `json:"unfurl_links"` // and nothing is fetched to show what a link leads to
	UnfurlMedia bool   `json:"unfurl_media"`
}

// maxSlackText is how long a message gets, in bytes, before it is escaped.
const maxSlackText = 2000

// breakLinks keeps an address or a name that an agent wrote from being taken for a
// link or a mention. A chat program may fetch what a link shows, and so carry data out.
var breakLinks = strings.NewReplacer("://", ":\u200b//", "@", "@\u200b", "](", "]\u200b(")

var slackEscapes = strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;")

// noticeData are the members of an event's data that a message tells.
type noticeData struct {
	State   picket.TaskState `json:"state"`
	Kind    string           `json:"kind"`
	Subject string           `json:"subject"`
	Reason  string           `json:"reason"`
	Class   string           `json:"class"`
	Name    string           `json:"name"`
	Error   string           `json:"error"`
}

// headlines say what has happened, by event type.
var headlines = map[string]string{
	picket.EventTaskHandoff:       "A task needs a person",
	picket.EventHandoffOverdue:    "A task still needs a person: its deadline has passed",
	picket.EventTaskReview:        "A task waits for review",
	picket.EventTaskCompleted:     "A task is completed",
	picket.EventTaskApproved:      "A task is approved",
	picket.EventTaskFinished:      "A task was finished by a person",
	picket.EventTaskRejected:      "A task is rejected",
	picket.EventTaskCancelled:     "A task is cancelled",
	picket.EventBudgetOverrun:     "A call cost more than was available",
	picket.EventBudgetUnverified:  "An agent reported usage that is charged to nobody",
	picket.EventStoreAdopted:      "The store was restarted, restored or replaced",
	picket.EventInvariantViolated: "An invariant is violated",
	picket.EventPaused:            "Work is paused",
	picket.EventResumed:           "Work goes on",
	picket.EventAgentLifecycle:    "An agent is dead",
	picket.EventWebhookDead:       "A webhook is given up",
	picket.EventWebhookGap:        "A webhook has missed events",
	eventTest:                     "Picket can reach you: this is a test",
}

// slackText is an event in one line, with a link to its task where the
// console's address is known. Agents and people write parts of it, so nothing
// in them may be taken for a link or a mention.
func (s *Sender) slackText(ev picket.Event) string {
	var data noticeData
	_ = json.Unmarshal(ev.Data, &data)
	said := headlines[ev.Type]
	switch {
	case ev.Type == picket.EventAgentLifecycle && ev.NewStatus != picket.AgentDead, said == "":
		said = ev.Type
	}
	switch ev.Type {
	case picket.EventLeaseReleased, picket.EventLeaseFailed, picket.EventLeaseExpired:
		switch data.State {
		case picket.TaskFailed:
			said = "A task has failed"
		case picket.TaskHandoff:
			said = "A task needs a person: its last attempt has ended"
		}
	}
	text := "*" + slackEscapes.Replace(said) + "*"
	for _, part := range []string{data.Kind, data.Name, data.Subject, data.Class, cmp.Or(data.Reason, ev.Reason),
		data.Error} {
		if part != "" {
			text += " · " + slackEscapes.Replace(slackExcerpt(part))
		}
	}
	if ev.AgentID != "" {
		text += " · agent " + slackEscapes.Replace(ev.AgentID)
	}
	if ev.TaskID != "" {
		text += " · " + s.slackLink(ev.TaskID)
	}
	return text
}

// slackLink is a task's page in the console.
func (s *Sender) slackLink(taskID string) string {
	if s.cfg.PublicURL == "" {
		return slackEscapes.Replace(taskID)
	}
	return "<" + slackEscapes.Replace(strings.TrimSuffix(s.cfg.PublicURL, "/")+"/console/tasks/"+taskID) + "|" +
		slackEscapes.Replace(taskID) + ">"
}

// slackExcerpt cuts a text and makes one line of it, which links nowhere.
func slackExcerpt(s string) string {
	return text.Shorten(breakLinks.Replace(strings.Join(strings.Fields(s), " ")), maxSlackText/4)
}
