package seal

import (
	"crypto/hmac"
	"crypto/sha256"
	"hash"
	"slices"
	"sync"

	"github.com/picket-dev/picket"
)

// A key makes MACs with one secret key. It keeps hash states that have absorbed the secret key, because
// that is half of the work of a short MAC.
type key struct{ states sync.Pool } // of *keyedState

// A keyedState makes one MAC at a time.
type keyedState struct {
	hash hash.Hash // of the secret key and nothing else
	text []byte    // what is hashed, and then the MAC: kept so that no call allocates memory
}

func newKey(secret []byte) *key {
	secret = slices.Clone(secret)
	return &key{sync.Pool{New: func() any { return &keyedState{hash: hmac.New(sha256.New, secret)} }}}
}

// mac returns the MAC of these parts. The first one says what it is for.
func (k *key) mac(parts ...string) (sum [sha256.Size]byte) {
	s := k.states.Get().(*keyedState)
	s.text = append(s.text[:0], parts[0]...)
	for _, part := range parts[1:] {
		s.text = append(append(s.text, 0), part...)
	}
	s.hash.Write(s.text)
	s.text = s.hash.Sum(s.text[:0])
	copy(sum[:], s.text)
	s.hash.Reset()
	k.states.Put(s)
	return sum
}

// derive returns the MAC for a label of [Sealer.Derive].
func (k *key) derive(label string) []byte {
	sum := k.mac("derive", label)
	return sum[:]
}

func (k *key) leaseMAC(namespace, runULID string) [sha256.Size]byte {
	return k.mac("lease", namespace, runULID)
}

// sideMAC is the MAC of one side's token. That of both sides is the MAC
// whose fingerprint the store keeps.
func (k *key) sideMAC(side picket.LeaseSide, namespace, runULID string) [sha256.Size]byte {
	if side == picket.SideBoth {
		return k.leaseMAC(namespace, runULID)
	}
	return k.mac("bearer", string(side), namespace, runULID)
}
