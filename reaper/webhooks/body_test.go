package webhooks_test

import (
	"strings"
	"testing"

	"github.com/go-json-experiment/json"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/reaper/webhooks"
)

func newTestSender(t *testing.T, cfg webhooks.SenderConfig) *webhooks.Sender {
	t.Helper()
	s, err := webhooks.NewSender(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

// A request holds an event as the API shows it, and never more than 64 KiB.
func TestAnEventFitsIntoARequest(t *testing.T) {
	s := newTestSender(t, webhooks.SenderConfig{})
	long := strings.Repeat("x", 50<<10)
	for data, want := range map[string]string{
		`{"state":"review"}`: `{"state":"review"}`,
		`{"state":"review","a":"` + long + `"}`: `{"state":"review","a":"` + long +
			`"}`,
		`{"state":"review","a":"` + long + `","b":"` + long + `x","c":1}`: `{"a":"` + long +
			`","c":1,"state":"review","truncated":true}`,
		`{"state":"review","a":"` + strings.Repeat("\\u0001", 20<<10) +
			`","b":[]}`: `{"b":[],"state":"review","truncated":true}`,
		`["` + long + long + `"]`: `{"truncated":true}`,
	} {
		body, err := s.Body(picket.WebhookStandard,
			picket.Event{ID: "7", Seq: 7, Type: picket.EventTaskReview, TaskID: "task_1", Data: picket.RawJSON(data)})
		var got picket.Event
		if err != nil || len(body) > 64<<10 {
			t.Fatalf("%d bytes %v", len(body), err)
		}
		if err := json.Unmarshal(body, &got); err != nil || got.ID != "7" || got.TaskID != "task_1" ||
			string(got.Data) != want {
			t.Errorf("%.60s: %v %.120s", data, err, got.Data)
		}
	}
}

// Nothing that an agent or a person wrote becomes a link, a mention or more
// than a line.
func TestASlackMessageIsText(t *testing.T) {
	s := newTestSender(t, webhooks.SenderConfig{PublicURL: "https://picket.example.test/?a=1&b=<"})
	ev := picket.Event{
		ID:      "7",
		Type:    picket.EventLeaseFailed,
		TaskID:  "task_1",
		AgentID: "a<b>",
		Reason:  "<!channel> *&* <https://evil.test|click> @all [x](https://evil.test)\nme" + strings.Repeat("y", 3000),
		Data:    picket.RawJSON(`{"state":"failed"}`),
	}
	text := func(ev picket.Event) string {
		t.Helper()
		body, err := s.Body(picket.WebhookSlack, ev)
		var message map[string]string
		text, rest, whole := strings.Cut(string(body), `,"parse":"none","unfurl_links":false,"unfurl_media":false}`)
		if err == nil {
			err = json.Unmarshal([]byte(text+"}"), &message)
		}
		if err != nil || !whole || rest != "" || len(message) != 1 {
			t.Fatalf("%s %v", body, err)
		}
		return message["text"]
	}
	got := text(ev)
	for _, want := range []string{"*A task has failed*",
		"Reason: &lt;!channel&gt; \u2217&amp;\u2217 &lt;https:\u200b//evil.test\u2223click&gt; @\u200ball [x]\u200b(https:\u200b//evil.test) me", "a&lt;b&gt;", "<https://picket.example.test/?a=1&amp;b=&lt;/console/tasks/task_1|task_1>"} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is not in %q", want, got)
		}
	}
	if strings.Count(got, "<") != 1 || strings.Count(got, "\n") != 5 || len(got) > 1500 {
		t.Errorf("%d bytes: %q", len(got), got)
	}
	for _, kind := range picket.EventTypes {
		if got := text(picket.Event{Type: kind, Data: picket.RawJSON(`{}`)}); !strings.HasPrefix(got, "*") ||
			len(got) < 5 {
			t.Errorf("%s: %q", kind, got)
		}
	}
	for _, kind := range picket.NoticeTypes {
		if got := text(picket.Event{Type: kind, Data: picket.RawJSON(`{}`)}); strings.Contains(got, kind) {
			t.Errorf("%s has no words of its own: %q", kind, got)
		}
	}
}
