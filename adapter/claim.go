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
)

// leaseFile holds the lease of a run while it is held, so that the next adapter
// can give back what a killed one left. All agents run as the same user and can
// read it, so the credentials of the run are encrypted in it.
const leaseFile = "lease.json"

// leaseNote is what leaseFile holds.
type leaseNote struct {
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

// claim is a run's directory in the hands of this process. The kernel drops
// the lock when the process ends, however it ends.
type claim struct {
	dir  string
	lock *os.File
	note leaseNote
}

// claim notes the lease in the run's directory, under a lock that lasts until
// the run has ended.
func (r *run) claim() error {
	lock, err := lockDir(r.places.state)
	if err != nil {
		return err
	}
	c := &claim{dir: r.places.state, lock: lock, note: leaseNote{
		TaskID: r.lease.TaskID, RunID: r.lease.RunID, FencingToken: r.lease.FencingToken,
		ProxyURL: r.proxy.BaseURL(), Suspect: suspect(r.lease),
	}}
	if err := c.note.seal(r.cfg.StateKey, r.lease); err != nil {
		lock.Close()
		return err
	}
	window := time.Duration(r.lease.WindowMs) * time.Millisecond
	if err := c.extend(time.Duration(r.leaseEnd.Load()) - margin(window) - r.cfg.clock()); err != nil {
		lock.Close()
		return err
	}
	r.claimed.Store(c)
	return nil
}

// seal encrypts the credentials of a lease for adapters with the same key.
func (n *leaseNote) seal(key picket.Secret, lease picket.Lease) error {
	s, err := noteSealer(key)
	if err != nil {
		return err
	}
	if n.SealedLeaseToken, err = s.Wrap(n.place("lease"), lease.LeaseToken); err != nil || lease.AgentToken == "" {
		return err
	}
	n.SealedAgentToken, err = s.Wrap(n.place("agent"), lease.AgentToken)
	return err
}

// token is the adapter's credential. It opens only beside the same run and the
// same proxy: an agent that edits the file cannot have it sent elsewhere.
func (n *leaseNote) token(key picket.Secret) (picket.Secret, error) {
	return n.unseal(key, "lease", n.SealedLeaseToken, n.LeaseToken)
}

// agentToken is the agent's credential, which is hidden in what is shown of its
// work.
func (n *leaseNote) agentToken(key picket.Secret) (picket.Secret, error) {
	return n.unseal(key, "agent", n.SealedAgentToken, n.AgentToken)
}

func (n *leaseNote) unseal(key picket.Secret, whose, sealed string, plain picket.Secret) (picket.Secret, error) {
	if sealed == "" {
		return plain, nil
	}
	s, err := noteSealer(key)
	if err != nil {
		return "", err
	}
	return s.Unwrap(n.place(whose), sealed)
}

func (n *leaseNote) place(whose string) string { return whose + " " + n.RunID + " " + n.ProxyURL }

func noteSealer(key picket.Secret) (*picket.Sealer, error) {
	sum := sha256.Sum256([]byte("lease note\x00" + key.Reveal()))
	return picket.NewSealer(sum[:])
}

func (r *run) noteRenewal() {
	c := r.claimed.Load()
	if c == nil {
		return
	}
	if err := c.extend(r.keep.remaining()); err != nil {
		r.log.Warn("a renewal cannot be noted", "dir", c.dir, "err", err)
	}
}

// extend notes how long the lease now lasts.
func (c *claim) extend(left time.Duration) error {
	c.note.KillAt = picket.InstantOf(time.Now().Add(left))
	return replaceJSON(c.dir, leaseFile, c.note)
}

// unclaim ends the claim. A lease whose end nobody has taken stays noted: the
// next adapter tries again.
func (r *run) unclaim() {
	c := r.claimed.Load()
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

// replaceJSON writes a file so that whoever reads it finds the old or the new
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
