package workspace

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/picket-dev/picket"
)

// withOldHistory is newMachines with a repository whose history has what git fsck calls errors.
func withOldHistory(t *testing.T) (one, two machine) {
	t.Helper()
	one, _ = newMachines(t)
	for i := range 40 { // so many that git sends the next tree as a delta of this one
		writeText(t, filepath.Join(one.dir, fmt.Sprintf("file%d.txt", i)), fmt.Sprint(i))
	}
	writeText(t, filepath.Join(one.dir, "sub", "a.txt"), "one\n")
	userGit(t, one.dir, "add", "--all")
	userGit(t, one.dir, "commit", "--quiet", "--message", "many files")
	hash := func(kind, text string) string {
		file := filepath.Join(t.TempDir(), kind)
		writeText(t, file, text)
		return userGit(t, one.dir, "hash-object", "-t", kind, "--literally", "-w", file)
	}
	raw, err := exec.CommandContext(t.Context(), "git", "-C", one.dir, "cat-file", "tree", "HEAD^{tree}").Output()
	if err != nil {
		t.Fatal(err)
	}
	tree := hash("tree", strings.Replace(string(raw), "40000 sub", "040000 sub", 1))
	commit := hash("commit", "tree "+tree+"\nparent "+one.base()+
		"\nauthor Ada<ada@example.com> 1 +0000\ncommitter Ada <ada@example.com> 1 +0000\n\nold\n")
	userGit(t, one.dir, "reset", "--hard", "--quiet", commit)
	if exec.CommandContext(t.Context(), "git", "-C", one.dir, "fsck", "--strict").Run() == nil {
		t.Fatal("git finds no error in the history")
	}
	second := filepath.Join(t.TempDir(), "repo")
	userGit(t, ".", "clone", "--quiet", one.dir, second)
	return one, newMachine(t, second)
}

// Errors in the history of the user's repository do not count, because nobody can change it. What a
// branch adds is checked: its bundle may hold a tree as a delta of one that has an error.
func TestOldHistoryIsNotChecked(t *testing.T) {
	one, two := withOldHistory(t)
	want := one.work("b.txt", "two\n")
	bundle, _, err := one.store.repository().Bundle(t.Context(), bareTask, one.base(), MaxBundle)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := two.importBundle(bundle); err != nil || got != want {
		t.Errorf("imported %q, %v", got, err)
	}
	err = two.bare(func(ctx context.Context, b *BareRepository) error {
		_, err := b.output(ctx, "rev-list", "--objects", "--quiet", "--all")
		return err
	})
	if err != nil {
		t.Errorf("the bare repository is not complete: %v", err)
	}

	remote := newRemote(t)
	if got, err := one.push(remote, 3); err != nil || got != want {
		t.Errorf("pushed %q, %v", got, err)
	}
	three := newMachine(t, two.dir)
	err = three.bare(func(ctx context.Context, b *BareRepository) error {
		lease := picket.Lease{TaskID: bareTask, FencingToken: 9}
		return RemoteSource(remote).Fetch(ctx, b, three.store.repository(), lease, bareTask)
	})
	if err != nil {
		t.Errorf("fetched: %v", err)
	}
}

// A small bundle can hold much. What its objects have without compression is bounded, also if
// git has stored them as changes of other objects.
func TestTheObjectsOfABundleAreBounded(t *testing.T) {
	one, two := newMachines(t)
	writeText(t, filepath.Join(one.dir, "zeros"), strings.Repeat("\x00", 1<<20))
	small := one.work("more", "x"+strings.Repeat("\x00", 1<<20)) // a delta
	bundle, _, err := one.store.repository().Bundle(t.Context(), bareTask, one.base(), MaxBundle)
	if err != nil || len(bundle) > 1<<16 {
		t.Fatalf("the bundle has %d bytes: %v", len(bundle), err)
	}
	take := func(inflated int64) error {
		return two.bare(func(ctx context.Context, b *BareRepository) error {
			if b.inflated != 1<<30 {
				t.Errorf("by default at most %d bytes are taken", b.inflated)
			}
			b.inflated = inflated
			if err := b.Copy(ctx, two.store.repository(), two.base()); err != nil {
				return err
			}
			_, err := b.Import(ctx, bytes.NewReader(bundle), MaxBundle, bareTask)
			if err != nil && b.has(ctx, small) {
				t.Error("what was refused is here")
			}
			return err
		})
	}
	if err := take(1<<21 - 1); err == nil || !strings.Contains(err.Error(), "without compression") {
		t.Errorf("2 MiB of objects are taken: %v", err)
	}
	if err := take(1<<21 + 1<<16); err != nil {
		t.Error(err)
	}
}
