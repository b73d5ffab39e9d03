package adapter

import (
	"context"
	"crypto/sha256"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/internal/files"
	"github.com/picket-dev/picket/internal/seal"
)

// The files in a run's own directory.
const (
	leaseFile = "lease.json" // a leaseRecord, while the lease is held or its end is unreported
	exitFile  = "exit.json"  // how the run ended, once it has: for people, and to tell its age
	usageFile = "usage.json" // what the agent has used and the server does not know yet
)

// leaseRecord is the lease of a run, written down so that the next adapter can give
// back what a killed one left. All agents run as the same user and can read it, so the
// credentials in it are encrypted.
type leaseRecord struct {
	TaskID       string `json:"taskId"`
	RunID        string `json:"runId"`
	FencingToken int64  `json:"fencingToken"`
	// LeaseToken and AgentToken are in plain text only in files of an earlier version.
	LeaseToken       picket.Secret  `json:"leaseToken,omitzero"`
	AgentToken       picket.Secret  `json:"agentToken,omitzero"`
	SealedLeaseToken string         `json:"sealedLeaseToken,omitzero"`
	SealedAgentToken string         `json:"sealedAgentToken,omitzero"`
	ProxyURL         string         `json:"proxyUrl"`
	KillAt           picket.Instant `json:"killAt"` // when the agent must be dead unless the lease was renewed again
	// Suspect says that the run before this one took its adapter with it, too,
	// and that nothing was reported between.
	Suspect bool `json:"suspect,omitzero"`
}

// runDirLock is a run's directory in the hands of this process. The kernel drops
// the lock when the process ends, however it ends.
type runDirLock struct {
	dir    string
	lock   *os.File
	record leaseRecord
}

// lockRunDir notes a lease in the directory of its run, under a lock that lasts until
// unlock. left is how long the lease lasts.
func lockRunDir(dir string, key picket.Secret, lease picket.Lease, proxyURL string,
	left time.Duration) (*runDirLock, error) {
	lock, err := files.LockDir(context.Background(), dir, 0)
	if err != nil {
		return nil, err
	}
	c := &runDirLock{dir: dir, lock: lock, record: leaseRecord{
		TaskID: lease.TaskID, RunID: lease.RunID, FencingToken: lease.FencingToken,
		ProxyURL: proxyURL, Suspect: isSuspect(lease),
	}}
	if err = c.record.seal(key, lease); err == nil {
		err = c.saveDeadline(left)
	}
	if err != nil {
		lock.Close()
		return nil, err
	}
	return c, nil
}

// seal encrypts the credentials of a lease for adapters with the same key.
func (n *leaseRecord) seal(key picket.Secret, lease picket.Lease) error {
	s, err := leaseRecordSealer(key)
	if err != nil {
		return err
	}
	if n.SealedLeaseToken, err = s.Encrypt(n.sealContext("lease"), lease.LeaseToken); err != nil ||
		lease.AgentToken == "" {
		return err
	}
	n.SealedAgentToken, err = s.Encrypt(n.sealContext("agent"), lease.AgentToken)
	return err
}

// openLeaseToken is the adapter's credential. It opens only beside the same run and the
// same proxy: an agent that edits the file cannot have it sent elsewhere.
func (n *leaseRecord) openLeaseToken(key picket.Secret) (picket.Secret, error) {
	return n.unseal(key, "lease", n.SealedLeaseToken, n.LeaseToken)
}

// openAgentToken is the agent's credential, which is hidden in what is shown of its
// work.
func (n *leaseRecord) openAgentToken(key picket.Secret) (picket.Secret, error) {
	return n.unseal(key, "agent", n.SealedAgentToken, n.AgentToken)
}

func (n *leaseRecord) unseal(key picket.Secret, whose, sealed string, plain picket.Secret) (picket.Secret, error) {
	if sealed == "" {
		return plain, nil
	}
	s, err := leaseRecordSealer(key)
	if err != nil {
		return "", err
	}
	return s.Decrypt(n.sealContext(whose), sealed)
}

func (n *leaseRecord) sealContext(whose string) string {
	return whose + " " + n.RunID + " " + n.ProxyURL
}

func leaseRecordSealer(key picket.Secret) (*seal.Sealer, error) {
	sum := sha256.Sum256([]byte("lease note\x00" + key.Reveal()))
	return seal.New(sum[:])
}

// saveDeadline notes how long the lease now lasts.
func (c *runDirLock) saveDeadline(left time.Duration) error {
	c.record.KillAt = picket.InstantOf(time.Now().Add(left))
	return files.WriteJSON(filepath.Join(c.dir, leaseFile), c.record)
}

// unlock ends the claim. It forgets the lease if its end was reported.
func (c *runDirLock) unlock(reported bool) error {
	defer c.lock.Close()
	if !reported {
		return nil
	}
	err := os.Remove(filepath.Join(c.dir, leaseFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// orphanDetailPrefix begins the detail of an exit that the sweep reports, and tells it
// from others.
const orphanDetailPrefix = "the adapter of this run died"

// isSuspect reports whether the run before this lease took its adapter down and
// reported nothing.
func isSuspect(l picket.Lease) bool {
	before := l.PreviousExit
	if before == nil || before.Class != picket.ExitReleased || !strings.HasPrefix(before.Detail, orphanDetailPrefix) {
		return false
	}
	return l.LastReport == nil || l.LastReport.FencingToken < l.FencingToken-1
}
