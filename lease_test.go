package picket

import (
	"math"
	"testing"

	"github.com/go-json-experiment/json"
)

func checkRenewalEncoding(t *testing.T, r Renewal) {
	t.Helper()
	want, err := json.Marshal(r, json.Deterministic(true))
	if err != nil {
		t.Skip(err) // text that is not UTF-8, which neither encodes
	}
	got, err := r.AppendJSON([]byte("before "))
	if err != nil || string(got) != "before "+string(want) {
		t.Errorf("%+v is %s, %v, want %s", r, got, err, want)
	}
}

func TestRenewalsAreEncodedAsPackageJSONDoes(t *testing.T) {
	idle := []int64{0, 1, -5, math.MaxInt64}
	for _, commands := range [][]Command{nil, {}, {{Command: "stop", Reason: "<a> & \"b\" \u2028 é\n"}},
		{{Command: "nudge", Number: 3, Cause: "silent"}, {Command: "exec", Exec: &ExecRequest{CallID: "c"}}}} {
		for _, at := range []Instant{0, 1, 999, 1000, 1_799_999_999_123, -1, math.MaxInt64, 253_402_300_799_999} {
			for _, n := range []int64{0, -1, 4_503_599_627_370_497, math.MaxInt64, math.MinInt64} {
				checkRenewalEncoding(t, Renewal{at, n, n, commands, nil})
				for i := range idle {
					checkRenewalEncoding(t, Renewal{at, n, n, commands, &idle[i]})
				}
			}
		}
	}
	if got, err := (Renewal{Commands: []Command{{Reason: "\xff"}}}).AppendJSON(nil); err == nil {
		t.Errorf("text that is not UTF-8 was encoded: %s", got)
	}
}

func FuzzRenewalsAreEncodedAsPackageJSONDoes(f *testing.F) {
	f.Add(int64(1_799_999_999_123), int64(300_000), int64(7), true, int64(12), "nudge", "silent for too long")
	f.Add(int64(0), int64(0), int64(0), false, int64(0), "", "")
	f.Fuzz(func(t *testing.T, at, ttl, token int64, idles bool, idle int64, command, reason string) {
		r := Renewal{LeaseExpiresAt: Instant(at), LeaseTTLMs: ttl, FencingToken: token}
		if idles {
			r.IdleMs = &idle
		}
		if command != "" {
			r.Commands = []Command{{Command: command, Reason: reason, Number: ttl}}
		}
		checkRenewalEncoding(t, r)
	})
}

// BenchmarkEncodeRenewal encodes a renewal without commands.
func BenchmarkEncodeRenewal(b *testing.B) {
	idle := int64(1234)
	r := Renewal{1_799_999_999_123, 300_000, 4_503_599_627_370_497, nil, &idle}
	b.Run("append", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := r.AppendJSON(make([]byte, 0, 256)); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("package json", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := json.Marshal(r, json.Deterministic(true)); err != nil {
				b.Fatal(err)
			}
		}
	})
}
