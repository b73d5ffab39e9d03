package adapter

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/picket-dev/picket"
)

// git runs commands in one repository, or in one worktree of it. Hooks, editors,
// prompts and tools that a configuration may name do not run.
type git struct {
	common string // the directory that all worktrees of the repository share
	admin  string // of a worktree: its part of common
	tree   string // of a worktree: its files
	// lock is held by the commands, too: one that outlives a killed adapter
	// keeps the next one out until it has ended.
	lock *os.File
}

// quietly are settings that hold for every command.
var quietly = []string{
	"-c", "core.hooksPath=" + os.DevNull, "-c", "core.fsmonitor=false", "-c", "core.quotePath=true",
	"-c", "commit.gpgSign=false", "-c", "gc.auto=0", "-c", "maintenance.auto=false", "-c", "color.ui=false",
	"-c", "advice.detachedHead=false", "-c", "submodule.recurse=false",
}

// gitEnv is what git sees of our environment: nothing that could send it to
// another repository, such as what a hook that started us has set.
func gitEnv(more ...string) []string {
	var env []string
	for _, kv := range os.Environ() {
		name, _, _ := strings.Cut(kv, "=")
		if !strings.HasPrefix(name, "GIT_") || strings.HasPrefix(name, "GIT_AUTHOR_") || strings.HasPrefix(name, "GIT_COMMITTER_") ||
			strings.HasPrefix(name, "GIT_CONFIG_") || name == "GIT_EXEC_PATH" {
			env = append(env, kv)
		}
	}
	return append(append(env, "GIT_TERMINAL_PROMPT=0", "GIT_EDITOR=true", "GIT_PAGER=cat", "GIT_ASKPASS=", "LC_ALL=C"), more...)
}

func (g git) command(ctx context.Context, args ...string) *exec.Cmd {
	all := append([]string{}, quietly...)
	switch {
	case g.tree != "":
		all = append(all, "--git-dir="+g.admin, "--work-tree="+g.tree)
	case g.common != "":
		all = append(all, "--git-dir="+g.common)
	}
	cmd := exec.CommandContext(ctx, "git", append(all, args...)...)
	cmd.Dir = g.tree
	if cmd.Dir == "" {
		cmd.Dir = g.common
	}
	cmd.Env = gitEnv()
	inherit(cmd, g.lock)
	ownSession(cmd)
	cmd.WaitDelay = time.Second
	return cmd
}

// say runs a command and answers what it prints, without the last line end.
func (g git) say(ctx context.Context, args ...string) (string, error) {
	return spoken(g.command(ctx, args...))
}

func spoken(cmd *exec.Cmd) (string, error) {
	var out, talk bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &talk
	// What git has started may outlive it; its output is waited for no longer.
	if err := cmd.Run(); err != nil && !errors.Is(err, exec.ErrWaitDelay) {
		return "", &gitError{cmd.Args[len(cmd.Args)-1], strings.TrimSpace(talk.String()), err}
	}
	return strings.TrimSuffix(out.String(), "\n"), nil
}

// some runs a command and answers at most n bytes of what it prints, and
// whether there was more.
func (g git) some(ctx context.Context, n int, args ...string) (text string, more bool, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	cmd := g.command(ctx, args...)
	out, err := cmd.StdoutPipe()
	if err != nil {
		return "", false, err
	}
	if err := cmd.Start(); err != nil {
		return "", false, err
	}
	b, err := io.ReadAll(io.LimitReader(out, int64(n)+1))
	if more = len(b) > n; more {
		cancel() // it need not be read to its end
		b = b[:n]
	}
	if ended := cmd.Wait(); !more {
		err = errors.Join(err, ended)
	}
	return string(b), more, err
}

// gitError is a command that failed, in git's own words.
type gitError struct {
	about, said string
	err         error
}

func (e *gitError) Error() string {
	if e.said == "" {
		return fmt.Sprintf("git: %v (%s)", e.err, e.about)
	}
	return "git: " + clip(strings.ReplaceAll(e.said, "\n", "; "), 1024)
}

func (e *gitError) Unwrap() error { return e.err }

// repository is where the worktrees of an adapter come from.
type repository struct {
	git           // over the whole repository
	top    string // the checkout that Config.Dir is in
	prefix string // Config.Dir below top, such as "a/b"; empty at the top
}

// findRepository looks at the directory an adapter works for and says what is
// missing for worktrees.
func findRepository(ctx context.Context, dir string) (repository, error) {
	ask := func(args ...string) (string, error) {
		cmd := git{}.command(ctx, append([]string{"rev-parse"}, args...)...)
		cmd.Dir = dir
		return spoken(cmd)
	}
	refuse := func(remedy, format string, args ...any) (repository, error) {
		return repository{}, picket.Invalid("Workspace", remedy, format, args...)
	}
	if _, err := exec.LookPath("git"); err != nil {
		return refuse("Install git, or use a workspace of kind copy.", "a worktree needs git, which is not on PATH")
	}
	where, err := ask("--is-bare-repository", "--is-inside-work-tree")
	var e *gitError
	switch {
	case errors.As(err, &e) && strings.Contains(e.said, "not a git repository"):
		return refuse("Go into a git repository, make this one with git init and a first commit, or use a workspace of kind copy.", "%s is not in a git repository", dir)
	case err != nil:
		return refuse("Make git work in this directory, or use a workspace of kind copy.", "git cannot read %s: %v", dir, err)
	case strings.HasPrefix(where, "true"):
		return refuse("Start from a checkout of it (git clone), not from the bare repository.", "%s is a bare repository", dir)
	case where != "false\ntrue":
		return refuse("Go to the files of the repository.", "%s is not inside the files of a repository", dir)
	}
	if _, err := ask("--verify", "--quiet", "HEAD^{commit}"); err != nil {
		return refuse("Make a first commit: git commit --allow-empty -m start", "the repository at %s has no commit yet", dir)
	}
	paths, err := ask("--show-toplevel", "--git-common-dir", "--show-prefix")
	part := strings.Split(paths, "\n")
	if err != nil || len(part) != 3 {
		return refuse("Move the repository to a directory with an ordinary name.", "git cannot say where the repository of %s is", dir)
	}
	r := repository{git: git{common: part[1]}, top: part[0], prefix: strings.TrimSuffix(part[2], "/")}
	if !filepath.IsAbs(r.common) {
		r.common = filepath.Join(dir, r.common)
	}
	return r, nil
}

// commit is what a name stands for; empty when there is no such thing.
func (g git) commit(ctx context.Context, name string) string {
	id, err := g.say(ctx, "rev-parse", "--verify", "--quiet", "--end-of-options", name+"^{commit}")
	if err != nil {
		return ""
	}
	return id
}

// head is the commit that the checkout of the adapter's directory is at.
func (r repository) head(ctx context.Context) (string, error) {
	cmd := git{}.command(ctx, "rev-parse", "--verify", "HEAD^{commit}")
	cmd.Dir = r.top
	return spoken(cmd)
}
