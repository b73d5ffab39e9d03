package seal

import (
	"strings"
	"testing"

	"github.com/picket-dev/picket"
)

func benchSealer(b *testing.B, keys ...string) *Sealer {
	b.Helper()
	var raw [][]byte
	for _, k := range keys {
		raw = append(raw, []byte(strings.Repeat(k, 32)))
	}
	s, err := New(raw...)
	if err != nil {
		b.Fatal(err)
	}
	return s
}

// BenchmarkOpenLeaseToken opens tokens of both sides and of one, with the key that made them and with the key before
// a rotation, each for the first time. Opened before is a token that was.
func BenchmarkOpenLeaseToken(b *testing.B) {
	made := benchSealer(b, "a")
	for name, side := range map[string]picket.LeaseSide{"both": picket.SideBoth, "adapter": picket.SideAdapter} {
		token := made.LeaseTokenFor(side, "default", aTask, aRun).Reveal()
		for when, s := range map[string]*Sealer{"now": made, "rotated": benchSealer(b, "b", "a")} {
			b.Run(name+"/"+when, func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					if _, err := s.openNewLeaseToken(token); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
		b.Run(name+"/opened before", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := made.OpenLeaseToken(token); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkGrantSecrets makes what a grant makes: the fingerprint of a run and the token of its lease.
func BenchmarkGrantSecrets(b *testing.B) {
	s := benchSealer(b, "a")
	b.ReportAllocs()
	for b.Loop() {
		s.Fingerprint("default", aRun)
		s.LeaseToken("default", aTask, aRun)
	}
}
