package webhooks

import (
	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/picket-dev/picket"
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
