// Package mirror keeps the wake policies of a store in a directory of files, NAME/HEARTBEAT.md. One process
// at a time holds the directory. It writes what has changed in the store, and reports what people have
// changed in the files. It never overwrites such a change.
//
// It also publishes the standing instructions of agent names, NAME/AGENT.md, which it never writes. A name that has
// trusted files beside picket.yaml has its policy and its instructions from these alone.
package mirror

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/orchestrator/heartbeat"
)

const (
	// Lease is how long a process holds a directory after it was asked for.
	Lease = 15 * time.Second
	// Interval is the time between two passes of [Directory.Run].
	Interval = 2 * time.Second
	// MaxFiles bounds what one pass reports.
	MaxFiles = picket.MaxAgentFiles
)

// Absent stands for the digest of a file that does not exist.
const Absent = "-"

// Store is the store of record of one namespace, with the lock of its directory. Its methods wait for the
// store and may fail; a pass that failed is repeated.
type Store interface {
	// Lock takes the lock for holder, or renews it, for [Lease] of the time of the store. held is false if
	// another has it. heads has each name that has or had a policy.
	Lock(ctx context.Context, holder string) (heads []Head, held bool, err error)
	// Text returns the exact bytes of a revision.
	Text(ctx context.Context, name, revisionID string) (string, error)
	// Publish replaces what the files say in place of the store, and the instructions of all names, if holder
	// still has the lock. Those of a refused file stay as they are.
	Publish(ctx context.Context, holder string, files []File, instructions []Instructions) error
	// Release ends the lock of holder.
	Release(ctx context.Context, holder string) error
}

// Head is the newest revision of the policy of a name.
type Head struct {
	Name       string
	RevisionID string
	// Deleted is true if the revision is a deletion.
	Deleted bool
	// Over is the digest of the bytes of the file that the writer of the revision had seen, or Absent. It
	// is empty if the file was that of the store.
	Over string
}

// A State says how a file and the store differ.
type State string

// The states.
const (
	// StateEdited means that the file was changed, or is there without a policy in the store. It counts.
	StateEdited State = "edited"
	// StateRemoved means that the file was mirrored and is gone. The name has no policy.
	StateRemoved State = "removed"
	// StateConflict means that file and store were both changed. Neither counts.
	StateConflict State = "conflict"
	// StateRefused means that the file is not read, because a link or something else is in its place.
	StateRefused State = "refused"
	// StateWorkspace means that the name has trusted files beside picket.yaml. Their policy counts, and that of
	// the store does not.
	StateWorkspace State = "workspace"
)

// File is a file that differs from the store.
type File struct {
	Name  string
	State State
	// Revision is the newest revision with which the file was compared. It is empty if there was none.
	Revision string
	// Digest is that of the bytes, see [heartbeat.RawDigest]. It is Absent without a file, and empty if the
	// file is refused.
	Digest string
	// Body is the text of a valid file. That of an invalid one may have a secret, and is left out.
	Body string
	// Diagnostics of the file. It is valid if all of them are warnings.
	Diagnostics []heartbeat.Diagnostic
}

func (f File) equal(g File) bool {
	return f.Name == g.Name && f.State == g.State && f.Revision == g.Revision && f.Digest == g.Digest &&
		f.Body == g.Body && slices.Equal(f.Diagnostics, g.Diagnostics)
}

// Config of a directory. Dir, Namespace, Holder and Store are required.
type Config struct {
	// Dir is the directory. It is made with the mode 0700 if it does not exist.
	Dir string
	// Namespace is that of the store. A directory that mirrored another one is taken as new.
	Namespace string
	// Holder names this process. No other process has the same.
	Holder   string
	Store    Store
	Settings heartbeat.Settings
	// Workspace returns the trusted files of agent names beside picket.yaml. It is called in each pass. Defaults to
	// none. An error keeps those of the pass before.
	Workspace func() (map[string]WorkspaceAgent, error)
	// Log receives errors of passes. Defaults to slog.Default().
	Log *slog.Logger
	// Fault ends a pass before a step, for tests: "manifest.intent", "file.write", "file.rename",
	// "file.remove" and "manifest.done". Defaults to nil.
	Fault func(step string) error
	// Now is the time of day. Defaults to time.Now.
	Now func() time.Time
}

// Directory is a directory that mirrors the policies of one namespace. Its methods may be called from any
// number of goroutines.
type Directory struct {
	cfg       Config
	mu        sync.Mutex
	holding   bool
	published []File         // by name; nil: nothing since the lock was taken
	told      []Instructions // published with them
	workspace map[string]WorkspaceAgent
	seen      map[string]string // digest of each file at the last pass
	lastError string
}

// New returns a directory, or a refusal if the directory cannot be used.
func New(cfg Config) (*Directory, error) {
	if cfg.Log == nil {
		cfg.Log = slog.Default()
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	dir, err := filepath.Abs(cfg.Dir)
	if err != nil {
		return nil, unusable(err)
	}
	cfg.Dir = dir
	d, err := openDir(cfg.Dir, cfg.step)
	if err != nil {
		return nil, unusable(err)
	}
	return &Directory{cfg: cfg}, d.close()
}

func unusable(err error) error {
	return picket.Invalid("wake.dir", "Name a directory that only this user can write to, and no link.",
		"the directory of wake policies cannot be used: %v", err).WithCause(err)
}

func (c Config) step(name string) error {
	if c.Fault == nil {
		return nil
	}
	return c.Fault(name)
}

// Run makes passes until ctx ends. Then it releases the directory.
func (m *Directory) Run(ctx context.Context) error {
	tick := time.NewTicker(Interval)
	defer tick.Stop()
	for {
		m.report(m.Pass(ctx))
		select {
		case <-ctx.Done():
			return m.release(context.WithoutCancel(ctx))
		case <-tick.C:
		}
	}
}

// release waits a second at most. Without it the lock runs out later.
func (m *Directory) release(ctx context.Context) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.holding {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	m.report(m.cfg.Store.Release(ctx, m.cfg.Holder))
	m.drop()
	return nil
}

// report logs an error when it first occurs.
func (m *Directory) report(err error) {
	text := ""
	if err != nil && !errors.Is(err, context.Canceled) {
		text = err.Error()
	}
	if text != "" && text != m.lastError {
		m.cfg.Log.Warn("the files of the wake policies cannot be mirrored", "err", err)
	}
	m.lastError = text
}

// Refresh makes a pass if the file of a name was changed since the last one. It does nothing if this
// process does not hold the directory.
func (m *Directory) Refresh(ctx context.Context, name string) error {
	if picket.CheckName("name", name) != nil || !m.changed(name) {
		return nil
	}
	return m.Pass(ctx)
}

func (m *Directory) changed(name string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.holding {
		return false
	}
	d, err := openDir(m.cfg.Dir, m.cfg.step)
	if err != nil {
		return true
	}
	defer d.close()
	if _, ok := m.workspace[name]; ok {
		return false
	}
	f := d.read(name)
	digest, known := m.seen[name]
	return f.digest != digest && (known || f.digest != Absent)
}

// Pass compares the files with the store once. It writes the files of policies that were changed in the
// store, and publishes which files differ. It does nothing if another process holds the directory.
func (m *Directory) Pass(ctx context.Context) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	began := m.cfg.Now()
	heads, held, err := m.cfg.Store.Lock(ctx, m.cfg.Holder)
	if err != nil || !held {
		m.drop()
		return err
	}
	m.holding = true
	p, err := m.compareAndWrite(ctx, heads, began)
	if err != nil { // a process that cannot use its directory leaves the lock to another one
		m.drop()
		return errors.Join(err, m.cfg.Store.Release(ctx, m.cfg.Holder))
	}
	if err := m.publish(ctx, p); err != nil {
		return err
	}
	return p.failed
}

func (m *Directory) compareAndWrite(ctx context.Context, heads []Head, began time.Time) (*pass, error) {
	d, err := openDir(m.cfg.Dir, m.cfg.step)
	if err != nil {
		return nil, err
	}
	defer d.close()
	p, err := m.compare(ctx, d, heads)
	if err != nil {
		return nil, err
	}
	p.until = deadline{now: m.cfg.Now, began: began}
	return p, p.apply()
}

// drop forgets what was published, because another process may publish now.
func (m *Directory) drop() { m.holding, m.published, m.seen = false, nil, nil }

func (m *Directory) publish(ctx context.Context, p *pass) error {
	files := slices.Clone(p.files)
	if len(files) > MaxFiles {
		m.cfg.Log.Warn("too many files of wake policies differ from the store", "files", len(files), "most", MaxFiles)
		files = files[:MaxFiles]
	}
	told := m.boundInstructions(p.instructions)
	if m.published == nil || !slices.EqualFunc(files, m.published, File.equal) ||
		!slices.EqualFunc(told, m.told, Instructions.equal) {
		if err := m.cfg.Store.Publish(ctx, m.cfg.Holder, files, told); err != nil {
			m.published = nil
			return err
		}
		m.reportRefused(told)
		m.published, m.told = append([]File{}, files...), told
	}
	m.seen = p.seen
	return nil
}

// compare judges every name of the store, of the manifest and of the directory.
func (m *Directory) compare(ctx context.Context, d *dir, heads []Head) (*pass, error) {
	man, err := d.readManifest(m.cfg.Namespace)
	if err != nil {
		return nil, err
	}
	p := &pass{dir: d, manifest: man, seen: map[string]string{}, texts: map[string]string{}}
	if p.failed = m.readWorkspace(); p.failed != nil && m.workspace == nil {
		return nil, p.failed // nothing is known of the files that may win over those of the directory
	}
	byName, names := map[string]*Head{}, map[string]bool{}
	for name := range m.workspace {
		names[name] = true
	}
	for i := range heads {
		byName[heads[i].Name] = &heads[i]
		names[heads[i].Name] = true
	}
	for name := range man.Files {
		names[name] = true
	}
	there, err := d.names()
	if err != nil {
		return nil, err // a name that is only here would be taken for removed
	}
	for _, name := range there {
		names[name] = true
	}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		if err := m.judge(ctx, p, name, byName[name]); err != nil {
			return nil, fmt.Errorf("policy of %s: %w", name, err)
		}
	}
	return p, nil
}

// judge compares the file of one name with the store, and adds the next step to the pass.
func (m *Directory) judge(ctx context.Context, p *pass, name string, head *Head) error {
	if w, ok := m.workspace[name]; ok {
		p.addWorkspace(name, w, m.cfg.Settings)
		return nil
	}
	p.addInstructions(name)
	f := p.dir.read(name)
	p.seen[name] = f.digest
	if f.problem != "" {
		p.files = append(p.files, File{Name: name, State: StateRefused,
			Diagnostics: notRead(sourcePath(name), f.problem)})
		return nil
	}
	stored := ""
	base := p.manifest.Files[name]
	switch {
	case head == nil:
	case head.Deleted:
		stored = Absent
	case base != nil && base.Revision == head.RevisionID:
		stored = base.Digest
	default:
		text, err := m.cfg.Store.Text(ctx, name, head.RevisionID)
		if err != nil {
			return err
		}
		stored, p.texts[name] = heartbeat.RawDigest([]byte(text)), text
	}
	p.add(name, decide(base, f.digest, stored, head), f, stored, head, m.cfg.Settings)
	return nil
}
