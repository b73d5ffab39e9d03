package webhooks

import (
	"strings"
	"unicode"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/internal/lazyregexp"
)

// maxBody is how large a request gets, in bytes.
const maxBody = 64 << 10

// body is what a target is sent of an event.
func (s *Sender) body(format picket.WebhookFormat, ev picket.Event) ([]byte, error) {
	if format == picket.WebhookSlack {
		return json.Marshal(slackMessage{Text: s.slackText(ev), Parse: "none"})
	}
	posted := postedEvent{Event: ev}
	if ev.IsNotice() {
		n := s.newNotice(ev)
		posted.Notice = &n
	}
	return eventBody(posted)
}

// postedEvent is an event as the API shows it. A notice also has its text.
type postedEvent struct {
	picket.Event
	Notice *notice `json:"notice,omitempty"`
}

// eventBody is the event as the API shows it. Where that is too much, the
// largest members of its data are left out, and "truncated" reports it.
func eventBody(ev postedEvent) ([]byte, error) {
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

// slackText formats a notice in Slack's own markup: the headline, what it is about, then a line
// for each fact and each command. If the address of the console is known, it has a link.
// Agents and people write parts of it, so nothing in them may be taken for a link, a
// mention, a command or formatting.
func (s *Sender) slackText(ev picket.Event) string {
	n := s.newNotice(ev)
	lines := []string{"*" + slackEscapes.Replace(n.Headline) + "*"}
	about := slackInert(n.About)
	if n.URL != "" {
		about = "<" + slackEscapes.Replace(n.URL) + "|" + about + ">"
	}
	if about != "" {
		lines = append(lines, about)
	}
	for _, line := range n.Lines {
		lines = append(lines, slackInert(line))
	}
	for _, c := range n.Commands {
		lines = append(lines, slackInert(c.Does)+": `"+slackEscapes.Replace(c.Run)+"`")
	}
	return strings.Join(lines, "\n")
}

// slackInert makes a text that Slack shows as it is, without links. A chat program may fetch
// what a link leads to, and an agent could send data out in this way.
func slackInert(s string) string {
	if strings.HasPrefix(s, ">") {
		s = "\u200b" + s // it would be a quotation
	}
	return slackEscapes.Replace(breakEmoji(breakItalics(breakLinks.Replace(s))))
}

// breakLinks splits or replaces the characters that begin a link, a mention, code, or bold or
// struck text.
var breakLinks = strings.NewReplacer("://", ":\u200b//", "@", "@\u200b", "](", "]\u200b(",
	"`", "\u02cb", "*", "\u2217", "~", "\u223c", "|", "\u2223")

// breakItalics puts a character of the same look in the place of each underscore that could begin
// or end italics. One between letters or digits cannot, and stays, as in an id.
func breakItalics(s string) string {
	if !strings.Contains(s, "_") {
		return s
	}
	inWord := func(r rune) bool { return unicode.IsLetter(r) || unicode.IsDigit(r) }
	runes := []rune(s)
	for i, r := range runes {
		if r == '_' && (i == 0 || !inWord(runes[i-1]) || i+1 == len(runes) || !inWord(runes[i+1])) {
			runes[i] = '\u02cd'
		}
	}
	return string(runes)
}

// emojiCode begins the name of an emoji, such as :+1:. A time such as 10:42:17 has none.
var emojiCode = lazyregexp.New(`:([^\s:\x{200b}]*[^\s:\x{200b}0-9][^\s:]*:)`)

// breakEmoji takes apart the names of emoji. A name can begin where another one ends, so it does
// that twice.
func breakEmoji(s string) string {
	for range 2 {
		s = emojiCode().ReplaceAllString(s, ":\u200b$1")
	}
	return s
}

var slackEscapes = strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;")
