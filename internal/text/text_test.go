package text

import (
	"encoding/csv"
	"strings"
	"testing"
)

func TestHeadAndTail(t *testing.T) {
	for _, c := range []struct {
		text       string
		n          int
		head, tail string
	}{
		{"", 3, "", ""},
		{"abc", 3, "abc", "abc"},
		{"abcd", 3, "abc", "bcd"},
		{"abcd", 0, "", ""},
		{"aü", 2, "a", "ü"},
		{"üa", 2, "ü", "a"},
		{"€€", 4, "€", "€"},
		{"€", 2, "", ""},
	} {
		if got := Head(c.text, c.n); got != c.head {
			t.Errorf("Head(%q, %d) is %q, want %q", c.text, c.n, got, c.head)
		}
		if got := Tail(c.text, c.n); got != c.tail {
			t.Errorf("Tail(%q, %d) is %q, want %q", c.text, c.n, got, c.tail)
		}
	}
}

func TestExcerpt(t *testing.T) {
	for _, c := range []struct {
		text string
		n    int
		want string
	}{
		{"", 0, ""},
		{"abc", 3, "abc"},
		{"abcd", 3, "abc…"},
		{"üüü", 2, "üü…"},
		{"a\xff", 2, "a\uFFFD"},
		{"a\xffb", 2, "a\uFFFD…"},
	} {
		if got := Excerpt(c.text, c.n); got != c.want {
			t.Errorf("Excerpt(%q, %d) is %q, want %q", c.text, c.n, got, c.want)
		}
	}
}

func TestValidHeadAndShorten(t *testing.T) {
	for _, c := range []struct {
		text        string
		n           int
		head, short string
	}{
		{"", 3, "", ""},
		{"abc", 3, "abc", "abc"},
		{"abcd", 3, "abc", "abc…"},
		{"aü", 2, "a", "a…"},
		{"a\xffb", 3, "ab", "ab"},
		{"a\xffb", 2, "a", "a…"},
	} {
		if got := ValidHead(c.text, c.n); got != c.head {
			t.Errorf("ValidHead(%q, %d) is %q, want %q", c.text, c.n, got, c.head)
		}
		if got := Shorten(c.text, c.n); got != c.short {
			t.Errorf("Shorten(%q, %d) is %q, want %q", c.text, c.n, got, c.short)
		}
	}
}

func TestUntrustedText(t *testing.T) {
	for _, c := range []struct {
		rule, text         string
		printable, oneLine string
	}{
		{"lines and tabs", "a\tb\nc", "a\tb\nc", "a b c"},
		{"carriage return", "a\rb", "ab", "a b"},
		{"line separators", "a\u2028b\u2029c", "a b c", "a b c"},
		{"escape sequences", "a\x1b[2Jb\u009bc\x00\x7f", "a[2Jbc", "a[2Jbc"},
		{"direction", "é\u202ea\u2066b\u200f", "éab", "éab"},
		{"invisible", "a\u200b\ufeff\U000E0001b", "ab", "ab"},
		{"joiners", "n\u200ch 👩\u200d🚀 \u0600", "n\u200ch 👩\u200d🚀 \u0600", "n\u200ch 👩\u200d🚀 \u0600"},
		{"not UTF-8", "a\xffb", "a\uFFFDb", "a\uFFFDb"},
		{"spaces", "a\u00a0b", "a\u00a0b", "a\u00a0b"},
	} {
		if got := Printable(c.text); got != c.printable {
			t.Errorf("%s: Printable(%q) is %q, want %q", c.rule, c.text, got, c.printable)
		}
		if got := OneLine(c.text); got != c.oneLine {
			t.Errorf("%s: OneLine(%q) is %q, want %q", c.rule, c.text, got, c.oneLine)
		}
	}
}

func TestSpreadsheetCell(t *testing.T) {
	for text, want := range map[string]string{
		"":                         "",
		"fix it":                   "fix it",
		"a=b; c-d, e@f":            "a=b; c-d, e@f",
		`=HYPERLINK("x")`:          `'=HYPERLINK("x")`,
		"\t=1":                     "'=1",
		"\r\n+1":                   "'+1",
		"a;=1":                     "a;'=1",
		"a; \" -1;@x":              "a; \" '-1;'@x",
		"a;\t=1":                   "a; '=1",
		"a;\r=1":                   "a; '=1",
		"a\t=1":                    "a =1", // no tab is left that could separate cells
		";;=1":                     ";;'=1",
		"a;\u00a0＝1":               "a;\u00a0'＝1",
		"'=1":                      "'=1",
		"a;b=1":                    "a;b=1",
		`"=1`:                      `"'=1`,
		`{"summary":"a;=1","b":1}`: `{"summary":"a;'=1","b":1}`,
	} {
		if got := SpreadsheetCell(text); got != want {
			t.Errorf("SpreadsheetCell(%q) is %q, want %q", text, got, want)
		}
	}
}

// A reader of commas gets every cell back as it was written. A reader of semicolons or tabs finds no
// formula in any of its cells, with and without quotation marks around them.
func TestSpreadsheetsFindNoFormula(t *testing.T) {
	texts := []string{""}
	for range 5 { // all texts of up to five of these signs
		var longer []string
		for _, text := range texts {
			for _, sign := range []string{"a", ";", "=", `"`, " ", "\t", "\r", ","} {
				longer = append(longer, text+sign)
			}
		}
		texts = longer
		for _, text := range texts {
			checkSpreadsheetRow(t, text)
		}
	}
}

func checkSpreadsheetRow(t *testing.T, text string) {
	t.Helper()
	cell := SpreadsheetCell(text)
	var row strings.Builder
	w := csv.NewWriter(&row)
	_ = w.Write([]string{cell, "1", cell})
	w.Flush()
	read, err := csv.NewReader(strings.NewReader(row.String())).Read()
	if err != nil || len(read) != 3 || read[0] != cell || read[1] != "1" || read[2] != cell {
		t.Fatalf("%v: %q is written as %q and read as %q", err, text, row.String(), read)
	}
	for _, separator := range ";\t" {
		r := csv.NewReader(strings.NewReader(row.String()))
		r.Comma, r.LazyQuotes = separator, true
		cells, _ := r.Read()
		for _, c := range append(cells, strings.Split(row.String(), string(separator))...) {
			if strings.HasPrefix(strings.TrimLeft(c, ` "`), "=") {
				t.Fatalf("%q is written as %q, and %q is a formula", text, row.String(), c)
			}
		}
	}
}

// Every line of a quote begins with a mark, whatever the text does.
func TestQuote(t *testing.T) {
	for text, want := range map[string]string{
		"":                  ">\n",
		"a":                 "> a\n",
		"a\n\nb":            "> a\n>\n> b\n",
		"a\u2028b\r\nc\x1b": "> a b\n> c\n",
	} {
		if got := Quote(text); got != want {
			t.Errorf("Quote(%q) is %q, want %q", text, got, want)
		}
	}
}
