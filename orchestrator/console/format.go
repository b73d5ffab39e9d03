package console

import (
	"bytes"
	stdjson "encoding/json"
	"fmt"
	"html/template"
	"strconv"
	"strings"
	"time"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/budget"
	"github.com/picket-dev/picket/internal/text"
)

// templateFuncs are the functions of the templates. All text passes html/template's
// escaping; what an agent wrote goes through plain or clip as well.
var templateFuncs = template.FuncMap{
	"when":   instantElement,
	"left":   deadlineElement,
	"plain":  text.Printable,
	"clip":   clip,
	"pretty": indentJSON,
	"short":  shortID,
	"money":  formatMoney,
	"tokens": formatTokens,
	"count":  groupDigits,
	"both":   formatEnvelope,
	"took":   exactDuration,
	"lasted": runTime,
	"labels": firstLabels,
	"bar":    accountBar,
	"load":   loadBar,
	"result": resultText,
	"tone":   toneOf,
	"detail": eventDetail,
	"event":  eventJSON,
	"themes": func() []string { return themes },
	"lines":  signedCount,
	"health": healthWords,
	"why":    policyWords,
	"awake":  func(r picket.WakeReason) string { return wakeReasons[r] },
	"clock":  clockTime,
	"at":     instantOf,

	"interval": shortInterval,

	"list":  func(all ...any) []any { return all },
	"deref": func(s *string) string { return *s },

	"timeoutshare": timeoutShare,
	"timeoutnear":  timeoutNear,
	"spentnear":    spentNear,

	"taskbar":    taskBar,
	"members":    memberCounts,
	"answertext": answerText,
	"edittext":   editText,
	"excerpt":    func(s string) excerpt { return newExcerpt(s, maxExcerpt) },
	"snippet":    func(s string) string { return newExcerpt(s, maxSnippet).Text },
}

// instantElement is an instant as people say it, with the exact time for those who point
// at it; the script keeps it ticking.
func instantElement(now, at picket.Instant) template.HTML {
	if at.IsZero() {
		return `<span class="none">–</span>`
	}
	return timeElement(at, "ago", relative(now.Time().Sub(at.Time())))
}

// deadlineElement is how long there is until a deadline.
func deadlineElement(now, at picket.Instant) template.HTML {
	if at.IsZero() {
		return `<span class="none">–</span>`
	}
	return timeElement(at, "left", untilText(at.Time().Sub(now.Time())))
}

// shortInterval is a duration such as 1h30m0s without the units at its end that are 0.
func shortInterval(d string) string {
	if s, ok := strings.CutSuffix(d, "m0s"); ok {
		d = s + "m"
	}
	if s, ok := strings.CutSuffix(d, "h0m"); ok {
		d = s + "h"
	}
	return d
}

// instantOf is an instant that may be absent; 0: it is.
func instantOf(at *picket.Instant) (zero picket.Instant) {
	if at == nil {
		return zero
	}
	return *at
}

// clockTime is an instant of the future with its date and time of day.
func clockTime(at picket.Instant) string { return at.Time().UTC().Format("Mon 2 Jan 2006, 15:04 UTC") }

func untilText(d time.Duration) string {
	if d <= 0 {
		return humanDuration(-d) + " overdue"
	}
	return "in " + humanDuration(d)
}

// timeElement holds nothing but numbers and words of ours.
func timeElement(at picket.Instant, how, text string) template.HTML {
	return template.HTML(fmt.Sprintf(`<time datetime="%s" title="%s" data-at="%d" data-how="%s">%s</time>`,
		at, at.Time().Format("2006-01-02 15:04:05 UTC"), int64(at), how, text))
}

func relative(d time.Duration) string {
	if d < 5*time.Second {
		return "just now"
	}
	return humanDuration(d) + " ago"
}

// humanDuration is a duration as people say it; the script says the same.
func humanDuration(d time.Duration) string {
	switch {
	case d < time.Minute:
		return fmt.Sprintf("%d s", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%d min", int(d.Minutes()))
	case d < 10*time.Hour:
		return fmt.Sprintf("%d h %02d min", int(d.Hours()), int(d.Minutes())%60)
	case d < 48*time.Hour:
		return fmt.Sprintf("%d h", int(d.Hours()))
	}
	return fmt.Sprintf("%d days", int(d.Hours())/24)
}

// exactDuration is how long something lasted, in ms, with two units.
func exactDuration(ms int64) string {
	d := time.Duration(ms) * time.Millisecond
	switch {
	case d < time.Second:
		return fmt.Sprintf("%d ms", ms)
	case d < time.Minute:
		return fmt.Sprintf("%.1f s", d.Seconds())
	case d < time.Hour:
		return fmt.Sprintf("%d min %02d s", int(d.Minutes()), int(d.Seconds())%60)
	}
	return fmt.Sprintf("%d h %02d min", int(d.Hours()), int(d.Minutes())%60)
}

// clip is the beginning of an untrusted text, n characters of it.
func clip(n int, s string) string { return text.Excerpt(text.Printable(s), n) }

// indentJSON is JSON for people: a text as it is, anything else indented, unless
// that would be blanks for the most part. Numbers keep their digits.
func indentJSON(raw picket.RawJSON) string {
	var s string
	if len(raw) == 0 || string(raw) == "null" {
		return ""
	}
	if raw[0] == '"' && stdjson.Unmarshal(raw, &s) == nil {
		return text.Printable(s)
	}
	var out bytes.Buffer
	if indentSize(raw) > 4*len(raw)+1024 || stdjson.Indent(&out, raw, "", "  ") != nil {
		return text.Printable(string(raw))
	}
	return text.Printable(out.String())
}

// indentSize is how many bytes indenting would add: for a deep structure, a
// hundred times its own.
func indentSize(raw picket.RawJSON) int {
	n, level, inText := 0, 0, false
	for i := 0; i < len(raw); i++ {
		switch b := raw[i]; {
		case inText && b == '\\':
			i++
		case b == '"':
			inText = !inText
		case inText:
		case b == '{' || b == '[':
			level++
			n += 1 + 2*level
		case b == '}' || b == ']':
			level--
			n += 1 + 2*level
		case b == ',':
			n += 1 + 2*level
		}
	}
	return n
}

// shortID is the end of an id: the beginning is the time, alike for neighbours.
func shortID(id string) string {
	kind, rest, ok := strings.Cut(id, "_")
	if !ok || len(rest) < 8 {
		return id
	}
	return kind + "_…" + rest[len(rest)-6:]
}

// formatMoney is an amount of dollars, rounded to what a reader compares; the exact
// amount belongs into a title.
func formatMoney(m budget.Money) string {
	const cent = 10_000_000
	if m%cent == 0 || m < 0 {
		return m.Dollars()
	}
	dollars := float64(m) / 1e9
	switch {
	case dollars >= 0.1:
		return fmt.Sprintf("$%.2f", dollars)
	case dollars >= 0.0001:
		return fmt.Sprintf("$%.4f", dollars)
	}
	return "<$0.0001"
}

// formatTokens is a number of tokens, shortened.
func formatTokens(n int64) string {
	switch {
	case n > budget.MaxTokens/2: // an envelope without a limit, and what is left of it
		return "unlimited"
	case n >= 10_000_000:
		return fmt.Sprintf("%.0fM", float64(n)/1e6)
	case n >= 1_000_000:
		return fmt.Sprintf("%.1fM", float64(n)/1e6)
	case n >= 10_000:
		return fmt.Sprintf("%.0fk", float64(n)/1e3)
	case n >= 1_000:
		return fmt.Sprintf("%.1fk", float64(n)/1e3)
	}
	return strconv.FormatInt(n, 10)
}

// formatEnvelope is an envelope in one phrase.
func formatEnvelope(e budget.Envelope) string {
	return formatMoney(e.USD) + " · " + formatTokens(e.Tokens) + " tokens"
}

// groupDigits groups the digits of a number.
func groupDigits(n int64) string {
	s := strconv.FormatInt(n, 10)
	for i := len(s) - 3; i > 0 && s[i-1] != '-'; i -= 3 {
		s = s[:i] + "\u202f" + s[i:]
	}
	return s
}

// signedCount is how many lines were added or removed, for a column; nothing for none
// and for a binary file.
func signedCount(sign string, n *int) string {
	if n == nil || *n == 0 {
		return ""
	}
	return sign + strconv.Itoa(*n)
}
