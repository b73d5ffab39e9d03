package workspace

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"

	"github.com/picket-dev/picket/internal/files"
	"github.com/picket-dev/picket/internal/lazyregexp"
)

const (
	// UnusedBranchLife is how long a bare repository keeps the branch of a task, or the history up to
	// the base of one, after the last run that needed it. It is copied again for later ones.
	UnusedBranchLife = 30 * 24 * time.Hour
	// cleanInterval is how often a bare repository is cleaned at most.
	cleanInterval = 24 * time.Hour
	// cleanTimeout bounds each git command that cleans. It is shorter than the time that a run waits
	// for the lock.
	cleanTimeout = time.Minute
)

// Files of a bare repository, beside that of git.
const (
	ownerFile    = "repository" // the path of the user's repository
	usedDir      = "used"       // a file for each ref, changed when a run last needed the ref
	cleanedFile  = "cleaned"    // changed by each cleaning
	unprunedFile = "unpruned"   // refs were deleted, but not yet the objects that only they had
)

// deletedSuffix is that of repositories of which the deletion has begun.
const deletedSuffix = ".deleted"

var bareName = lazyregexp.New(`^[0-9a-f]{24}$`)

func bareRepositoriesDir(stateDir string) string { return filepath.Join(stateDir, "repositories") }

// CleanBareRepositories deletes what nobody needs any more from the bare repositories of a state directory:
// branches after UnusedBranchLife, with their objects, and whole repositories if the repository of the
// user no longer exists. Each is cleaned once a day at most, however often it is called. Those that are
// in use are left alone. All that is deleted can be copied again.
func CleanBareRepositories(ctx context.Context, stateDir string, in GitContainment, now time.Time) error {
	root := bareRepositoriesDir(stateDir)
	entries, err := os.ReadDir(root)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	in.RunID, in.StateDir, in.LeaseLeft = "", "", nil
	for _, e := range entries {
		dir := filepath.Join(root, e.Name())
		switch {
		case strings.HasSuffix(e.Name(), deletedSuffix):
			err = errors.Join(err, os.RemoveAll(dir))
		case e.IsDir() && bareName().MatchString(e.Name()):
			b := &BareRepository{dir: dir, GitContainment: in, step: func(string) {}}
			if bad := b.cleanUnused(ctx, now); bad != nil {
				err = errors.Join(err, fmt.Errorf("clean the bare repository %s: %w", dir, bad))
			}
		}
	}
	return err
}

// cleanUnused locks the repository and cleans it, unless it is in use.
func (b *BareRepository) cleanUnused(ctx context.Context, now time.Time) (err error) {
	b.lock, err = files.LockDir(ctx, b.dir, 0)
	if errors.Is(err, files.ErrLocked) || errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer b.Close()
	if !isAt(b.lock, b.dir) {
		return nil
	}
	if b.ownerIsGone() {
		// A directory of another name is not taken for a repository if the deletion ends half way.
		if err := os.Rename(b.dir, b.dir+deletedSuffix); err != nil {
			return err
		}
		return os.RemoveAll(b.dir + deletedSuffix)
	}
	if info, err := os.Stat(filepath.Join(b.dir, cleanedFile)); err == nil && now.Sub(info.ModTime()) < cleanInterval {
		return nil
	}
	if _, err := os.Stat(b.git()); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err := touch(filepath.Join(b.dir, cleanedFile), now); err != nil { // also if it fails below
		return err
	}
	return b.clean(ctx, now)
}

// clean deletes the refs that were not used for long, and then the objects that only they had.
func (b *BareRepository) clean(ctx context.Context, now time.Time) error {
	if err := b.removeLeftovers(); err != nil {
		return err
	}
	unused, err := b.unusedRefs(ctx, now)
	if err != nil {
		return err
	}
	unpruned := filepath.Join(b.dir, unprunedFile)
	if len(unused) > 0 {
		deletions := "delete " + strings.Join(unused, "\ndelete ") + "\n"
		if err := os.WriteFile(unpruned, []byte(deletions), 0o600); err != nil {
			return err
		}
		c := b.command(b.git(), "update-ref", "--no-deref", "--stdin").reading(unpruned)
		if _, err := b.outputOf(ctx, c); err != nil {
			return err
		}
	}
	if err := b.deleteOldMarks(now); err != nil {
		return err
	}
	if _, err := os.Stat(unpruned); err != nil {
		return nil
	}
	if err := b.prune(ctx); err != nil {
		return err
	}
	return os.Remove(unpruned)
}

// unusedRefs are the refs that were not used for longer than UnusedBranchLife.
func (b *BareRepository) unusedRefs(ctx context.Context, now time.Time) (unused []string, err error) {
	refs, err := b.output(ctx, "for-each-ref", "--format=%(refname)", "refs/heads", "refs/base")
	if err != nil {
		return nil, err
	}
	for ref := range strings.FieldsSeq(refs) {
		info, err := os.Stat(b.usedFile(ref))
		if errors.Is(err, fs.ErrNotExist) { // nobody knows when it was used
			err = touch(b.usedFile(ref), now)
		} else if err == nil && now.Sub(info.ModTime()) > UnusedBranchLife {
			unused = append(unused, ref)
		}
		if err != nil {
			return nil, err
		}
	}
	return unused, nil
}

// deleteOldMarks deletes the files of refs that were deleted.
func (b *BareRepository) deleteOldMarks(now time.Time) error {
	entries, err := os.ReadDir(filepath.Join(b.dir, usedDir))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	for _, e := range entries {
		info, bad := e.Info()
		if bad == nil && now.Sub(info.ModTime()) > UnusedBranchLife {
			bad = os.Remove(filepath.Join(b.dir, usedDir, e.Name()))
		}
		err = errors.Join(err, bad)
	}
	return err
}

// prune deletes the objects that no ref needs, and what killed commands have left beside them.
func (b *BareRepository) prune(ctx context.Context) error {
	for _, args := range [][]string{{"repack", "-a", "-d", "-q"}, {"prune", "--expire=now"}} {
		c := b.command(b.git(), args...)
		c.limit = cleanTimeout
		if _, err := b.outputOf(ctx, c); err != nil {
			return err
		}
	}
	return nil
}

// saveOwner notes which repository of the user this one is for.
func (b *BareRepository) saveOwner(common string) error {
	file := filepath.Join(b.dir, ownerFile)
	if text, err := os.ReadFile(file); err == nil && string(text) == common {
		return nil
	}
	return files.Replace(file, []byte(common))
}

// ownerIsGone reports whether the repository of the user no longer exists.
func (b *BareRepository) ownerIsGone() bool {
	common, err := os.ReadFile(filepath.Join(b.dir, ownerFile))
	if err != nil || !filepath.IsAbs(string(common)) {
		return false
	}
	_, err = os.Stat(string(common))
	return errors.Is(err, fs.ErrNotExist)
}

// setRef lets a ref lead to a commit, and notes that it is used.
func (b *BareRepository) setRef(ctx context.Context, ref, commit string) error {
	if err := touch(b.usedFile(ref), time.Now()); err != nil {
		return err
	}
	_, err := b.output(ctx, "update-ref", "--no-deref", ref, commit)
	return err
}

// usedFile is changed when a ref is used. The last part of its name is the id of a task or of a commit.
func (b *BareRepository) usedFile(ref string) string {
	return filepath.Join(b.dir, usedDir, path.Base(ref))
}

// touch sets the time of an empty file, and makes it if it is missing.
func touch(file string, at time.Time) error {
	err := os.Chtimes(file, at, at)
	if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return errors.Join(os.MkdirAll(filepath.Dir(file), 0o700), os.WriteFile(file, nil, 0o600),
		os.Chtimes(file, at, at))
}
