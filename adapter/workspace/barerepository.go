package workspace

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/internal/files"
	"github.com/picket-dev/picket/internal/lazyregexp"
)

const (
	// MaxBundle is the size of the largest bundle that is kept as evidence, in bytes.
	MaxBundle = 16 << 20
	// maxCopy bounds what the bare repository takes at once, in bytes. The first copy has the
	// whole history of the repository.
	maxCopy = 2 << 30
	// maxInflated bounds the objects of a bundle without compression, together, in bytes. An object of
	// which the bundle has only changes counts as a whole, and so does the one that was changed.
	maxInflated = 1 << 30
	// copyTimeout is how long one git command may run that copies commits on this machine.
	copyTimeout = 2 * time.Minute
)

// ErrMissingBase reports that a bundle begins at a commit that the repository does not have.
var ErrMissingBase = errors.New("the bundle begins at a commit that is not in this repository")

// BareRepository is a repository without files that an adapter owns, in its state directory. It has the
// branches of tasks on their way from one machine to another. No agent has a part in its
// configuration: it is written again each time, and the configuration of the user and of the
// system does not count. Several adapters may use it at once.
type BareRepository struct {
	dir  string
	lock *os.File
	GitContainment
	step     func(point string)
	inflated int64 // maxInflated, or less in a test
}

// OpenBare makes the bare repository for the repository of the store, or opens it. It waits for
// another adapter that uses it. Close must be called.
func (w *Store) OpenBare(ctx context.Context) (*BareRepository, error) {
	name := sha256.Sum256([]byte(w.Repo.common))
	dir, lock, err := lockBare(ctx, bareRepositoriesDir(w.StateDir), hex.EncodeToString(name[:12]))
	if err != nil {
		return nil, fmt.Errorf("lock the bare repository: %w", err)
	}
	b := &BareRepository{dir: dir, lock: lock, GitContainment: w.Git, step: w.step, inflated: maxInflated}
	// It is not a directory of the run. Its commands end with their context.
	b.RunID, b.StateDir, b.LeaseLeft = "", "", nil
	if err := b.repair(ctx, w.repository()); err != nil {
		lock.Close()
		return nil, fmt.Errorf("make the bare repository: %w", err)
	}
	return b, nil
}

// lockBare makes the directory of a bare repository and locks it. Another adapter may delete it meanwhile.
func lockBare(ctx context.Context, root, name string) (dir string, lock *os.File, err error) {
	for {
		if dir, err = PrivateDir(root, name); err != nil {
			return "", nil, err
		}
		if lock, err = files.LockDir(ctx, dir, sharedLockTimeout); err == nil && isAt(lock, dir) {
			return dir, lock, nil
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return "", nil, err
		}
		lock.Close()
	}
}

// isAt reports whether a directory that is held open is still the one at a path.
func isAt(held *os.File, path string) bool {
	one, err := held.Stat()
	other, bad := os.Stat(path)
	return err == nil && bad == nil && os.SameFile(one, other)
}

// Close lets another adapter use the repository.
func (b *BareRepository) Close() { b.lock.Close() }

// bareConfig is the whole configuration of a bare repository.
const bareConfig = `[core]
	repositoryformatversion = %d
	bare = true
	hooksPath = ` + os.DevNull + `
	logAllRefUpdates = false
[transfer]
	fsckObjects = true
	unpackLimit = 1
[fetch]
	fsckObjects = true
[receive]
	fsckObjects = true
[gc]
	auto = 0
[advice]
	graftFileDeprecated = false
%s`

// repair makes what is missing, writes the configuration, and deletes what a killed process has
// left: nobody else is here, since the repository is locked.
func (b *BareRepository) repair(ctx context.Context, of Repository) error {
	if _, err := PrivateDir(b.dir, "home"); err != nil {
		return err
	}
	if err := b.saveOwner(of.common); err != nil {
		return err
	}
	if err := b.removeLeftovers(); err != nil {
		return err
	}
	if _, err := os.Stat(b.git()); errors.Is(err, fs.ErrNotExist) {
		return b.makeRepository(ctx, of)
	}
	for _, name := range []string{"objects/info/alternates", "info/grafts", "shallow", "config.worktree"} {
		if err := os.Remove(filepath.Join(b.git(), name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	if err := b.writeConfig(b.git()); err != nil {
		return err
	}
	b.joinPacks(ctx)
	return nil
}

// removeLeftovers deletes what has come in half, and the locks of commands that were killed.
func (b *BareRepository) removeLeftovers() error {
	leftovers, err := filepath.Glob(filepath.Join(b.dir, "incoming-*"))
	if err != nil {
		return err
	}
	for _, dir := range leftovers {
		if err := os.RemoveAll(dir); err != nil {
			return err
		}
	}
	err = filepath.WalkDir(b.git(), func(path string, _ fs.DirEntry, err error) error {
		if err == nil && strings.HasSuffix(path, ".lock") {
			err = os.Remove(path)
		}
		return err
	})
	if errors.Is(err, fs.ErrNotExist) { // there is no repository yet
		return nil
	}
	return err
}

// maxPacks is how many packs of objects are kept before some are joined. Each push adds one.
const maxPacks = 50

// joinPacks joins small packs. If it fails, git is only slower.
func (b *BareRepository) joinPacks(ctx context.Context) {
	packs, err := filepath.Glob(filepath.Join(b.git(), "objects", "pack", "*.pack"))
	if err == nil && len(packs) > maxPacks {
		_, _ = b.output(ctx, "repack", "--geometric=2", "-d", "-q")
	}
}

// makeRepository makes the repository beside its place, so that it is there whole or not at all.
func (b *BareRepository) makeRepository(ctx context.Context, of Repository) error {
	format, err := of.output(ctx, "rev-parse", "--show-object-format")
	if err != nil {
		return err
	}
	if format == "sha256" {
		if err := os.WriteFile(filepath.Join(b.dir, sha256File), nil, 0o600); err != nil {
			return err
		}
	}
	dir, err := os.MkdirTemp(b.dir, "incoming-*")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if err := b.initialize(ctx, filepath.Join(dir, "git")); err != nil {
		return err
	}
	b.step("initialized")
	return os.Rename(filepath.Join(dir, "git"), b.git())
}

func (b *BareRepository) git() string { return filepath.Join(b.dir, "git") }

// sha256File says that the objects of the repository have names of SHA-256.
const sha256File = "sha256"

func (b *BareRepository) writeConfig(dir string) error {
	version, extensions := 0, ""
	if _, err := os.Stat(filepath.Join(b.dir, sha256File)); err == nil {
		version, extensions = 1, "[extensions]\n\tobjectFormat = sha256\n"
	}
	return files.Replace(filepath.Join(dir, "config"), fmt.Appendf(nil, bareConfig, version, extensions))
}

func (b *BareRepository) initialize(ctx context.Context, dir string) error {
	args := []string{"init", "--quiet", "--bare", "--template="}
	if _, err := os.Stat(filepath.Join(b.dir, sha256File)); err == nil {
		args = append(args, "--object-format=sha256")
	}
	if _, err := b.outputOf(ctx, b.command("", append(args, dir)...)); err != nil {
		return err
	}
	return b.writeConfig(dir)
}

// command is a git command in the repository at dir, for which no configuration but that of the
// repository counts.
func (b *BareRepository) command(dir string, args ...string) gitCommand {
	c := git{common: dir}.command(args...)
	c.dir, c.lock, c.limit = b.dir, b.lock, copyTimeout
	home := filepath.Join(b.dir, "home")
	c.env = append(plainHistory(), "HOME="+home, "XDG_CONFIG_HOME="+home, "GIT_CONFIG_GLOBAL="+os.DevNull,
		"GIT_CONFIG_NOSYSTEM=1", "GIT_ALLOC_LIMIT=1g")
	return c
}

// plainHistory are the variables with which git reads commits as they are, whatever replaces them
// in the repository.
func plainHistory() []string {
	return []string{"GIT_NO_REPLACE_OBJECTS=1", "GIT_GRAFT_FILE=" + os.DevNull, "GIT_ALTERNATE_OBJECT_DIRECTORIES="}
}

func (b *BareRepository) output(ctx context.Context, args ...string) (string, error) {
	return b.outputOf(ctx, b.command(b.git(), args...))
}

// has reports whether a commit with its history is here.
func (b *BareRepository) has(ctx context.Context, commit string) bool {
	_, err := b.output(ctx, "cat-file", "-e", "--end-of-options", commit+"^{commit}")
	return err == nil
}

// Tip returns the commit of the branch of a task, and "" if it is not here.
func (b *BareRepository) Tip(ctx context.Context, taskID string) string {
	tip, err := b.output(ctx, "rev-parse", "--verify", "--quiet", "--end-of-options", workRef(taskID)+"^{commit}")
	if err != nil {
		return ""
	}
	return tip
}

// workRef is the full name of the branch of a task.
func workRef(taskID string) string { return "refs/heads/" + picket.WorkBranch(taskID) }

// Import takes the branch of a task out of a bundle and returns the commit of the branch. The bundle
// is untrusted: it must have exactly this branch, and at most limit bytes. Its objects may have at
// most 1 GiB without compression. Those that are not here yet are checked as git fsck --strict
// does. The error is ErrMissingBase if it begins at a commit that is not here; see Copy.
// After an error nothing has changed.
func (b *BareRepository) Import(ctx context.Context, bundle io.Reader, limit int64,
	taskID string) (tip string, err error) {
	if err := picket.CheckID("taskId", "task", taskID); err != nil {
		return "", err
	}
	checks := objectChecks{strict: true, inflated: b.inflated}
	return b.take(ctx, bundle, limit, workRef(taskID), workRef(taskID), checks)
}

// objectChecks are made before objects are accepted. That nothing is missing is always checked.
type objectChecks struct {
	strict   bool  // as git fsck --strict does, for all that is not here yet
	inflated int64 // how many bytes they may have together without compression; 0: any number
}

// take is Import for a ref that has another name in the bundle than here, with other checks.
func (b *BareRepository) take(ctx context.Context, bundle io.Reader, limit int64, ref, to string,
	checks objectChecks) (tip string, err error) {
	in, err := b.newIncoming(ctx)
	if err != nil {
		return "", err
	}
	defer in.delete()
	file := filepath.Join(in.dir, "bundle")
	if err := saveBundle(file, bundle, limit); err != nil {
		return "", err
	}
	head, err := readBundleHeader(file)
	if err != nil {
		return "", err
	}
	if head.ref != ref {
		return "", fmt.Errorf("the bundle has the ref %q, and not %q", head.ref, ref)
	}
	for i, commit := range head.prerequisites {
		if !b.has(ctx, commit) {
			return "", fmt.Errorf("%w: %s", ErrMissingBase, commit)
		}
		// git wants a branch that leads to it
		if _, err := in.output(ctx, "update-ref", fmt.Sprintf("refs/base/%d", i), commit); err != nil {
			return "", err
		}
	}
	if _, err := in.output(ctx, "bundle", "unbundle", file); err != nil {
		return "", fmt.Errorf("unpack the bundle: %w", err)
	}
	if err := in.accept(ctx, head.tip, to, checks); err != nil {
		return "", err
	}
	return head.tip, nil
}

// saveBundle writes a bundle to a file, unless it is too large.
func saveBundle(file string, bundle io.Reader, limit int64) error {
	f, err := os.OpenFile(file, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	n, err := io.Copy(f, io.LimitReader(bundle, limit+1))
	if err = errors.Join(err, f.Close()); err == nil && n > limit {
		err = fmt.Errorf("the bundle has more than %d bytes, which is the limit", limit)
	}
	return err
}

// incoming is a repository for objects that were not checked yet. It sees the objects of its
// bare repository, and not the other way round.
type incoming struct {
	*BareRepository
	dir string
}

func (b *BareRepository) newIncoming(ctx context.Context) (incoming, error) {
	dir, err := os.MkdirTemp(b.dir, "incoming-*")
	if err != nil {
		return incoming{}, err
	}
	in := incoming{b, dir}
	if err := b.initialize(ctx, in.git()); err != nil {
		in.delete()
		return in, err
	}
	objects := filepath.Join(b.git(), "objects") + "\n"
	if err := errors.Join(os.MkdirAll(filepath.Dir(in.alternates()), 0o700),
		os.WriteFile(in.alternates(), []byte(objects), 0o600)); err != nil {
		in.delete()
		return in, err
	}
	return in, nil
}

func (in incoming) delete()     { os.RemoveAll(in.dir) }
func (in incoming) git() string { return filepath.Join(in.dir, "git") }

// alternates is the file that names the objects of the bare repository.
func (in incoming) alternates() string {
	return filepath.Join(in.git(), "objects", "info", "alternates")
}

func (in incoming) output(ctx context.Context, args ...string) (string, error) {
	return in.outputOf(ctx, in.command(in.git(), args...))
}

// checkInflated refuses objects that have more than limit bytes together.
func (in incoming) checkInflated(ctx context.Context, limit int64) error {
	if limit == 0 {
		return nil
	}
	// git lists the objects of the bare repository as well as long as it knows of them.
	aside := in.alternates() + ".aside"
	if err := os.Rename(in.alternates(), aside); err != nil {
		return err
	}
	sizes, err := in.output(ctx, "cat-file", "--batch-all-objects", "--unordered", "--batch-check=%(objectsize)")
	if err := errors.Join(err, os.Rename(aside, in.alternates())); err != nil {
		return fmt.Errorf("list the objects: %w", err)
	}
	var sum int64
	for size := range strings.FieldsSeq(sizes) {
		n, err := strconv.ParseInt(size, 10, 64)
		if err != nil {
			return err
		}
		if sum += n; sum > limit {
			return fmt.Errorf("its objects have more than %d bytes without compression, which is the limit", limit)
		}
	}
	return nil
}

// checkStrictly packs the objects of a branch that the bare repository does not have, and checks them as
// git fsck --strict does. It returns the directory of the pack. What came in can also have
// objects of the bare repository, of which others are deltas: the user's own history may have
// errors that git has not always refused.
func (in incoming) checkStrictly(ctx context.Context, tip string) (dir string, err error) {
	known, err := in.BareRepository.output(ctx, "for-each-ref", "--format=^%(objectname)")
	if err != nil {
		return "", err
	}
	dir = filepath.Join(in.dir, "checked")
	revisions := filepath.Join(in.dir, "revisions")
	if err := errors.Join(os.Mkdir(dir, 0o700),
		os.WriteFile(revisions, []byte(tip+"\n"+known+"\n"), 0o600)); err != nil {
		return "", err
	}
	c := in.command(in.git(), "pack-objects", "--revs", "--local", "--non-empty", "--delta-base-offset", "--quiet",
		filepath.Join(dir, "pack"))
	pack, err := in.outputOf(ctx, c.reading(revisions))
	if err != nil || pack == "" { // everything is here
		return dir, err
	}
	_, err = in.output(ctx, "index-pack", "--strict", "-o", filepath.Join(in.dir, "checked.idx"),
		filepath.Join(dir, "pack-"+pack+".pack"))
	return dir, err
}

var packName = lazyregexp.New(`^pack-[0-9a-f]{40,64}$`)

// accept checks the objects that came in, moves them into the bare repository, and lets ref lead to tip.
func (in incoming) accept(ctx context.Context, tip, ref string, checks objectChecks) error {
	if err := in.checkInflated(ctx, checks.inflated); err != nil {
		return err
	}
	if _, err := in.output(ctx, "rev-parse", "--verify", "--quiet", "--end-of-options", tip+"^{commit}"); err != nil {
		return fmt.Errorf("the branch does not lead to a commit: %w", err)
	}
	// nothing of its history is missing
	if _, err := in.output(ctx, "rev-list", "--objects", "--quiet", tip, "--not", "--all"); err != nil {
		return fmt.Errorf("the history of the branch is not complete: %w", err)
	}
	dir := filepath.Join(in.git(), "objects", "pack")
	if checks.strict {
		var err error
		if dir, err = in.checkStrictly(ctx, tip); err != nil {
			return fmt.Errorf("check the objects: %w", err)
		}
	}
	packs, err := filepath.Glob(filepath.Join(dir, "*.pack"))
	if err != nil {
		return err
	}
	in.step("checked")
	to := filepath.Join(in.BareRepository.git(), "objects", "pack")
	if err := os.MkdirAll(to, 0o700); err != nil {
		return err
	}
	for _, pack := range packs {
		name := strings.TrimSuffix(filepath.Base(pack), ".pack")
		if !packName().MatchString(name) {
			return fmt.Errorf("git has made a pack with the name %q", name)
		}
		// A pack without its index does not count, so the index comes last.
		for _, ext := range []string{".pack", ".idx"} {
			from := strings.TrimSuffix(pack, ".pack") + ext
			if err := os.Rename(from, filepath.Join(to, name+ext)); err != nil {
				return err
			}
		}
	}
	in.step("moved")
	return in.setRef(ctx, ref, tip)
}
