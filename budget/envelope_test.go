package budget

import (
	stdjson "encoding/json"
	"testing"

	"pgregory.net/rapid"
)

func TestMoneyRoundTrips(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := Money(rapid.Int64Range(-maxNanoDollars, maxNanoDollars).Draw(t, "nano"))
		b, err := stdjson.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		for _, text := range []string{string(b), `"` + string(b) + `"`} {
			var back Money
			if err := stdjson.Unmarshal([]byte(text), &back); err != nil || back != m {
				t.Fatalf("%d -> %s -> %d (%v)", m, text, back, err)
			}
		}
	})
}

// An amount on a screen reads as one: with its cents, and with no digit less than
// it has.
func TestMoneyForPeople(t *testing.T) {
	for m, want := range map[Money]string{
		0: "$0.00", 300_000_000: "$0.30", 1_000_000_000: "$1.00", -1_250_000_000: "-$1.25",
		100_000: "$0.0001", 105_000_000: "$0.105", -1: "-$0.000000001", MaxMoney: "$4000000.00",
	} {
		if got := m.Dollars(); got != want {
			t.Errorf("%d nano-dollars read %s, want %s", int64(m), got, want)
		}
	}
}

func TestMoneyIsExact(t *testing.T) {
	for text, want := range map[string]Money{
		"1.5":         1_500_000_000,
		"0.000000075": 75,
		"1e-9":        1,
		"0":           0,
		"2E1":         20_000_000_000,
	} {
		if got, err := ParseMoney(text); err != nil || got != want {
			t.Errorf("%s: %d %v", text, got, err)
		}
	}
	for _, text := range []string{"", "x", "1e-10", "NaN", "Inf", "1e999999999", "5000000", "1.0000000001", "0x10"} {
		if got, err := ParseMoney(text); err == nil {
			t.Errorf("%q is taken as %d", text, got)
		}
	}
}

func TestEnvelopeBounds(t *testing.T) {
	for _, e := range []Envelope{{Tokens: -1}, {USD: -1}, {Tokens: MaxTokens + 1}} {
		if e.Check() == nil {
			t.Errorf("%+v is allowed", e)
		}
	}
	if err := Default().Check(); err != nil {
		t.Error(err)
	}
}

func FuzzParseMoney(f *testing.F) {
	f.Add("1.5")
	f.Add("1e999999999")
	f.Fuzz(func(t *testing.T, s string) {
		if m, err := ParseMoney(s); err == nil && (m > maxNanoDollars || m < -maxNanoDollars) {
			t.Errorf("%q is %d", s, m)
		}
	})
}
