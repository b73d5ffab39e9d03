package picket

import (
	"regexp"
	"strings"
	"testing"
)

// checkedWords are the kinds of ids and names, each with the regular expression that defines it.
var checkedWords = []struct {
	kind    string
	is      func(string) bool
	defined *regexp.Regexp
}{
	{"ULID", isULID, regexp.MustCompile(`^[0-7][0-9A-HJKMNP-TV-Z]{25}$`)},
	{"name", isName, regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.-]{0,127}$`)},
	{"capability", isCapability, regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.+#/-]{0,63}$`)},
	{"namespace", isNamespace, regexp.MustCompile(`^[a-z0-9][a-z0-9-]{0,31}$`)},
	{"label", isLabelName, regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_./-]{0,63}$`)},
}

func compareWithDefinitions(t *testing.T, s string) {
	t.Helper()
	for _, w := range checkedWords {
		if got, want := w.is(s), w.defined.MatchString(s); got != want {
			t.Errorf("%q is a %s: %v, want %v", s, w.kind, got, want)
		}
	}
}

// Every byte in the first, in a middle and in the last place of words of every length around the limits, and every
// word of two bytes, is accepted as its regular expression defines.
func TestIDsAreAcceptedAsDefined(t *testing.T) {
	for _, length := range []int{0, 1, 2, 3, 25, 26, 27, 31, 32, 33, 63, 64, 65, 127, 128, 129, 1000} {
		for _, letter := range []string{"0", "7", "A", "a", "-"} {
			word := strings.Repeat(letter, length)
			compareWithDefinitions(t, word)
			for b := range 256 {
				for _, at := range []int{0, length / 2, length - 1} {
					if at >= 0 && at < length {
						compareWithDefinitions(t, word[:at]+string([]byte{byte(b)})+word[at+1:])
					}
				}
			}
		}
	}
	for two := range 1 << 16 {
		compareWithDefinitions(t, string([]byte{byte(two >> 8), byte(two)}))
	}
	for _, s := range []string{"name\n", "\nname", "ä", "aä", "a\u2028", "a\x80", "\uff10"} {
		compareWithDefinitions(t, s)
	}
}

func FuzzIDsAreAcceptedAsDefined(f *testing.F) {
	for _, s := range []string{"01ARZ3NDEKTSV4RRFFQ69G5FAV", "worker-1", "gpu/a100+x#1", "default",
		"team.x_y/z", "a\n"} {
		f.Add(s)
	}
	f.Fuzz(compareWithDefinitions)
}

// BenchmarkCheckIDs checks the ids of a lease token.
func BenchmarkCheckIDs(b *testing.B) {
	for b.Loop() {
		if CheckNamespace("", "default") != nil || CheckID("", "task", "task_01ARZ3NDEKTSV4RRFFQ69G5FAV") != nil ||
			CheckID("", "run", "run_01BX5ZZKBKACTAV9WEVGEMMVRZ") != nil {
			b.Fatal("refused")
		}
	}
}

// BenchmarkCheckAcquire checks an acquire request.
func BenchmarkCheckAcquire(b *testing.B) {
	for b.Loop() {
		req := AcquireRequest{AgentID: "worker-17", Role: "builder", Capabilities: []string{"go", "linux"}}
		if err := req.Normalize(); err != nil {
			b.Fatal(err)
		}
	}
}
