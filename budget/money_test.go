package budget

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/shopspring/decimal"
)

// checkMoney compares how an amount is written with package decimal, and how its text is read without the short way for
// plain amounts.
func checkMoney(t *testing.T, m Money) {
	t.Helper()
	want := decimal.New(int64(m), -9).String()
	got, err := m.MarshalJSON()
	if err != nil || string(got) != want || m.String() != want {
		t.Errorf("%d is %s and %s, %v, want %s", int64(m), got, m, err, want)
	}
	if again, err := ParseMoney(want); m >= -MaxMoney && m <= MaxMoney && (err != nil || again != m) {
		t.Errorf("%s is read as %d, %v", want, int64(again), err)
	}
}

func TestMoneyIsWrittenAndReadExactly(t *testing.T) {
	for _, m := range []Money{0, 1, -1, 9, 10, 75, 999_999_999, 1_000_000_000, 1_000_000_001, 1_500_000_000,
		-1_250_000_000, 300_000_000, 100_000, MaxMoney, MaxMoney + 1, -MaxMoney, -MaxMoney - 1,
		math.MaxInt64, math.MinInt64} {
		checkMoney(t, m)
	}
	random := rand.New(rand.NewPCG(3, 4))
	for range 20_000 {
		checkMoney(t, Money(random.Int64N(2*int64(MaxMoney))-int64(MaxMoney)))
		checkMoney(t, Money(random.Int64N(20_000))*100_000_000)
	}
}

// Plain amounts are read as package decimal reads them.
func FuzzPlainMoney(f *testing.F) {
	for _, s := range []string{"1.5", "-0", "0.000000001", "4000000", "4000000.000000001", "00.10", "1.", ".5", "+1",
		"1e3", "-"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		m, ok := parsePlainMoney(s)
		if !ok {
			return
		}
		d, err := decimal.NewFromString(s)
		if err != nil || !d.Mul(nanosPerDollar).Equal(decimal.NewFromInt(int64(m))) || m < -MaxMoney || m > MaxMoney {
			t.Errorf("%q is read as %d, and by package decimal as %s, %v", s, int64(m), d, err)
		}
	})
}

// BenchmarkMoney writes and reads an amount.
func BenchmarkMoney(b *testing.B) {
	for b.Loop() {
		text, err := Money(1_500_000_000).MarshalJSON()
		if err != nil {
			b.Fatal(err)
		}
		var m Money
		if err := m.UnmarshalJSON(text); err != nil || m != 1_500_000_000 {
			b.Fatal(m, err)
		}
	}
}
