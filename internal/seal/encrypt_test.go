package seal_test

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/picket-dev/picket/internal/seal"
)

func TestCiphertextIsBoundToItsPlace(t *testing.T) {
	older, newer := bytes.Repeat([]byte{1}, 32), bytes.Repeat([]byte{2}, 32)
	sealer := func(keys ...[]byte) *seal.Sealer {
		s, err := seal.New(keys...)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	const place, secret = "webhook 1 url", "https://hooks.example.test/T/B/very-secret"
	before, rotated, after := sealer(older), sealer(newer, older), sealer(newer)
	wrapped, err := before.Encrypt(place, secret)
	if err != nil || strings.Contains(wrapped, "secret") {
		t.Fatalf("%q %v", wrapped, err)
	}
	if again, _ := before.Encrypt(place, secret); again == wrapped {
		t.Error("the same secret is wrapped alike twice")
	}
	for name, s := range map[string]*seal.Sealer{"before": before, "while both are there": rotated} {
		if got, err := s.Decrypt(place, wrapped); err != nil || got.Reveal() != secret {
			t.Errorf("%s: %v %v", name, got, err)
		}
	}
	if _, err := after.Decrypt(place, wrapped); !errors.Is(err, seal.ErrWrongKey) {
		t.Errorf("without the key: %v", err)
	}
	if later, _ := rotated.Encrypt(place, secret); later != "" {
		if got, err := after.Decrypt(place, later); err != nil || got.Reveal() != secret {
			t.Errorf("the newer key seals: %v", err)
		}
	}
	flipped := []byte(wrapped)
	flipped[len(flipped)/2] ^= 1
	for _, bad := range []struct {
		place string
		text  string
	}{{"webhook 2 url", wrapped}, {place, string(flipped)}, {place, wrapped[:8]}, {place, ""}, {place, "%"}} {
		if got, err := before.Decrypt(bad.place, bad.text); !errors.Is(err, seal.ErrWrongKey) || got != "" {
			t.Errorf("%v: %v", bad, err)
		}
	}
}
