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
