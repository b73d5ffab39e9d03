package workspace

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/internal/lazyregexp"
)

// ErrNoWork reports that the branch of a task is missing, or has nothing that its base has not.
var ErrNoWork = errors.New("the branch has no commits of its own")

// Bundle returns the commits of a task's branch since base, as git bundle makes them, and the commit of
// the branch. If that takes more than limit bytes, the error names the limit. The
// error is ErrNoWork if there is nothing to bundle.
func (r Repository) Bundle(ctx context.Context, taskID, base string, limit int) (bundle []byte, tip string, err error) {
	if err := picket.CheckID("taskId", "task", taskID); err != nil {
		return nil, "", err
	}
	if !objectName().MatchString(base) {
		return nil, "", fmt.Errorf("%q is not the id of a commit", base)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	out := &boundedOutput{limit: limit, onFull: cancel}
	if err := r.writeBundle(ctx, out, taskID, base); out.more {
		return nil, "", fmt.Errorf("the bundle of the branch has more than %d bytes, which is the limit", limit)
	} else if err != nil {
		return nil, "", err
	}
	head, err := parseBundleHeader(bufio.NewReader(bytes.NewReader(out.text.Bytes())))
	return out.text.Bytes(), head.tip, err
}

// Bundle returns the commits of the branch of a worktree since its base, in at most MaxBundle bytes,
// and the commit of the branch. See [Repository.Bundle].
func (w *Store) Bundle(ctx context.Context, k *Locked) (bundle []byte, tip string, err error) {
	return w.repository().Bundle(ctx, k.TaskID, k.Base, MaxBundle)
}

// ImportSince is Import for a bundle that is said to begin at a commit, which is copied from the
// user's repository first. The error is ErrMissingBase if that repository does not have it.
func (b *BareRepository) ImportSince(ctx context.Context, from Repository, base string, bundle io.Reader, limit int64,
	taskID string) (tip string, err error) {
	if !objectName().MatchString(base) {
		return "", errors.New("the bundle is said to begin at something that is not a commit")
	}
	if from.resolveCommit(ctx, base) != base {
		return "", fmt.Errorf("%w: %s", ErrMissingBase, base)
	}
	if err := b.Copy(ctx, from, base); err != nil {
		return "", err
	}
	return b.Import(ctx, bundle, limit, taskID)
}

// writeBundle writes a bundle of a task's branch without the history of some commits.
func (r Repository) writeBundle(ctx context.Context, out io.Writer, taskID string, without ...string) error {
	tip := r.resolveCommit(ctx, workRef(taskID))
	if tip == "" {
		return ErrNoWork
	}
	args := []string{"bundle", "create", "--quiet", "-"}
	for _, commit := range without {
		if r.contains(ctx, commit, tip) {
			return ErrNoWork
		}
		args = append(args, "^"+commit)
	}
	c := r.historyCommand(append(args, workRef(taskID))...)
	if err := r.run(ctx, c, out); err != nil {
		return fmt.Errorf("bundle the branch: %w", err)
	}
	return nil
}

// historyCommand is a git command that reads commits as they are and may take long.
func (g git) historyCommand(args ...string) gitCommand {
	c := g.command(args...)
	c.env, c.limit = append(c.env, plainHistory()...), copyTimeout
	return c
}

// Copy makes sure that a commit of the user's repository is in the bare one, with its history. It is
// checked that nothing is missing. Errors that git fsck finds do not count, because old history often has
// some.
func (b *BareRepository) Copy(ctx context.Context, from Repository, commit string) error {
	if !objectName().MatchString(commit) {
		return fmt.Errorf("%q is not the id of a commit", commit)
	}
	if b.has(ctx, commit) {
		return b.setRef(ctx, "refs/base/"+commit, commit)
	}
	refs, err := from.output(ctx, "for-each-ref", "--format=%(refname)", "--contains="+commit, "refs/heads",
		"refs/remotes", "refs/tags")
	if err != nil {
		return fmt.Errorf("find a branch with the commit %s: %w", commit, err)
	}
	if refs == "" {
		return fmt.Errorf("no branch of the repository has the commit %s", commit)
	}
	all := strings.Split(refs, "\n")
	ref := all[0]
	// The branches of tasks have what agents have committed.
	if i := slices.IndexFunc(all, func(ref string) bool { return !strings.HasPrefix(ref, workRef("")) }); i >= 0 {
		ref = all[i]
	}
	if _, err := b.copyRef(ctx, from, ref, "refs/base/"+commit, objectChecks{}); err != nil {
		return err
	}
	if !b.has(ctx, commit) {
		return fmt.Errorf("the branch %q has not got the commit %s any more", ref, commit)
	}
	return nil
}

// CopyBranch brings the branch of a task from the user's repository into the bare one, and returns its
// commit. The history up to the base of the branch is copied as Copy does. What the branch adds is checked as
// git fsck --strict does, because another machine checks it so. The error is ErrNoWork if there is no branch.
func (b *BareRepository) CopyBranch(ctx context.Context, from Repository, taskID string) (tip string, err error) {
	if err := picket.CheckID("taskId", "task", taskID); err != nil {
		return "", err
	}
	if tip = from.resolveCommit(ctx, workRef(taskID)); tip == "" {
		return "", ErrNoWork
	}
	if b.has(ctx, tip) {
		return tip, b.setRef(ctx, workRef(taskID), tip)
	}
	base := from.savedBase(taskID)
	if !objectName().MatchString(base) || !from.contains(ctx, tip, base) {
		base, _ = from.head(ctx)
	}
	_ = b.Copy(ctx, from, base) // what is not copied so is copied and checked with the branch
	return b.copyRef(ctx, from, workRef(taskID), workRef(taskID), objectChecks{strict: true})
}

// copyRef copies a ref of the user's repository, with all commits that are not here yet.
func (b *BareRepository) copyRef(ctx context.Context, from Repository, ref, to string,
	checks objectChecks) (tip string, err error) {
	known, err := b.output(ctx, "for-each-ref", "--count=64", "--sort=-committerdate", "--format=^%(objectname)")
	if err != nil {
		return "", err
	}
	args := append([]string{"bundle", "create", "--quiet", "-", "--ignore-missing"}, strings.Fields(known)...)
	read, write := io.Pipe()
	made := make(chan error, 1)
	go func() {
		err := from.run(ctx, from.historyCommand(append(args, ref)...), write)
		made <- err
		write.CloseWithError(err)
	}()
	tip, err = b.take(ctx, read, maxCopy, ref, to, checks)
	read.CloseWithError(io.ErrClosedPipe)
	if failed := <-made; failed != nil && err != nil {
		err = failed
	}
	if err != nil {
		return "", fmt.Errorf("copy the branch: %w", err)
	}
	return tip, nil
}

// Bring makes the branch of a task in the user's repository, from the one that is here, unless the
// user's repository has such a branch. It returns the commit of the branch.
func (b *BareRepository) Bring(ctx context.Context, to Repository, taskID string) (tip string, err error) {
	if err := picket.CheckID("taskId", "task", taskID); err != nil {
		return "", err
	}
	if tip = to.resolveCommit(ctx, workRef(taskID)); tip != "" {
		return tip, nil
	}
	if tip = b.Tip(ctx, taskID); tip == "" {
		return "", ErrNoWork
	}
	if err := to.removeBranchLock(picket.WorkBranch(taskID)); err != nil { // refuses links that lead elsewhere
		return "", err
	}
	if to.resolveCommit(ctx, tip) != tip {
		if err := b.copyTo(ctx, to, taskID); err != nil {
			return "", fmt.Errorf("copy the branch: %w", err)
		}
	}
	_, err = to.output(ctx, "update-ref", "--no-deref", "-m", "picket: brought from another machine", workRef(taskID),
		tip, strings.Repeat("0", len(tip)))
	if err != nil {
		return "", err
	}
	return tip, nil
}

// copyTo copies the commits of a task's branch that the user's checkout has not.
func (b *BareRepository) copyTo(ctx context.Context, to Repository, taskID string) error {
	dir, err := os.MkdirTemp(b.dir, "incoming-*")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	file := filepath.Join(dir, "bundle")
	args := []string{"bundle", "create", "--quiet", file, workRef(taskID)}
	if head, err := to.head(ctx); err == nil && b.has(ctx, head) {
		if base, err := b.output(ctx, "merge-base", head, workRef(taskID)); err == nil {
			args = append(args, "^"+base)
		}
	}
	if _, err := b.output(ctx, args...); err != nil {
		return err
	}
	_, err = to.outputOf(ctx, to.historyCommand("bundle", "unbundle", file))
	return err
}

// bundleHeader is what a bundle says of itself, before its objects.
type bundleHeader struct {
	ref, tip      string
	prerequisites []string
}

var objectName = lazyregexp.New(`^([0-9a-f]{40}|[0-9a-f]{64})$`)

// maxPrerequisites bounds the commits at which a bundle may begin.
const maxPrerequisites = 256

func readBundleHeader(file string) (bundleHeader, error) {
	f, err := os.Open(file)
	if err != nil {
		return bundleHeader{}, err
	}
	defer f.Close()
	return parseBundleHeader(bufio.NewReader(f))
}

// parseBundleHeader reads the lines before the objects. A bundle has exactly one branch.
func parseBundleHeader(in *bufio.Reader) (head bundleHeader, err error) {
	refuse := func(why string) (bundleHeader, error) {
		return bundleHeader{}, errors.New("this is not a bundle of one branch: " + why)
	}
	version, err := bundleLine(in)
	if err != nil || version != "# v2 git bundle" && version != "# v3 git bundle" {
		return refuse("it does not begin as a bundle does")
	}
	for {
		line, err := bundleLine(in)
		if err != nil {
			return refuse(err.Error())
		}
		if line == "" {
			break
		}
		id, name, named := strings.Cut(line, " ")
		switch prerequisite, is := strings.CutPrefix(id, "-"); {
		case strings.HasPrefix(line, "@object-format=") && version == "# v3 git bundle":
		case is && objectName().MatchString(prerequisite):
			head.prerequisites = append(head.prerequisites, prerequisite)
			if len(head.prerequisites) > maxPrerequisites {
				return refuse("it begins at more than 256 commits")
			}
		case objectName().MatchString(id) && named && head.ref == "":
			head.tip, head.ref = id, name
		case objectName().MatchString(id) && named:
			return refuse("it has more than one ref")
		default:
			return refuse("its header has a line that is not expected")
		}
	}
	if head.ref == "" {
		return refuse("it has no ref")
	}
	return head, nil
}

// bundleLine reads one line of at most 4 KiB.
func bundleLine(in *bufio.Reader) (string, error) {
	line, err := in.ReadSlice('\n')
	switch {
	case errors.Is(err, bufio.ErrBufferFull):
		return "", errors.New("its header has a long line")
	case err != nil:
		return "", errors.New("its header is cut off")
	}
	return strings.TrimSuffix(string(line), "\n"), nil
}
