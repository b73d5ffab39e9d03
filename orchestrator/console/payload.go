package console

import (
	"net/http"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/labstack/echo/v4"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/internal/text"
	"github.com/picket-dev/picket/internal/web"
)

// A payload is any JSON. People type a text, which becomes a JSON string, or
// JSON itself; the form says which.
const (
	asText = "text"
	asJSON = "json"
)

// editableText is a payload as a person edits it: a JSON string as its text.
func editableText(raw picket.RawJSON) (text, as string) {
	if len(raw) > 0 && raw[0] == '"' || len(raw) == 0 || string(raw) == "null" {
		return indentJSON(raw), asText
	}
	return indentJSON(raw), asJSON
}

// parsePayload is the payload that a person has typed.
func parsePayload(field, text, as string) (picket.RawJSON, error) {
	raw := quoteJSON(text)
	if as == asJSON {
		raw = picket.RawJSON(strings.TrimSpace(text))
		if checkJSON(raw) != nil {
			return nil, picket.Invalid(field, "Correct it, or send it as text.",
				"this is not valid JSON, or a name is there twice, or it is nested deeper than %d levels",
				web.MaxDepth-1)
		}
	}
	if len(raw) > picket.MaxPayload {
		return nil, picket.TooLarge(field, len(raw))
	}
	return raw, nil
}

// checkJSON refuses what the API refuses: beside what is not JSON at all, names
// that are there twice, and structures deeper than the store reads. Nobody could
// be given a task with such an input, nor any task behind it.
func checkJSON(raw picket.RawJSON) error {
	var body struct {
		Value jsontext.Value `json:"value"`
	}
	return web.Unmarshal(slices.Concat([]byte(`{"value":`), raw, []byte("}")), &body)
}

// quoteJSON is a text as a JSON string.
func quoteJSON(text string) picket.RawJSON {
	raw, _ := jsontext.AppendQuote(nil, strings.ToValidUTF8(text, "\uFFFD")) // valid text can be quoted
	return picket.RawJSON(raw)
}

// writeText is a text that a page has clipped, at full length. It is not a page:
// nothing in it can become one.
func (v *request) writeText(s string) error {
	return v.Blob(http.StatusOK, echo.MIMETextPlainCharsetUTF8, []byte(text.Printable(s)))
}

// reportText is a report at full length.
func reportText(r picket.Report) string {
	var b strings.Builder
	b.WriteString(r.Summary + "\n")
	list := func(name string, items []string) {
		if len(items) > 0 {
			b.WriteString("\n" + name + "\n")
		}
		for _, item := range items {
			b.WriteString("- " + item + "\n")
		}
	}
	list("Believes", r.Beliefs)
	var tried []string
	for _, a := range r.Attempted {
		tried = append(tried, a.Action+": "+a.Outcome)
	}
	list("Tried", tried)
	if r.NextStep != "" {
		b.WriteString("\nNext step\n" + r.NextStep + "\n")
	}
	list("Blockers", r.Blockers)
	return b.String()
}
