package mirror

import (
	"errors"
	"fmt"
	"time"

	"github.com/picket-dev/picket/orchestrator/heartbeat"
)

// errLate ends a pass that took so long that the lock may be over.
var errLate = errors.New("the pass took too long; it is repeated")

// deadline is when a pass has to write no more: half of the lease after it began. A clock that was set
// ends the pass too.
type deadline struct {
	now   func() time.Time
	began time.Time
}

func (d deadline) check() error {
	now := d.now()
	wall := now.Round(0).Sub(d.began.Round(0)) // also counts the time for which the machine slept
	if now.Sub(d.began) > Lease/2 || wall > Lease/2 || wall < -Lease/2 {
		return errLate
	}
	return nil
}

// pass is one comparison of a directory with the store.
type pass struct {
	dir          *dir
	manifest     *manifest
	until        deadline
	files        []File            // that differ, by name
	instructions []Instructions    // by name
	seen         map[string]string // digest of each file by name
	texts        map[string]string // of revisions that were read, by name
	changes      []change
	recorded     bool  // the manifest was changed
	failed       error // of single files, which do not keep the others from being mirrored
}

// change is a file that is written or removed.
type change struct {
	name     string
	remove   bool
	was      string // digest of the file, or Absent
	next     string
	text     string
	revision string
}

// add takes what was decided about a name into the pass.
func (p *pass) add(name string, a action, f content, stored string, head *Head, s heartbeat.Settings) {
	switch a {
	case record:
		p.manifest.Files[name] = &entry{Digest: stored, Revision: head.RevisionID}
		p.recorded = true
	case forget:
		delete(p.manifest.Files, name)
		p.recorded = true
	case write, remove:
		p.changes = append(p.changes, change{name: name, remove: a == remove, was: f.digest, next: stored,
			text: p.texts[name], revision: head.RevisionID})
	case edited, removed, conflict:
		out := differing(name, a, f, s)
		if head != nil {
			out.Revision = head.RevisionID
		}
		p.files = append(p.files, out)
	}
}

// differing is what is published about a file.
func differing(name string, a action, f content, s heartbeat.Settings) File {
	states := map[action]State{edited: StateEdited, removed: StateRemoved, conflict: StateConflict}
	out := File{Name: name, State: states[a], Digest: f.digest}
	if f.digest == Absent {
		return out
	}
	read, found := heartbeat.Parse(f.bytes, heartbeat.Options{Settings: s, SourcePath: sourcePath(name)})
	out.Diagnostics = found
	if read.Valid {
		out.Body = string(f.bytes)
	}
	return out
}

// apply writes files. The manifest has what will be written before it is, so that a file which was written
// by a process that was killed is not taken for an edited one.
func (p *pass) apply() error {
	if len(p.changes) == 0 && !p.recorded {
		return nil
	}
	for _, c := range p.changes {
		p.manifest.Files[c.name] = &entry{Digest: c.was, Next: c.next}
	}
	if err := p.save("manifest.intent"); err != nil || len(p.changes) == 0 {
		return err
	}
	for _, c := range p.changes {
		if err := p.change(c); err != nil {
			p.failed = errors.Join(p.failed, fmt.Errorf("file of %s: %w", c.name, err))
		}
	}
	return p.save("manifest.done")
}

// change writes or removes one file, if it still is what was compared.
func (p *pass) change(c change) error {
	if err := p.until.check(); err != nil {
		return err
	}
	unchanged := func() bool { return p.dir.read(c.name).digest == c.was }
	if c.remove {
		done, err := p.dir.remove(c.name, unchanged)
		if done {
			p.manifest.Files[c.name] = &entry{Digest: Absent, Revision: c.revision}
			p.seen[c.name] = Absent
		}
		return err
	}
	done, err := p.dir.write(c.name, c.text, unchanged)
	if done {
		p.manifest.Files[c.name] = &entry{Digest: c.next, Revision: c.revision}
		p.seen[c.name] = c.next
	}
	return err
}

func (p *pass) save(step string) error {
	if err := p.dir.step(step); err != nil {
		return err
	}
	if err := p.until.check(); err != nil {
		return err
	}
	return p.dir.writeManifest(p.manifest)
}
