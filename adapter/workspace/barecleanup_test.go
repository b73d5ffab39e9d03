package workspace

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"
)

const otherTask = "task_01ARZ3NDEKTSV4RRFFQ69G5FAX"

// clean cleans the bare repositories of the machine as if days had passed.
func (m machine) clean(days float64) {
	m.t.Helper()
	now := time.Now().Add(time.Duration(days * 24 * float64(time.Hour)))
	if err := CleanBareRepositories(m.t.Context(), m.store.StateDir, GitContainment{}, now); err != nil {
		m.t.Fatal(err)
	}
}

// wantBranches wants that the bare repository has exactly the branches of some tasks.
func (m machine) wantBranches(when string, want map[string]string) {
	m.t.Helper()
	_ = m.bare(func(ctx context.Context, b *BareRepository) error {
		for task, tip := range want {
			if got := b.Tip(ctx, task); got != tip {
				m.t.Errorf("%s the branch of %s is at %q, not %q", when, task, got, tip)
			}
		}
		return nil
	})
}

// The branch of a task that no run has needed for 30 days is deleted, with its objects. A bare
// repository is cleaned once a day at most.
func TestUnusedBranchesAreDeleted(t *testing.T) {
	one, two := newMachines(t)
	tip, base := one.work("b.txt", "two\n"), one.base()
	bundle, _, err := one.store.repository().Bundle(t.Context(), bareTask, base, MaxBundle)
	if err != nil {
		t.Fatal(err)
	}
	begin := func() {
		t.Helper()
		if got, err := two.importBundle(bundle); err != nil || got != tip {
			t.Fatalf("imported %q, %v", got, err)
		}
		_ = two.bare(func(ctx context.Context, b *BareRepository) error {
			err := b.setRef(ctx, workRef(otherTask), base)
			return errors.Join(err, touch(b.usedFile(workRef(otherTask)), time.Now().Add(20*24*time.Hour)))
		})
	}
	begin()
	two.clean(29)
	two.wantBranches("after 29 days", map[string]string{bareTask: tip, otherTask: base})
	two.clean(31)
	two.wantBranches("after 31 days", map[string]string{bareTask: "", otherTask: base})
	_ = two.bare(func(ctx context.Context, b *BareRepository) error {
		if b.has(ctx, tip) || !b.has(ctx, base) {
			t.Error("the objects are not those of the branches that are left")
		}
		for _, left := range []string{unprunedFile, filepath.Join(usedDir, bareTask), filepath.Join(usedDir, base)} {
			if _, err := os.Stat(filepath.Join(b.dir, left)); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("%s is left: %v", left, err)
			}
		}
		return nil
	})
	begin()
	two.clean(31.5)
	two.wantBranches("on the same day", map[string]string{bareTask: tip, otherTask: base})
	two.clean(60)
	two.wantBranches("after 60 days", map[string]string{bareTask: "", otherTask: ""})
	_ = two.bare(func(ctx context.Context, b *BareRepository) error {
		if b.has(ctx, base) {
			t.Error("objects are left that nobody needs")
		}
		return nil
	})
	begin()
}

// A cleaning that was killed after it had deleted branches is finished by the next one.
func TestAKilledCleaningIsFinished(t *testing.T) {
	one, two := newMachines(t)
	tip := one.work("b.txt", "two\n")
	bundle, _, err := one.store.repository().Bundle(t.Context(), bareTask, one.base(), MaxBundle)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := two.importBundle(bundle); err != nil {
		t.Fatal(err)
	}
	err = two.bare(func(ctx context.Context, b *BareRepository) error {
		_, err := b.output(ctx, "update-ref", "-d", workRef(bareTask))
		writeText(t, filepath.Join(b.dir, unprunedFile), "")
		writeText(t, filepath.Join(b.git(), "packed-refs.lock"), "")
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	two.clean(0)
	_ = two.bare(func(ctx context.Context, b *BareRepository) error {
		if b.has(ctx, tip) {
			t.Error("the objects of the branch are left")
		}
		return nil
	})
}

// The copy of a repository that no longer exists is deleted, unless it is in use.
func TestTheCopyOfADeletedRepositoryIsDeleted(t *testing.T) {
	one, _ := newMachines(t)
	one.work("b.txt", "two\n")
	var dir string
	err := one.bare(func(ctx context.Context, b *BareRepository) error {
		dir = b.dir
		if _, err := b.CopyBranch(ctx, one.store.repository(), bareTask); err != nil {
			return err
		}
		if err := os.RemoveAll(one.dir); err != nil {
			return err
		}
		one.clean(0)
		_, err := os.Stat(b.git())
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	half := dir + "x" + deletedSuffix // another adapter was killed while it deleted this one
	writeText(t, filepath.Join(half, "git", "HEAD"), "")
	one.clean(0)
	if left, err := os.ReadDir(filepath.Dir(dir)); err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
	one.clean(0)
}
