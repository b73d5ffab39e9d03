package doctor

import (
	"testing"

	"github.com/picket-dev/picket"
)

func TestClocksThatAreApartAreTold(t *testing.T) {
	for ms, want := range map[int64]string{
		0:       "",
		2000:    "",
		-2000:   "",
		2001:    "the clock of its store is 2.001s ahead of the server's",
		-90_000: "the clock of its store is 1m30s behind the server's",
	} {
		if got := clockSkewText(picket.Stats{ClockOffsetMs: ms}); got != want {
			t.Errorf("%d ms: %q, want %q", ms, got, want)
		}
	}
}
