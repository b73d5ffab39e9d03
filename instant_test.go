package picket

import (
	"math"
	"math/rand/v2"
	"testing"
)

// The wire form of an instant is RFC 3339 in UTC with three decimals.
func TestInstantsAreWrittenWithThreeDecimals(t *testing.T) {
	check := func(i Instant) {
		t.Helper()
		want := i.Time().Format("2006-01-02T15:04:05.000Z07:00")
		if got, err := i.MarshalJSON(); err != nil || string(got) != `"`+want+`"` || i.String() != want {
			t.Errorf("%d is %s and %s, %v, want %s", int64(i), got, i, err, want)
		}
	}
	for _, i := range []Instant{1, -1, 9, 10, 99, 100, 999, 1000, 1001, -999, -1000, 1_799_999_999_123,
		253_402_300_799_999, 253_402_300_800_000, math.MaxInt64, math.MinInt64, -62_135_596_800_001} {
		check(i)
	}
	random := rand.New(rand.NewPCG(1, 2))
	for range 20_000 {
		check(Instant(1 + random.Int64N(253_402_300_800_000)))
	}
}
