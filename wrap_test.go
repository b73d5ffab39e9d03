package picket_test

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/picket-dev/picket"
)

func TestWhatIsWrappedOpensForItsPlaceAlone(t *testing.T) {
	older, newer := bytes.Repeat([]byte{1}, 32), bytes.Repeat([]byte{2}, 32)
	sealer := func(keys ...[]byte) *picket.Sealer {
		s, err := picket.NewSealer(keys...)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	const place, secret = "webhook 1 url", "https://hooks.example.test/T/B/very-secret"
	before, rotated, after := sealer(older), sealer(newer, older), sealer(newer)
	wrapped, err := before.Wrap(place, secret)
	if err != nil || strings.Contains(wrapped, "secret") {
		t.Fatalf("%q %v", wrapped, err)
	}
	if again, _ := before.Wrap(place, secret); again == wrapped {
		t.Error("the same secret is wrapped alike twice")
	}
	for name, s := range map[string]*picket.Sealer{"before": before, "while both are there": rotated} {
		if got, err := s.Unwrap(place, wrapped); err != nil || got.Reveal() != secret {
			t.Errorf("%s: %v %v", name, got, err)
		}
	}
	if _, err := after.Unwrap(place, wrapped); !errors.Is(err, picket.ErrSealedElsewhere) {
		t.Errorf("without the key: %v", err)
	}
	if later, _ := rotated.Wrap(place, secret); later != "" {
		if got, err := after.Unwrap(place, later); err != nil || got.Reveal() != secret {
			t.Errorf("the newer key seals: %v", err)
		}
	}
	flipped := []byte(wrapped)
	flipped[len(flipped)/2] ^= 1
	for _, bad := range []struct {
		place string
		text  string
	}{{"webhook 2 url", wrapped}, {place, string(flipped)}, {place, wrapped[:8]}, {place, ""}, {place, "%"}} {
		if got, err := before.Unwrap(bad.place, bad.text); !errors.Is(err, picket.ErrSealedElsewhere) || got != "" {
			t.Errorf("%v: %v", bad, err)
		}
	}
}
