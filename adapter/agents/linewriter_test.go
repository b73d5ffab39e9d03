package agents

import (
	"bytes"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// Lines are whole however the output is cut, nothing is changed on the way, and
// a line that is too long passes unread.
func TestLinesAreReadAcrossWrites(t *testing.T) {
	long := strings.Repeat("x", maxLine+1)
	text := "one\n\n  two  \r\n" + long + "\nthree\nfour"
	for seed := range uint64(50) {
		r := rand.New(rand.NewPCG(seed, 1))
		var to bytes.Buffer
		var got []string
		l := &lineWriter{to: &to, each: func(b []byte) { got = append(got, string(b)) }}
		for rest := text; rest != ""; {
			n := min(1+r.IntN(len(text)/10), len(rest))
			if r.IntN(2) == 0 {
				n = min(1+r.IntN(5), len(rest))
			}
			if len(rest) > len(text)-20 || len(rest) < 20 {
				n = 1
			}
			if _, err := l.Write([]byte(rest[:n])); err != nil {
				t.Fatal(err)
			}
			rest = rest[n:]
			if len(rest) > maxLine { // most of the long one at once
				if _, err := l.Write([]byte(rest[:maxLine/2])); err != nil {
					t.Fatal(err)
				}
				rest = rest[maxLine/2:]
			}
		}
		l.flush()
		if want := []string{"one", "two", "three", "four"}; !slices.Equal(got, want) {
			t.Fatalf("seed %d: read %.60q, want %q", seed, got, want)
		}
		if to.String() != text {
			t.Fatalf("seed %d: the output was changed on its way", seed)
		}
	}
}
