package picket

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"strings"
)

// LeaseTokenPrefix starts every lease capability; KeyPrefix every API key.
const (
	LeaseTokenPrefix = "pkl_"
	KeyPrefix        = "pkk_"
)

// Sealer makes and opens lease capabilities. A capability encodes namespace,
// task, run and a MAC over namespace and run, so one look tells every key of
// the store that a call needs. The first key seals; all of them open, so a key
// can be rotated while leases live.
type Sealer struct{ keys [][]byte }

// ErrInvalidToken is returned for a capability that none of the keys made.
var ErrInvalidToken = errors.New("the lease token is malformed or was not made here")

// NewSealer takes one or two secret keys of at least 32 bytes.
func NewSealer(keys ...[]byte) (*Sealer, error) {
	if len(keys) == 0 || len(keys) > 2 {
		return nil, errors.New("one or two secret keys are needed")
	}
	for _, k := range keys {
		if len(k) < 32 {
			return nil, errors.New("a secret key has at least 32 bytes")
		}
	}
	return &Sealer{keys: keys}, nil
}

// A Bearer is the side of a lease that a capability was made for. The MAC covers
// it, so a capability of one side cannot be changed into one of the other.
type LeaseSide string

// The sides of a lease.
const (
	// SideBoth is the capability of an acquire that did not ask for two: it
	// opens every route.
	SideBoth LeaseSide = ""
	// SideAdapter keeps the lease and reports about the run.
	SideAdapter LeaseSide = "adapter"
	// SideAgent calls tools and language models.
	SideAgent LeaseSide = "agent"
)

// LeaseToken returns the capability of a run's lease that opens every route. It is a
// function of its arguments, so a replayed acquire can send it again.
func (s *Sealer) LeaseToken(namespace, taskID, runID string) Secret {
	return s.LeaseTokenFor(SideBoth, namespace, taskID, runID)
}

// LeaseTokenFor is Seal for one side of the lease. A capability of one side has one
// more part, so a server that does not know sides refuses it as malformed.
func (s *Sealer) LeaseTokenFor(side LeaseSide, namespace, taskID, runID string) Secret {
	_, task, _ := strings.Cut(taskID, "_")
	_, run, _ := strings.Cut(runID, "_")
	body := namespace + "." + task + "." + run + "."
	if side != SideBoth {
		body += string(side) + "."
	}
	mac := sideMAC(s.keys[0], side, namespace, run)
	return Secret(LeaseTokenPrefix + body + base64.RawURLEncoding.EncodeToString(mac))
}

// Fingerprint is what the store keeps of a run's secret: the hex SHA-256 of
// the MAC. It needs no task id, so it exists before the grant picks one.
func (s *Sealer) Fingerprint(namespace, runID string) string {
	_, run, _ := strings.Cut(runID, "_")
	return fingerprint(leaseMAC(s.keys[0], namespace, run))
}

// OpenLeaseToken checks the form and the MAC of a capability and returns its credential,
// without a presented fence. The task id is not covered by the MAC: the engine
// refuses a wrong one as task_mismatch. Whatever side a capability is of, its
// Secret is the one that the store keeps of the run.
func (s *Sealer) OpenLeaseToken(token string) (LeaseCredential, error) {
	body, ok := strings.CutPrefix(token, LeaseTokenPrefix)
	parts := strings.Split(body, ".")
	side := SideBoth
	if len(parts) == 5 {
		side = LeaseSide(parts[3])
		ok = ok && (side == SideAdapter || side == SideAgent)
		parts = append(parts[:3], parts[4])
	}
	if !ok || len(token) > 256 || len(parts) != 4 || !namespacePattern.MatchString(parts[0]) ||
		!ulidPattern.MatchString(parts[1]) || !ulidPattern.MatchString(parts[2]) {
		return LeaseCredential{}, ErrInvalidToken
	}
	got, err := base64.RawURLEncoding.Strict().DecodeString(parts[3])
	if err != nil {
		return LeaseCredential{}, ErrInvalidToken
	}
	for _, key := range s.keys {
		if hmac.Equal(got, sideMAC(key, side, parts[0], parts[2])) {
			secret := fingerprint(leaseMAC(key, parts[0], parts[2]))
			return LeaseCredential{
				Namespace: parts[0],
				TaskID:    "task_" + parts[1],
				RunID:     "run_" + parts[2],
				Secret:    secret,
				Side:      side,
			}, nil
		}
	}
	return LeaseCredential{}, ErrInvalidToken
}

// Derive returns 32 bytes that only a holder of the first key can make, the
// same for the same label: a secret that a repeated request can be shown again.
func (s *Sealer) Derive(label string) []byte {
	return derive(s.keys[0], label)
}

// DeriveAll returns what Derive does for each of the keys, that of the first key
// first: for a secret that others keep while the keys are replaced.
func (s *Sealer) DeriveAll(label string) (all [][]byte) {
	for _, key := range s.keys {
		all = append(all, derive(key, label))
	}
	return all
}

func derive(key []byte, label string) []byte {
	h := hmac.New(sha256.New, key)
	h.Write([]byte("derive\x00" + label))
	return h.Sum(nil)
}

func leaseMAC(key []byte, namespace, runULID string) []byte {
	h := hmac.New(sha256.New, key)
	h.Write([]byte("lease\x00" + namespace + "\x00" + runULID))
	return h.Sum(nil)
}

// sideMAC is the MAC of one side's capability. That of both sides is the MAC
// whose fingerprint the store keeps.
func sideMAC(key []byte, side LeaseSide, namespace, runULID string) []byte {
	if side == SideBoth {
		return leaseMAC(key, namespace, runULID)
	}
	h := hmac.New(sha256.New, key)
	h.Write([]byte("bearer\x00" + string(side) + "\x00" + namespace + "\x00" + runULID))
	return h.Sum(nil)
}

func fingerprint(mac []byte) string {
	sum := sha256.Sum256(mac)
	return hex.EncodeToString(sum[:])
}
