package console

import (
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/budget"
	"github.com/picket-dev/picket/internal/lazyregexp"
	"github.com/picket-dev/picket/internal/text"
)

// pageRows is how many rows a page has.
const pageRows = 50

// tab is one of the views of a list, with how many rows it has.
type tab struct {
	Label   string
	Path    string
	Count   int64
	Counted bool
	Current bool
}

// queryPath is a path with parameters, those that are empty left out. They come
// in pairs of name and value.
func queryPath(path string, pairs ...string) string {
	q := url.Values{}
	for i := 0; i+1 < len(pairs); i += 2 {
		if pairs[i+1] != "" {
			q.Set(pairs[i], pairs[i+1])
		}
	}
	if len(q) == 0 {
		return path
	}
	return path + "?" + q.Encode()
}

// parameter is a parameter of the address without the blanks around it; longer
// ones than anything it could name are cut.
func (v *request) parameter(name string) string {
	s := strings.TrimSpace(v.QueryParam(name))
	return s[:min(len(s), 512)]
}

// filter is what the address of a list asks for, by the names of its parameters, as it
// was typed.
type filter map[string]string

func (v *request) filter(names ...string) filter {
	f := filter{}
	for _, name := range names {
		f[name] = v.parameter(name)
	}
	return f
}

// with is the filter with another value of a parameter.
func (f filter) with(name, value string) filter {
	changed := maps.Clone(f)
	changed[name] = value
	return changed
}

// link is the address of a page with the filter.
func (f filter) link(path string) string {
	var pairs []string
	for name, value := range f {
		pairs = append(pairs, name, value)
	}
	return queryPath(path, pairs...)
}

// Narrow reports whether anything is filtered, beside the state of what is listed.
func (f filter) Narrow() bool {
	for name, value := range f {
		if value != "" && name != "state" && name != "cursor" && name != "before" {
			return true
		}
	}
	return false
}

// position is a parameter that says where a page begins, 0 where it is absent
// or no such thing: an old link shows the beginning.
func (v *request) position(name string) int64 {
	return parseNumber(v.parameter(name))
}

// parseNumber returns 0 if the text is not a number.
func parseNumber(text string) int64 {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 0 || n > picket.MaxNumber {
		return 0
	}
	return n
}

// bar draws where an amount has gone, in hundredths of it.
type bar struct {
	Spent    int
	Held     int
	Carved   int // widths
	HeldAt   int
	CarvedAt int // where they begin
	Over     bool
	Words    string // for those who do not see it
}

// accountBar is the bar of an account, by whichever of dollars and tokens has less
// left.
func accountBar(a budget.Account) bar {
	usd := newBar(int64(a.Granted.USD), int64(a.Spent.USD), int64(a.Held.USD), int64(a.Carved.USD))
	tok := newBar(a.Granted.Tokens, a.Spent.Tokens, a.Held.Tokens, a.Carved.Tokens)
	b := usd
	if tok.CarvedAt+tok.Carved > usd.CarvedAt+usd.Carved {
		b = tok
	}
	b.Over = a.Available.USD < 0 || a.Available.Tokens < 0
	b.Words = formatEnvelope(a.Spent) + " spent of " + formatEnvelope(a.Granted)
	return b
}

func newBar(granted int64, parts ...int64) bar {
	if granted <= 0 {
		return bar{}
	}
	part := func(n int64) int {
		w := int(float64(n) / float64(granted) * 100)
		if n > 0 && w == 0 {
			w = 1 // a little is not nothing
		}
		return min(max(w, 0), 100)
	}
	b := bar{Spent: part(parts[0])}
	b.HeldAt = b.Spent
	b.Held = min(part(parts[1]), 100-b.HeldAt)
	b.CarvedAt = b.HeldAt + b.Held
	b.Carved = min(part(parts[2]), 100-b.CarvedAt)
	return b
}

// taskBar is the bar of a task in a list, without what was carved from it.
func taskBar(t picket.Task) bar {
	return accountBar(budget.Account{Granted: t.BudgetEnvelope, Available: t.Available, Held: t.Held, Spent: t.Spent})
}

// loadBar is how full an agent or a pool is.
func loadBar(load, most int) bar { return newBar(int64(most), int64(load), 0, 0) }

// firstLabels are n of the labels, in the order of their names.
func firstLabels(n int, labels map[string]string) map[string]string {
	first := map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(labels))[:min(n, len(labels))] {
		first[name] = labels[name]
	}
	return first
}

// pair is a name and a value.
type pair struct {
	Name  string
	Value string
}

// ansiEscapes are what programs write to colour a terminal.
var ansiEscapes = lazyregexp.New("\x1b(\\[[0-9;:?]*[ -/]*[@-~]|\\][^\x07\x1b]*(\x07|\x1b\\\\)?|[@-Z\\\\-_])")

// terminalText is what a program printed, as text: without colours, and each line as
// a terminal would leave it after its last carriage return.
func terminalText(data []byte) string {
	s := ansiEscapes().ReplaceAllString(strings.ToValidUTF8(string(data), "\uFFFD"), "")
	s = strings.ReplaceAll(s, "\r\n", "\n")
	if strings.Contains(s, "\r") {
		lines := strings.Split(s, "\n")
		for i, line := range lines {
			line = strings.TrimSuffix(line, "\r")
			lines[i] = line[strings.LastIndexByte(line, '\r')+1:]
		}
		s = strings.Join(lines, "\n")
	}
	return text.Printable(s)
}

// maxExcerpt is how much of a long text most pages show, in bytes.
const maxExcerpt = 6 << 10

// excerpt is the beginning of a long text, cut at a line where it can be, and
// whether there is more.
type excerpt struct {
	Text string
	More bool
}

func newExcerpt(s string, n int) excerpt {
	s = text.Printable(s)
	if len(s) <= n {
		return excerpt{Text: s}
	}
	cut := text.Head(s, n)
	if i := strings.LastIndexByte(cut, '\n'); i > n/2 {
		cut = cut[:i]
	}
	return excerpt{cut, true}
}

// diffLine is a line of a diff, with what it is.
type diffLine struct {
	Kind string
	Text string
}

func diffLines(text string) []diffLine {
	if text == "" {
		return nil
	}
	var out []diffLine
	for line := range strings.SplitSeq(strings.TrimSuffix(text, "\n"), "\n") {
		kind := ""
		switch {
		case strings.HasPrefix(line, "diff ") || strings.HasPrefix(line, "+++") || strings.HasPrefix(line, "---") ||
			strings.HasPrefix(line, "index "):
			kind = "file"
		case strings.HasPrefix(line, "@@"):
			kind = "hunk"
		case strings.HasPrefix(line, "+"):
			kind = "added"
		case strings.HasPrefix(line, "-"):
			kind = "removed"
		}
		out = append(out, diffLine{kind, line})
	}
	return out
}

// diffExcerpt is the beginning of a diff, and whether there is more of it.
func diffExcerpt(diff string, bytes, lines int) (shown []diffLine, more bool) {
	part := newExcerpt(diff, bytes)
	shown, left := firstRows(diffLines(part.Text), lines)
	return shown, part.More || left > 0
}

// firstRows are the first n rows of a list, and how many more there are.
func firstRows[Row any](all []Row, n int) (rows []Row, more int) {
	rows = all[:min(len(all), n)]
	return rows, len(all) - len(rows)
}

// sharedRows is a list for a template that is shared by pages.
type sharedRows struct {
	view
	Rows any
}

// With gives a shared template rows of the page.
func (w view) With(rows any) sharedRows { return sharedRows{w, rows} }
