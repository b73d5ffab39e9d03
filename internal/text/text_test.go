package text

import "testing"

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
