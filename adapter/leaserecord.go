package adapter

import (
	"crypto/sha256"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/adapter/process"
)

// leaseFile holds the lease of a run while it is held, so that the next adapter
// can give back what a killed one left. All agents run as the same user and can
// read it, so the credentials of the run are encrypted in it.
const leaseFile = "lease.json"

// leaseRecord is what leaseFile holds.
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

// lockRunDir notes the lease in the run's directory, under a lock that lasts until
// the run has ended.
func (r *run) lockRunDir() error {
	lock, err := process.LockDir(r.paths.stateDir)
	if err != nil {
		return err
	}
	c := &runDirLock{dir: r.paths.stateDir, lock: lock, record: leaseRecord{
		TaskID: r.lease.TaskID, RunID: r.lease.RunID, FencingToken: r.lease.FencingToken,
		ProxyURL: r.proxy.BaseURL(), Suspect: isSuspect(r.lease),
	}}
	if err := c.record.seal(r.cfg.StateKey, r.lease); err != nil {
		lock.Close()
		return err
	}
	window := time.Duration(r.lease.WindowMs) * time.Millisecond
	if err := c.saveDeadline(time.Duration(r.leaseEnd.Load()) - killMargin(window) - r.cfg.clock()); err != nil {
		lock.Close()
		return err
	}
	r.dirLock.Store(c)
	return nil
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

func leaseRecordSealer(key picket.Secret) (*picket.Sealer, error) {
	sum := sha256.Sum256([]byte("lease note\x00" + key.Reveal()))
	return picket.NewSealer(sum[:])
}

func (r *run) recordRenewal() {
	c := r.dirLock.Load()
	if c == nil {
		return
	}
	if err := c.saveDeadline(r.keeper.remaining()); err != nil {
		r.log.Warn("a renewal cannot be noted", "dir", c.dir, "err", err)
	}
}

// saveDeadline notes how long the lease now lasts.
func (c *runDirLock) saveDeadline(left time.Duration) error {
	c.record.KillAt = picket.InstantOf(time.Now().Add(left))
	return replaceJSON(c.dir, leaseFile, c.record)
}

// unlockRunDir ends the claim. A lease whose end nobody has taken stays noted: the
// next adapter tries again.
func (r *run) unlockRunDir() {
	c := r.dirLock.Load()
	if c == nil {
		return
	}
	if !r.result.Unreported {
		if err := os.Remove(filepath.Join(c.dir, leaseFile)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			r.log.Warn("the note of an ended lease cannot be deleted", "dir", c.dir, "err", err)
		}
	}
	c.lock.Close()
}

// replaceJSON writes a file so that anyone who reads it finds the old or the new
// one whole, also after a crash.
func replaceJSON(dir, name string, v any) error {
	b, err := json.Marshal(v, jsontext.WithIndent("  "))
	if err != nil {
		return err
	}
	f, err := os.CreateTemp(dir, name+".*") // mode 0600
	if err != nil {
		return err
	}
	_, err = f.Write(append(b, '\n'))
	err = errors.Join(err, f.Close())
	if err == nil {
		err = os.Rename(f.Name(), filepath.Join(dir, name))
	}
	if err != nil {
		os.Remove(f.Name())
	}
	return err
}

// readJSON reads a file of a run's directory.
func readJSON(dir, name string, v any) error {
	b, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		return err
	}
	return json.Unmarshal(b, v)
}
