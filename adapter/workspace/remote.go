package workspace

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/internal/lazyregexp"
)

// Remote is the URL of a repository through which the branches of tasks travel between machines. The
// operator names it, and CheckRemote has accepted it.
//
// Each run pushes to a ref of its own, refs/picket/TASK/TOKEN, where TOKEN is its fencing token. A
// run that was superseded can therefore never write over the work of a later one, not even if its
// push was on the way when its lease ended: a fetch takes the highest token. A force
// push is harmless, since only the holder of a token writes its ref.
type Remote string

const (
	// PushTimeout is how long all git commands of one push may take together.
	PushTimeout = 2 * time.Minute
	// fetchTimeout is how long those of one fetch may take.
	fetchTimeout = time.Minute
	// maxRemoteRefs bounds the list of a remote's refs of one task, in bytes.
	maxRemoteRefs = 256 << 10
)

// ErrSuperseded reports that a later run of the task has pushed already.
var ErrSuperseded = errors.New("a later run of the task has pushed already")

var (
	scpForm    = lazyregexp.New(`^([A-Za-z0-9._+-]+@)?[A-Za-z0-9][A-Za-z0-9.-]*:[^:-][^:]*$`)
	remoteText = lazyregexp.New(`^[!-~]+$`)
)

// CheckRemote refuses what a Remote cannot be. The error does not repeat the text, because it may
// have a password in it.
func CheckRemote(text string) error {
	const forms = "write https://HOST/PATH, ssh://USER@HOST/PATH, USER@HOST:PATH or an absolute path"
	switch {
	case len(text) > 2048, !remoteText().MatchString(text):
		return errors.New("the remote is empty, too long, or has a space or a control character; " + forms)
	case strings.HasPrefix(text, "-"), strings.Contains(text, "::"):
		return errors.New("the remote is an option or names a program; " + forms)
	case filepath.IsAbs(text):
		return nil
	case !strings.Contains(text, "://"):
		if scpForm().MatchString(text) {
			return nil
		}
		return errors.New("this is not the URL of a repository; " + forms)
	}
	u, err := url.Parse(text)
	if err != nil {
		return errors.New("this is not the URL of a repository; " + forms)
	}
	_, secret := u.User.Password()
	local := u.Scheme == "file" && u.Host == "" && filepath.IsAbs(u.Path)
	switch {
	case secret || u.Scheme == "https" && u.User != nil:
		return errors.New("the remote has credentials in it; use a credential helper of git or an ssh key instead")
	case u.RawQuery != "" || u.Fragment != "":
		return errors.New("the remote has a query or a fragment; leave it out")
	case local:
		return nil
	case u.Scheme != "https" && u.Scheme != "ssh" && u.Scheme != "git+ssh" && u.Scheme != "ssh+git":
		return errors.New("git would use an unsafe or unknown protocol; " + forms)
	case u.Hostname() == "", strings.HasPrefix(u.Host, "-"), strings.HasPrefix(u.User.Username(), "-"):
		return errors.New("the remote names no host; " + forms)
	}
	return nil
}

// String returns the URL. It has no credentials.
func (r Remote) String() string { return string(r) }

// isLocal reports whether the remote is a directory of this machine.
func (r Remote) isLocal() bool {
	return filepath.IsAbs(string(r)) || strings.HasPrefix(string(r), "file:")
}

// remoteArgs turn off what a push or a fetch does not need. The credential helper, the ssh command and
// the proxy of the user's configuration stay: the operator has chosen the remote for them.
var remoteArgs = []string{
	"-c", "core.hooksPath=" + os.DevNull, "-c", "core.fsmonitor=false", "-c", "core.pager=cat", "-c", "core.editor=:",
	"-c", "gc.auto=0", "-c", "maintenance.auto=false", "-c", "submodule.recurse=false", "-c",
	"push.recurseSubmodules=no", "-c", "fetch.recurseSubmodules=no", "-c", "push.followTags=false", "-c",
	"push.gpgSign=false", "-c", "fetch.prune=false", "-c", "fetch.fsckObjects=true", "-c", "transfer.fsckObjects=true",
	"-c", "transfer.unpackLimit=1", "-c", "fetch.unpackLimit=1", "-c", "fetch.writeCommitGraph=false",
	"-c", "color.ui=false",
}

// remoteEnv names the variables of the adapter that git gets for a remote beside the usual ones.
var remoteEnv = []string{
	"SSH_AUTH_SOCK", "GIT_SSH", "GIT_SSH_COMMAND", "GIT_SSH_VARIANT", "GIT_SSL_CAINFO", "GIT_SSL_CERT", "GIT_SSL_KEY",
	"http_proxy", "https_proxy", "all_proxy", "no_proxy", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY",
}

// remoteCommand is a git command that talks to the remote, in a repository of the adapter. It is the
// only kind of command that gets the user's configuration and ssh agent, and it sees nothing that
// an agent has configured.
func (b *BareRepository) remoteCommand(dir string, r Remote, lock *os.File, limit time.Duration,
	args ...string) gitCommand {
	protocols := "https:ssh"
	if r.isLocal() {
		protocols = "file"
	}
	return gitCommand{
		dir:     b.dir,
		env:     append(plainHistory(), "GIT_ALLOW_PROTOCOL="+protocols, "GIT_ALLOC_LIMIT=1g"),
		argv:    slices.Concat([]string{"git"}, remoteArgs, []string{"--git-dir=" + dir}, args),
		lock:    lock,
		limit:   limit,
		inherit: remoteEnv,
		remote:  true,
	}
}

// remoteRefs are the runs of a task that have pushed, by fencing token, with their commits.
func (b *BareRepository) remoteRefs(ctx context.Context, r Remote, taskID string) (map[int64]string, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	out := &boundedOutput{limit: maxRemoteRefs, onFull: cancel}
	prefix := "refs/picket/" + taskID + "/"
	c := b.remoteCommand(b.git(), r, nil, fetchTimeout, "ls-remote", "--refs", "--", string(r), prefix+"*")
	if err := b.run(ctx, c, out); out.more {
		return nil, fmt.Errorf("%s has too many refs of the task", r)
	} else if err != nil {
		return nil, remoteError("list the branches of", r, err)
	}
	found := map[int64]string{}
	for line := range strings.Lines(out.text.String()) {
		id, name, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "\t")
		number, ours := strings.CutPrefix(name, prefix)
		token, err := strconv.ParseInt(number, 10, 64)
		if ours && err == nil && token > 0 && strconv.FormatInt(token, 10) == number && objectName().MatchString(id) {
			found[token] = id
		}
	}
	return found, nil
}

func runRef(taskID string, token int64) string {
	return fmt.Sprintf("refs/picket/%s/%d", taskID, token)
}

// Push pushes a commit as the work of a run, and deletes the refs of earlier runs whose work is part of
// it. The commit must be in the bare repository. The error is ErrSuperseded if a run with
// a higher token has pushed. Push does not need the lock of the bare repository, so it may
// be called after Close.
func (b *BareRepository) Push(ctx context.Context, r Remote, taskID string, token int64, commit string) error {
	if err := picket.CheckID("taskId", "task", taskID); err != nil {
		return err
	}
	if !objectName().MatchString(commit) {
		return fmt.Errorf("%q is not the id of a commit", commit)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, PushTimeout, errRemoteSlow)
	defer cancel()
	pushed, err := b.remoteRefs(ctx, r, taskID)
	if err != nil {
		return err
	}
	var merged []string // the work of earlier runs, which is part of the commit
	for other, tip := range pushed {
		if other > token {
			return ErrSuperseded
		}
		if other < token && b.contains(ctx, commit, tip) {
			merged = append(merged, "--force-with-lease="+runRef(taskID, other)+":"+tip, ":"+runRef(taskID, other))
		}
	}
	if pushed[token] == commit {
		return nil
	}
	b.step("pushing")
	if err := b.push(ctx, r, "+"+commit+":"+runRef(taskID, token)); err != nil {
		return remoteError("push to", r, err)
	}
	b.step("pushed")
	if pushed[token] == "" && len(merged) > 0 {
		_ = b.push(ctx, r, merged...) // they are only not needed any more
	}
	return nil
}

// push pushes refs, each perhaps with options before it.
func (b *BareRepository) push(ctx context.Context, r Remote, what ...string) error {
	options, refs := []string{"push", "--quiet", "--no-verify", "--no-signed"}, []string{"--", string(r)}
	for _, arg := range what {
		if strings.HasPrefix(arg, "--") {
			options = append(options, arg)
		} else {
			refs = append(refs, arg)
		}
	}
	_, err := b.outputOf(ctx, b.remoteCommand(b.git(), r, nil, PushTimeout, append(options, refs...)...))
	return err
}

// contains reports whether commit is part of the history of another.
func (b *BareRepository) contains(ctx context.Context, of, commit string) bool {
	c := b.command(b.git(), "merge-base", "--is-ancestor", commit, of)
	c.lock = nil
	_, err := b.outputOf(ctx, c)
	return err == nil
}

// Fetch takes the branch of a task from the remote: the work of the run with the highest token, which
// is at most the given one. Its objects are checked as git fsck does.
func (b *BareRepository) Fetch(ctx context.Context, r Remote, taskID string, atMost int64) (tip string, err error) {
	if err := picket.CheckID("taskId", "task", taskID); err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, fetchTimeout, errRemoteSlow)
	defer cancel()
	pushed, err := b.remoteRefs(ctx, r, taskID)
	if err != nil {
		return "", err
	}
	var token int64
	for other := range pushed {
		if other <= atMost {
			token = max(token, other)
		}
	}
	if token == 0 {
		return "", fmt.Errorf("%s has no branch of %s", r, taskID)
	}
	tip = pushed[token]
	in, err := b.newIncoming(ctx)
	if err != nil {
		return "", err
	}
	defer in.delete()
	fetching, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	go in.watchSize(fetching, stop)
	_, err = in.outputOf(fetching, in.remoteCommand(in.git(), r, b.lock, fetchTimeout, "fetch", "--quiet", "--no-tags",
		"--no-write-fetch-head", "--no-recurse-submodules", "--", string(r), "+"+runRef(taskID, token)+":refs/fetched"))
	if err != nil {
		return "", remoteError("fetch from", r, err)
	}
	got, err := in.output(ctx, "rev-parse", "--verify", "--quiet", "refs/fetched^{commit}")
	if err != nil || got != tip {
		return "", fmt.Errorf("the branch on %s has changed meanwhile", r)
	}
	if err := in.accept(ctx, tip, workRef(taskID), objectChecks{strict: true}); err != nil {
		return "", err
	}
	return tip, nil
}

var (
	errRemoteSlow = errors.New("it took too long")
	errRemoteHuge = fmt.Errorf("there is more than %d MiB of it", maxCopy>>20)
)

// watchSize ends a fetch that brings too much.
func (in incoming) watchSize(ctx context.Context, stop context.CancelCauseFunc) {
	tick := time.NewTicker(250 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		var size int64
		_ = filepath.WalkDir(in.dir, func(_ string, e fs.DirEntry, err error) error {
			if err == nil && e.Type().IsRegular() {
				if info, err := e.Info(); err == nil {
					size += info.Size()
				}
			}
			return nil
		})
		if size > maxCopy {
			stop(errRemoteHuge)
			return
		}
	}
}

// remoteReasons are what git prints for errors that people can act on, in the order in which they are
// looked for.
var remoteReasons = []struct{ printed, reason string }{
	{"not resolve host", "its host is not known"},
	{"Host key verification failed", "the key of its host is not known to ssh; add it to known_hosts"},
	{"Connection refused", "its host refuses connections"},
	{"Connection timed out", "its host does not answer"},
	{"could not read Username", "it wants credentials, and your git configuration has none for it"},
	{"could not read Password", "it wants credentials, and your git configuration has none for it"},
	{"Authentication failed", "it does not accept your credentials"},
	{"Permission denied (", "it does not accept your ssh key"},
	{"No space left", "its disk is full"},
	{"Disk quota exceeded", "its disk is full"},
	{"insufficient permission", "you may not write to it"},
	{"Permission denied", "you may not write to it"},
	{"unable to write", "it cannot store the branch"},
	{"unable to create", "it cannot store the branch"},
	{"hook declined", "one of its hooks has declined the branch"},
	{"remote rejected", "it has rejected the branch"},
	{"does not appear to be a git repository", "there is no such repository"},
	{"not found", "there is no such repository"},
	{"does not exist", "there is no such repository"},
	{"detected dubious ownership", "it belongs to another user; see safe.directory in git help config"},
	{"not allowed", "your git configuration leads to a protocol that is not allowed"},
}

// remoteError is the error of a command that talked to a remote. It has nothing of what git or the
// remote has printed, because credentials can be in that.
func remoteError(what string, r Remote, err error) error {
	reason := "git has failed"
	var e *gitError
	switch is := errors.As(err, &e); {
	case errors.Is(err, errRemoteHuge):
		reason = errRemoteHuge.Error()
	case is && e.err != nil, !is, errors.Is(err, errRemoteSlow):
		reason = "it took too long, or the adapter was told to stop"
	case is:
		reason = fmt.Sprintf("git exited with status %d; see what it prints for: git ls-remote %s", e.exit.Code,
			shellQuoted(string(r)))
		for _, known := range remoteReasons {
			if strings.Contains(e.stderr, known.printed) {
				reason = known.reason
				break
			}
		}
	}
	return fmt.Errorf("%s %s: %s", what, r, reason)
}

// PushBranch pushes the branch of a task as the work of the run with a fencing token, from the bare
// repository, and returns its commit.
func (w *Store) PushBranch(ctx context.Context, r Remote, taskID string, token int64) (tip string, err error) {
	bare, err := w.OpenBare(ctx)
	if err != nil {
		return "", err
	}
	tip, err = bare.CopyBranch(ctx, w.repository(), taskID)
	bare.Close()
	if err != nil {
		return "", err
	}
	return tip, bare.Push(ctx, r, taskID, token, tip)
}

// TaskTip returns the commit of the branch of a task in the user's repository, "" if there is none.
func (w *Store) TaskTip(ctx context.Context, taskID string) string {
	return w.repository().resolveCommit(ctx, workRef(taskID))
}

// CopyBase puts the commit at which a branch began into the bare repository, so that later pushes have
// little to copy.
func (w *Store) CopyBase(ctx context.Context, base string) error {
	bare, err := w.OpenBare(ctx)
	if err != nil {
		return err
	}
	defer bare.Close()
	return bare.Copy(ctx, w.repository(), base)
}

// RemoteSource is a source of branches that were pushed to the remote.
func RemoteSource(r Remote) BranchSource {
	fetch := func(ctx context.Context, into *BareRepository, repo Repository, lease picket.Lease, taskID string) error {
		if head, err := repo.head(ctx); err == nil {
			// What is here already need not be fetched. It is fetched if this fails.
			_ = into.Copy(ctx, repo, head)
		}
		atMost := lease.FencingToken
		if taskID != lease.TaskID { // tokens are compared within one task
			atMost = 1<<63 - 1
		}
		_, err := into.Fetch(ctx, r, taskID, atMost)
		return err
	}
	return BranchSource{Name: "workspace.remote", Fetch: fetch}
}
