package sessions

import (
	"strings"
	"testing"

	"github.com/oklog/ulid/v2"

	"github.com/picket-dev/picket"
)

// A capability is found however it is cut into pieces, and nothing else is changed.
func TestCapabilitiesAreRedacted(t *testing.T) {
	for _, of := range []string{"prompt_", "asession_"} {
		t.Run(of, func(t *testing.T) {
			isRedacted(t, picket.NewSessionCapability("default", of+ulid.Make().String()).Reveal())
		})
	}
}

func isRedacted(t *testing.T, secret string) {
	for text, want := range map[string]string{
		"it is " + secret + ", or " + secret:   "it is [redacted], or [redacted]",
		secret:                                 "[redacted]",
		secret[:len(secret)-30]:                "[redacted]",
		"pks_pks_" + secret:                    "pks_pks_[redacted]",
		"x" + secret + "\n":                    "x[redacted]\n",
		"a task is pk, pks_ or " + secret[:20]: "a task is pk, pks_ or " + secret[:20],
		strings.Repeat("pks_", 200) + " p":     strings.Repeat("pks_", 200) + " p",
		"pks_default.0.x pkl_default pks":      "pks_default.0.x pkl_default pks",
	} {
		for _, n := range []int{1, 2, 3, 7, 50, len(text)} {
			var out strings.Builder
			r := &redactor{to: &out}
			for rest := text; rest != ""; {
				piece := rest[:min(n, len(rest))]
				if _, err := r.Write([]byte(piece)); err != nil {
					t.Fatal(err)
				}
				rest = rest[len(piece):]
			}
			r.Flush()
			if out.String() != want {
				t.Errorf("in pieces of %d: %q, want %q", n, out.String(), want)
			}
		}
	}
}
