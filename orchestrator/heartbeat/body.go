package heartbeat

import (
	"regexp"
	"strings"
	"unicode/utf8"

	"github.com/picket-dev/picket/internal/lazyregexp"
)

var (
	atxHeading  = lazyregexp.New(`^#{1,6}([ \t]+(.*))?$`)
	underline   = lazyregexp.New(`^(=+|-+)[ \t]*$`)
	htmlHeading = lazyregexp.New(`(?i)<h[1-6][^>]*>(.*?)</h[1-6]>`)
	tag         = lazyregexp.New(`<[^>]*>`)
	link        = lazyregexp.New(`\[([^\]]*)\]\([^)]*\)`)
)

// bodyLine is a line of Markdown without the marks of the quotes and lists that it is in.
type bodyLine struct {
	text   string // without white space around it
	quotes int    // marks >
	listed bool   // it begins an item of a list
	indent int    // of the text behind quotes and list marks, in characters
	blank  bool
}

func readLine(line string) (l bodyLine) {
	rest := strings.ReplaceAll(line, "\t", "    ")
	for {
		trimmed := strings.TrimLeft(rest, " ")
		l.indent += len(rest) - len(trimmed)
		mark := listMark(trimmed)
		switch {
		case strings.HasPrefix(trimmed, ">"):
			l.quotes, l.indent, rest = l.quotes+1, 0, strings.TrimPrefix(trimmed[1:], " ")
		case mark > 0:
			l.listed, l.indent, rest = true, l.indent+mark, trimmed[mark:]
		default:
			l.text, l.blank = strings.TrimRight(trimmed, " "), trimmed == ""
			return l
		}
	}
}

// listMark is the length of the mark of an item that a text begins with, such as "- " or "1. ". It is 0
// if there is none. A mark with nothing behind it does not count: below a paragraph, it underlines a heading.
func listMark(text string) int {
	digits := 0
	for digits < len(text) && digits < 9 && text[digits] >= '0' && text[digits] <= '9' {
		digits++
	}
	marks := "-*+"
	if digits > 0 {
		marks = ".)"
	}
	rest := text[digits:]
	if len(rest) < 2 || !strings.Contains(marks, rest[:1]) || rest[1] != ' ' || strings.TrimLeft(rest[1:], " ") == "" {
		return 0
	}
	return digits + 2
}

// firstMatch matches a text that begins with one of some characters.
func firstMatch(pattern *regexp.Regexp, text, begins string) []string {
	if text == "" || !strings.Contains(begins, text[:1]) {
		return nil
	}
	return pattern.FindStringSubmatch(text)
}

// headingFinder finds the headings of Markdown, line by line. It follows CommonMark as far as is
// needed to tell headings from prose and from code.
type headingFinder struct {
	fence     string // what closes the code that is open; empty: none is
	opened    bodyLine
	comment   bool // of HTML, which is open
	inList    bool
	paragraph []string // the lines of the paragraph so far, for headings that are underlined
	begin     int      // its first line
	quotes    int      // of the paragraph
}

// next returns the headings that end on a line, and the line on which they begin.
func (h *headingFinder) next(number int, line string) (headings []string, begin int) {
	l := readLine(line)
	if h.inCode(l) {
		h.paragraph = nil
		return nil, 0
	}
	h.followList(l)
	h.followComment(line)
	if strings.Contains(line, "</") {
		for _, m := range htmlHeading().FindAllStringSubmatch(line, -1) {
			headings = append(headings, tag().ReplaceAllString(m[1], " "))
		}
	}
	if headings != nil {
		return headings, number
	}
	code := l.indent > 3 && !h.inList
	if m := firstMatch(atxHeading(), l.text, "#"); m != nil && !code {
		h.paragraph = nil
		return []string{m[2]}, number
	}
	if code && len(h.paragraph) == 0 {
		return nil, 0
	}
	return h.underlined(number, l, code)
}

// underlined follows paragraphs: one with a line of = or - below it is a heading.
func (h *headingFinder) underlined(number int, l bodyLine, code bool) (headings []string, begin int) {
	same := len(h.paragraph) > 0 && l.quotes == h.quotes && !l.listed
	switch {
	case l.blank:
		h.paragraph = nil
	case same && !code && firstMatch(underline(), l.text, "=-") != nil:
		headings, begin = []string{strings.Join(h.paragraph, " ")}, h.begin
		h.paragraph = nil
	case same:
		h.paragraph = append(h.paragraph, l.text)
	default:
		h.paragraph, h.begin, h.quotes = []string{l.text}, number, l.quotes
	}
	return headings, begin
}

// inCode reports whether a line is in fenced code, or opens or closes it. Code also ends with the
// quote or the item of a list that it is in.
func (h *headingFinder) inCode(l bodyLine) bool {
	if h.fence != "" && (l.quotes < h.opened.quotes || h.inItem() && !l.blank && l.indent < h.opened.indent) {
		h.fence = ""
	}
	mark, info := fenceMark(l.text)
	switch {
	case h.fence != "":
		if !l.listed && strings.HasPrefix(mark, h.fence) && info == "" {
			h.fence = ""
		}
		return true
	case mark == "" || h.comment || mark[0] == '`' && strings.Contains(info, "`"):
		return false
	}
	h.fence, h.opened = mark, l
	return true
}

// fenceMark splits a line such as "``` sh". The mark is empty if the line is not a fence.
func fenceMark(text string) (mark, info string) {
	for _, char := range []string{"`", "~"} {
		info = strings.TrimLeft(text, char)
		if mark = text[:len(text)-len(info)]; len(mark) >= 3 {
			return mark, info
		}
	}
	return "", ""
}

func (h *headingFinder) inItem() bool { return h.opened.listed || h.inList && h.opened.indent > 1 }

// followList knows whether the line may belong to an item of a list.
func (h *headingFinder) followList(l bodyLine) {
	if !l.blank {
		h.inList = l.listed || h.inList && l.indent > 0
	}
}

// followComment knows whether a comment of HTML is open. A fence in it opens no code.
func (h *headingFinder) followComment(line string) {
	if !h.comment && strings.HasPrefix(strings.TrimSpace(line), "<!--") {
		h.comment = true
	}
	if h.comment && strings.Contains(line, "-->") {
		h.comment = false
	}
}

// reservedHeadings refuses the headings of a body that claim an authority.
func (f *findings) reservedHeadings(body string, firstLine int) {
	var h headingFinder
	lines := strings.Split(body, "\n")
	for i, line := range lines {
		if len(f.list) == maxDiagnostics {
			return
		}
		headings, begin := h.next(i, line)
		for _, heading := range headings {
			f.reserved(heading, place{line: firstLine + begin, column: columnOf(lines[begin])})
		}
	}
}

func (f *findings) reserved(heading string, at place) {
	if surface := headingSurfaces[headingName(heading)]; surface != "" {
		f.refuseOwned(CodeReservedSection, at, surface, "the heading %s claims what HEARTBEAT.md does not decide",
			quoted(strings.TrimSpace(heading)))
	}
}

// columnOf is the column of the first character of a line that is not white space.
func columnOf(line string) int {
	rest := strings.TrimLeft(line, " \t")
	return 1 + utf8.RuneCountInString(line[:len(line)-len(rest)])
}
