package seal

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"fmt"
	"strings"
	"sync"
	"testing"
)

// plainMAC is the MAC of a key, made without kept hash states.
func plainMAC(secret []byte, parts ...string) []byte {
	h := hmac.New(sha256.New, secret)
	h.Write([]byte(strings.Join(parts, "\x00")))
	return h.Sum(nil)
}

// Hash states that are used again, one after the other and by many goroutines at once, make the same MACs as new ones.
func TestKeptHashStatesMakeTheSameMACs(t *testing.T) {
	secrets := [][]byte{bytes.Repeat([]byte("a"), 32), bytes.Repeat([]byte("b"), 200)}
	keys := []*key{newKey(secrets[0]), newKey(secrets[1])}
	var group sync.WaitGroup
	for worker := range 8 {
		group.Go(func() {
			for i := range 200 {
				k := (worker + i) % 2
				parts := []string{"lease", strings.Repeat("x", i), fmt.Sprint(worker)}[:1+i%3]
				if got := keys[k].mac(parts...); !bytes.Equal(got[:], plainMAC(secrets[k], parts...)) {
					t.Errorf("key %d, %q: another MAC", k, parts)
				}
			}
		})
	}
	group.Wait()
}

// A caller that overwrites the secret key after New does not change the MACs of the Sealer.
func TestTheSecretKeyIsCopied(t *testing.T) {
	secret := bytes.Repeat([]byte("a"), 32)
	s, err := New(secret)
	if err != nil {
		t.Fatal(err)
	}
	clear(secret)
	if got := s.Derive("x"); !bytes.Equal(got, plainMAC(bytes.Repeat([]byte("a"), 32), "derive", "x")) {
		t.Error("the MAC was made with the overwritten key")
	}
}
