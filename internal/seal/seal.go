// Package seal makes and opens the secrets that only a holder of a server's secret key
// can make: lease tokens, API keys of repeated requests, and encrypted settings.
package seal

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"strings"

	"github.com/picket-dev/picket"
)

// A Sealer makes and opens lease tokens. A token encodes the namespace, the task, the
// run and a MAC over namespace and run, so it names every key of the store that a
// call needs. The first secret key seals, and all of them open, so a key can be
// rotated while leases live.
type Sealer struct {
	keys   []*key
	opened openedTokens
}

// maxToken bounds a lease token in bytes.
const maxToken = 256

// ErrInvalidToken is returned for a lease token that none of the keys made.
var ErrInvalidToken = errors.New("the lease token is malformed or was not made here")

// New takes one or two secret keys of at least 32 bytes.
func New(keys ...[]byte) (*Sealer, error) {
	if len(keys) == 0 || len(keys) > 2 {
		return nil, errors.New("one or two secret keys are needed")
	}
	s := &Sealer{}
	for _, secret := range keys {
		if len(secret) < 32 {
			return nil, errors.New("a secret key has at least 32 bytes")
		}
		s.keys = append(s.keys, newKey(secret))
	}
	return s, nil
}

// LeaseToken returns the token of a run's lease that opens every route. It depends on
// its arguments alone, so a repeated acquire can send it again.
func (s *Sealer) LeaseToken(namespace, taskID, runID string) picket.Secret {
	return s.LeaseTokenFor(picket.SideBoth, namespace, taskID, runID)
}

// LeaseTokenFor is LeaseToken for one side of the lease. The token of one side has one
// more part, so a server that does not know sides refuses it as malformed.
func (s *Sealer) LeaseTokenFor(side picket.LeaseSide, namespace, taskID, runID string) picket.Secret {
	_, task, _ := strings.Cut(taskID, "_")
	_, run, _ := strings.Cut(runID, "_")
	body := namespace + "." + task + "." + run + "."
	if side != picket.SideBoth {
		body += string(side) + "."
	}
	sum := s.keys[0].sideMAC(side, namespace, run)
	return picket.Secret(picket.LeaseTokenPrefix + body + base64.RawURLEncoding.EncodeToString(sum[:]))
}

// Fingerprint is what the store keeps of a run's secret: the hex SHA-256 of
// the MAC. It needs no task id, so it exists before the grant picks one.
func (s *Sealer) Fingerprint(namespace, runID string) string {
	_, run, _ := strings.Cut(runID, "_")
	return fingerprint(s.keys[0].leaseMAC(namespace, run))
}

// OpenLeaseToken checks the form and the MAC of a token and returns its credential,
// without a presented fence. The MAC does not cover the task id: the engine
// refuses a wrong one as task_mismatch. The Secret is the one that the store keeps
// of the run, whatever side the token is of.
func (s *Sealer) OpenLeaseToken(token string) (picket.LeaseCredential, error) {
	if len(token) > maxToken {
		return picket.LeaseCredential{}, ErrInvalidToken
	}
	hash := hashToken(token)
	if held, ok := s.opened.find(hash); ok {
		return held, nil
	}
	held, err := s.openNewLeaseToken(token)
	if err == nil {
		s.opened.keep(hash, held)
	}
	return held, err
}

// openNewLeaseToken is OpenLeaseToken for a token that was not opened before.
func (s *Sealer) openNewLeaseToken(token string) (picket.LeaseCredential, error) {
	held, run, sum, ok := parseLeaseToken(token)
	if !ok {
		return picket.LeaseCredential{}, ErrInvalidToken
	}
	for _, k := range s.keys {
		own := k.sideMAC(held.Side, held.Namespace, run)
		if !hmac.Equal(sum, own[:]) {
			continue
		}
		if held.Side != picket.SideBoth {
			own = k.leaseMAC(held.Namespace, run)
		}
		held.Secret = fingerprint(own)
		return held, nil
	}
	return picket.LeaseCredential{}, ErrInvalidToken
}

// parseLeaseToken returns the credential that a token claims to be, without its Secret, the ULID of
// its run, and its MAC.
func parseLeaseToken(token string) (held picket.LeaseCredential, run string, sum []byte, ok bool) {
	body, ok := strings.CutPrefix(token, picket.LeaseTokenPrefix)
	if !ok {
		return held, "", nil, false
	}
	parts := strings.Split(body, ".")
	if len(parts) == 5 {
		switch picket.LeaseSide(parts[3]) {
		case picket.SideAdapter:
			held.Side = picket.SideAdapter
		case picket.SideAgent:
			held.Side = picket.SideAgent
		default:
			return held, "", nil, false
		}
		parts = append(parts[:3], parts[4])
	}
	if len(parts) != 4 {
		return held, "", nil, false
	}
	// A copy of the namespace, as the credential is kept and the token is not.
	held.Namespace, held.TaskID, held.RunID = strings.Clone(parts[0]), "task_"+parts[1], "run_"+parts[2]
	if picket.CheckNamespace("", held.Namespace) != nil || picket.CheckID("", "task", held.TaskID) != nil ||
		picket.CheckID("", "run", held.RunID) != nil {
		return held, "", nil, false
	}
	sum, err := base64.RawURLEncoding.Strict().DecodeString(parts[3])
	return held, parts[2], sum, err == nil
}

// Derive returns 32 bytes that only a holder of the first key can make, the
// same for the same label: a secret that a repeated request can be shown again.
func (s *Sealer) Derive(label string) []byte {
	return s.keys[0].derive(label)
}

// DeriveAll returns what Derive returns, for each of the keys in their order. It is
// for a secret that others keep while the keys are replaced.
func (s *Sealer) DeriveAll(label string) (all [][]byte) {
	for _, k := range s.keys {
		all = append(all, k.derive(label))
	}
	return all
}

func fingerprint(mac [sha256.Size]byte) string {
	sum := sha256.Sum256(mac[:])
	return hex.EncodeToString(sum[:])
}

// ErrWrongKey is returned for a text that was encrypted with a key that the Sealer
// does not have, or for another place.
var ErrWrongKey = errors.New("it was sealed with another secret key, or for another place")

// Encrypt encrypts a secret that has to be kept in the store, with a key that only
// a holder of the first secret key can make. place names what it belongs to, such as
// "webhook 01J… url". Decrypt needs the same place.
func (s *Sealer) Encrypt(place string, secret picket.Secret) (string, error) {
	box, err := newAEAD(s.keys[0])
	if err != nil {
		return "", err
	}
	nonce := make([]byte, box.NonceSize())
	_, _ = rand.Read(nonce) // it never fails: the program ends if the system has no randomness
	return base64.RawURLEncoding.EncodeToString(box.Seal(nonce, nonce, []byte(secret), []byte(place))), nil
}

// Decrypt opens what Encrypt has made with any of the keys, for the same place.
// Anything else is ErrWrongKey.
func (s *Sealer) Decrypt(place, wrapped string) (picket.Secret, error) {
	raw, err := base64.RawURLEncoding.Strict().DecodeString(wrapped)
	if err != nil {
		return "", ErrWrongKey
	}
	for _, k := range s.keys {
		box, err := newAEAD(k)
		if err != nil {
			return "", err
		}
		if len(raw) < box.NonceSize() {
			break
		}
		if plain, err := box.Open(nil, raw[:box.NonceSize()], raw[box.NonceSize():], []byte(place)); err == nil {
			return picket.Secret(plain), nil
		}
	}
	return "", ErrWrongKey
}

func newAEAD(k *key) (cipher.AEAD, error) {
	block, err := aes.NewCipher(k.derive("wrap"))
	if err != nil {
		return nil, err
	}
	return cipher.NewGCM(block)
}
