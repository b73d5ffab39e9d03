package mirror

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/picket-dev/picket/orchestrator/heartbeat"
)

// The file follows the store while nobody edits it. Only its owner can read it.
func TestFilesFollowTheStore(t *testing.T) {
	b := newBench(t)
	m := b.process("a")
	b.store.put("ann", "one\n", "")
	b.pass(m)
	b.want("one\n", "")
	for path, mode := range map[string]os.FileMode{b.dir: 0o700, filepath.Dir(b.path("ann")): 0o700,
		b.path("ann"): 0o600, filepath.Join(b.dir, manifestFile): 0o600} {
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != mode {
			t.Errorf("%s: %v, %v", path, info.Mode(), err)
		}
	}
	b.store.put("ann", "two\n", "")
	b.pass(m)
	b.want("two\n", "")
	b.store.delete("ann", "")
	b.pass(m)
	b.want(Absent, "")
	if _, err := os.Stat(filepath.Dir(b.path("ann"))); !os.IsNotExist(err) {
		t.Errorf("the empty directory of a deleted policy: %v", err)
	}
	b.store.put("ann", "three\n", "")
	b.pass(m)
	b.want("three\n", "")
}

// Nothing is published again while nothing changes.
func TestWhatIsTheSameIsPublishedOnce(t *testing.T) {
	b := newBench(t)
	m := b.process("a")
	b.edit("ann", "mine\n")
	for range 3 {
		b.pass(m)
	}
	if b.store.publishes != 1 {
		t.Errorf("%d publications", b.store.publishes)
	}
}

// A file that was edited counts, and nothing overwrites it. A write in view of it replaces it.
func TestAnEditedFileCounts(t *testing.T) {
	b := newBench(t)
	m := b.process("a")
	b.store.put("ann", "one\n", "")
	b.pass(m)
	b.edit("ann", "mine\n")
	b.pass(m)
	b.want("mine\n", StateEdited)
	if f := b.store.files[0]; f.Body != "mine\n" || f.Revision != "revision_1" ||
		f.Digest != heartbeat.RawDigest([]byte("mine\n")) {
		t.Errorf("published was %+v", f)
	}
	b.store.put("ann", "two\n", heartbeat.RawDigest([]byte("mine\n")))
	b.pass(m)
	b.want("two\n", "")
	b.edit("ann", "mine\n") // the same edit again is a new one
	b.pass(m)
	b.want("mine\n", StateEdited)
	b.edit("ann", "two\n")
	b.pass(m)
	b.want("two\n", "")
}

// The text of an invalid file is not published, because it may have a secret.
func TestAnInvalidFileIsNotQuoted(t *testing.T) {
	b := newBench(t)
	m := b.process("a")
	b.edit("ann", "Use pkl_default_aaaaaaaaaaaaaaaaaaaaaaaa\n")
	b.pass(m)
	f := b.store.files[0]
	if f.State != StateEdited || f.Body != "" || len(f.Diagnostics) == 0 ||
		f.Diagnostics[0].Code != heartbeat.CodeSecret || f.Diagnostics[0].SourcePath != "ann/HEARTBEAT.md" ||
		strings.Contains(fmt.Sprint(f), "pkl_") {
		t.Errorf("published was %+v", f)
	}
	b.edit("ann", strings.Repeat("x", heartbeat.MaxSource+10))
	b.pass(m)
	if f := b.store.files[0]; f.Diagnostics[0].Code != heartbeat.CodeFileTooLarge {
		t.Errorf("published was %+v", f)
	}
}

// A file that is gone leaves the name without a policy. A write makes it again.
func TestARemovedFile(t *testing.T) {
	b := newBench(t)
	m := b.process("a")
	b.store.put("ann", "one\n", "")
	b.pass(m)
	b.unlink("ann")
	b.pass(m)
	b.want(Absent, StateRemoved)
	b.store.put("ann", "two\n", Absent)
	b.pass(m)
	b.want("two\n", "")
}

// If file and store were both changed, nothing is overwritten until somebody writes in view of the file.
func TestAConflictOverwritesNothing(t *testing.T) {
	for name, change := range map[string]struct {
		file  func(b *bench)
		store func(b *bench, over string)
		text  string
	}{
		"edited and written": {func(b *bench) { b.edit("ann", "mine\n") },
			func(b *bench, over string) { b.store.put("ann", "two\n", over) }, "mine\n"},
		"edited and deleted": {func(b *bench) { b.edit("ann", "mine\n") },
			func(b *bench, over string) { b.store.delete("ann", over) }, "mine\n"},
		"removed and written": {func(b *bench) { b.unlink("ann") },
			func(b *bench, over string) { b.store.put("ann", "two\n", over) }, Absent},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.t = t
			m := b.process("a")
			b.store.put("ann", "one\n", "")
			b.pass(m)
			change.file(b)
			change.store(b, "")
			for range 2 {
				b.pass(m)
				b.want(change.text, StateConflict)
			}
			over := Absent
			if change.text != Absent {
				over = heartbeat.RawDigest([]byte(change.text))
			}
			b.store.put("ann", "three\n", over)
			b.pass(m)
			b.want("three\n", "")
		})
	}
}

// Two changes to the same text are not a conflict.
func TestTheSameChangeTwiceIsNoConflict(t *testing.T) {
	b := newBench(t)
	m := b.process("a")
	b.store.put("ann", "one\n", "")
	b.pass(m)
	b.edit("ann", "two\n")
	b.store.put("ann", "two\n", "")
	b.pass(m)
	b.want("two\n", "")
	b.store.put("ann", "three\n", "")
	b.pass(m)
	b.want("three\n", "")
}

// A directory that is new, or was emptied together with its manifest, deletes nothing and overwrites nothing.
func TestANewDirectory(t *testing.T) {
	b := newBench(t)
	b.store.put("ann", "one\n", "")
	b.pass(b.process("a"))
	if err := os.RemoveAll(b.dir); err != nil {
		t.Fatal(err)
	}
	b.pass(b.process("a"))
	b.want("one\n", "")
	for _, damage := range []string{"", "{", `{"version":1,"namespace":"other","files":{}}`, `{"version":2,"files":{}}`} {
		b.edit("ann", "mine\n")
		if err := os.WriteFile(filepath.Join(b.dir, manifestFile), []byte(damage), 0o600); err != nil {
			t.Fatal(err)
		}
		b.pass(b.process("a"))
		b.want("mine\n", StateConflict)
	}
}

// A file in a new directory counts for a name whose policy was deleted before.
func TestAFileWithoutAPolicyCounts(t *testing.T) {
	b := newBench(t)
	b.store.delete("ann", "")
	b.edit("ann", "mine\n")
	b.pass(b.process("a"))
	b.want("mine\n", StateEdited)
	b.store.delete("ann", heartbeat.RawDigest([]byte("mine\n")))
	b.pass(b.process("a"))
	b.want(Absent, "")
	b.edit("ann", "mine\n") // the same file again is a new one
	b.pass(b.process("a"))
	b.want("mine\n", StateEdited)
}

// A store that does not know a name, such as an empty one, deletes no file.
func TestAnEmptyStoreDeletesNoFile(t *testing.T) {
	b := newBench(t)
	b.store.put("ann", "one\n", "")
	b.pass(b.process("a"))
	b.store = newFakeStore()
	b.pass(b.process("a"))
	b.want("one\n", StateEdited)
	b.unlink("ann")
	b.pass(b.process("a"))
	b.want(Absent, "")
}

// A process that is killed before any step leaves nothing that looks like an edit, also if the store goes on.
func TestAKilledProcessLeavesNoEdit(t *testing.T) {
	killed := errors.New("killed")
	for _, step := range []string{"manifest.intent", "file.write", "file.rename", "file.remove", "manifest.done"} {
		for _, then := range []string{"same", "written", "deleted"} {
			t.Run(step+" then "+then, func(t *testing.T) {
				b := newBench(t)
				b.t = t
				b.store.put("ann", "one\n", "")
				b.pass(b.process("a"))
				if step == "file.remove" {
					b.store.delete("ann", "")
				} else {
					b.store.put("ann", "two\n", "")
				}
				dead := false
				b.fault = func(at string) error {
					if dead = dead || at == step; dead {
						return killed
					}
					return nil
				}
				b.store.now += Lease
				if err := b.process("b").Pass(t.Context()); !errors.Is(err, killed) {
					t.Fatalf("the pass was not killed: %v", err)
				}
				b.fault = nil
				b.store.now += Lease
				want := map[string]string{"same": "two\n", "written": "three\n", "deleted": Absent}[then]
				switch {
				case then == "written":
					b.store.put("ann", "three\n", "")
				case then == "deleted":
					b.store.delete("ann", "")
				case step == "file.remove":
					want = Absent
				}
				b.pass(b.process("c"))
				b.want(want, "")
			})
		}
	}
}

// A file that is edited between the comparison and the rename stays as it is.
func TestAnEditDuringAPassStays(t *testing.T) {
	b := newBench(t)
	b.store.put("ann", "one\n", "")
	b.pass(b.process("a"))
	for _, step := range []string{"file.rename", "file.remove"} {
		if step == "file.rename" {
			b.store.put("ann", "two\n", "")
		} else {
			b.edit("ann", "two\n")
			b.pass(b.process("a"))
			b.store.delete("ann", "")
		}
		b.fault = func(at string) error {
			if at == step {
				b.edit("ann", "mine\n")
			}
			return nil
		}
		b.pass(b.process("a"))
		b.fault = nil
		b.pass(b.process("a"))
		b.want("mine\n", StateConflict)
	}
}

// One process holds the directory. Another one takes it over when the lock has run out, or was released.
func TestOneProcessHoldsTheDirectory(t *testing.T) {
	b := newBench(t)
	first, second := b.process("a"), b.process("b")
	b.pass(first)
	b.store.put("ann", "one\n", "")
	b.pass(second)
	b.want(Absent, "")
	b.store.now += Lease - 1
	b.pass(first) // renews
	b.want("one\n", "")
	b.store.now += Lease - 1
	b.edit("ann", "mine\n")
	b.pass(second)
	b.want("mine\n", "")
	b.store.now++
	b.pass(second)
	b.want("mine\n", StateEdited)
	b.pass(first) // it does not hold the directory any more
	if b.store.holder != "b" {
		t.Errorf("%s holds the directory", b.store.holder)
	}
	if err := second.release(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.pass(first)
	if b.store.holder != "a" {
		t.Errorf("%s holds the directory", b.store.holder)
	}
}

// A pass that took longer than half of the lock writes no file, whatever the clock does.
func TestALatePassWritesNothing(t *testing.T) {
	for _, jump := range []time.Duration{Lease, -time.Hour, 365 * 24 * time.Hour} {
		b := newBench(t)
		start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
		now := start
		b.now = func() time.Time { return now }
		m := b.process("a")
		b.store.put("ann", "one\n", "")
		b.fault = nil
		m.cfg.Fault = func(step string) error {
			if step == "manifest.intent" {
				now = now.Add(jump)
			}
			return nil
		}
		if err := m.Pass(t.Context()); !errors.Is(err, errLate) {
			t.Errorf("after %s: %v", jump, err)
		}
		b.want(Absent, "")
		m.cfg.Fault = nil
		b.pass(m)
		b.want("one\n", "")
	}
}

// Refresh looks at once at a file that was edited since the last pass, and at no other.
func TestRefresh(t *testing.T) {
	b := newBench(t)
	m := b.process("a")
	refresh := func() {
		t.Helper()
		if err := m.Refresh(t.Context(), "ann"); err != nil {
			t.Fatal(err)
		}
	}
	b.edit("ann", "mine\n")
	refresh()
	b.want("mine\n", "") // the directory is not held
	b.pass(m)
	b.want("mine\n", StateEdited)
	publishes := b.store.publishes
	refresh()
	if b.store.publishes != publishes {
		t.Error("a file that was not changed is published again")
	}
	b.edit("ann", "again\n")
	refresh()
	if b.store.files[0].Body != "again\n" {
		t.Errorf("published was %+v", b.store.files)
	}
}

// Run mirrors until it ends, and then lets the next process have the directory at once.
func TestRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error)
		m := b.process("a")
		go func() { done <- m.Run(ctx) }()
		synctest.Wait()
		b.store.put("ann", "one\n", "")
		time.Sleep(Interval)
		synctest.Wait()
		b.want("one\n", "")
		stop()
		if err := <-done; err != nil || b.store.holder != "" {
			t.Errorf("%v, %q holds the directory", err, b.store.holder)
		}
	})
}
