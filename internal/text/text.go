// Package text shortens texts for people.
package text

import "strings"

// Head returns at most the first n bytes of s. It never cuts a UTF-8 sequence in two.
func Head(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && s[n]&0xC0 == 0x80 {
		n--
	}
	return s[:n]
}

// Tail returns at most the last n bytes of s. It never cuts a UTF-8 sequence in two.
func Tail(s string, n int) string {
	if len(s) <= n {
		return s
	}
	s = s[len(s)-n:]
	for len(s) > 0 && s[0]&0xC0 == 0x80 {
		s = s[1:]
	}
	return s
}

// Excerpt returns at most the first n characters of s. It ends a text that it cut
// with "…". Bytes that are not UTF-8 become U+FFFD.
func Excerpt(s string, n int) string {
	for i := range s {
		if n--; n < 0 {
			return strings.ToValidUTF8(s[:i], "\uFFFD") + "…"
		}
	}
	return strings.ToValidUTF8(s, "\uFFFD")
}
