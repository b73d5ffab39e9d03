package workspace

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/adapter/process"
)

// git runs commands in one repository, or in one worktree of it, each in a
// containment of its own: an agent can write the configuration that git reads.
type git struct {
	common string // the directory that all worktrees of the repository share
	admin  string // of a worktree: its part of common
	tree   string // of a worktree: its files
	// dir is tree, held open: git starts in it whatever its path leads to.
	dir *os.File
	// lock is held until the processes of a command are dead: what outlives a
	// killed adapter keeps the next one out.
	lock *os.File
	GitContainment
}

// command is a git command in this repository.
func (g git) command(args ...string) gitCommand {
	all := append([]string{"git"}, noProgramsArgs...)
	c := gitCommand{dir: cmp.Or(g.tree, g.common), heldDir: g.dir, lock: g.lock}
	switch {
	case g.tree != "":
		tree := g.tree
		if g.dir != nil && process.HeldDirPath(g.dir) != g.dir.Name() {
			tree = "." // the command starts there
		}
		all = append(all, "--git-dir="+g.admin, "--work-tree="+tree)
		c.env = []string{"GIT_COMMON_DIR=" + g.common} // whatever the worktree says
	case g.admin != "":
		all = append(all, "--git-dir="+g.admin)
		c.env = []string{"GIT_COMMON_DIR=" + g.common}
	case g.common != "":
		all = append(all, "--git-dir="+g.common)
	}
	c.argv = append(all, args...)
	return c
}

// output runs a command and answers what it prints, without the last line end.
func (g git) output(ctx context.Context, args ...string) (string, error) {
	return g.outputOf(ctx, g.command(args...))
}

// outputIn runs a command in the repository that a directory is in.
func (c GitContainment) outputIn(ctx context.Context, dir string, args ...string) (string, error) {
	command := git{}.command(args...)
	command.dir = dir
	return c.outputOf(ctx, command)
}

func (c GitContainment) outputOf(ctx context.Context, command gitCommand) (string, error) {
	var out bytes.Buffer
	err := c.run(ctx, command, &out)
	return strings.TrimSuffix(out.String(), "\n"), err
}

// outputHead runs a command and answers at most n bytes of what it prints, and
// whether there was more.
func (g git) outputHead(ctx context.Context, n int, args ...string) (text string, more bool, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	out := &boundedOutput{limit: n, onFull: cancel} // it need not be read to its end
	err = g.run(ctx, g.command(args...), out)
	if out.more {
		err = nil
	}
	return out.text.String(), out.more, err
}

// Repository is the repository that the worktrees of a Store are made from. The zero value has no
// repository.
type Repository struct {
	git           // over the whole repository
	top    string // the checkout that Config.Dir is in
	prefix string // Config.Dir below top, such as "a/b"; empty at the top
}

// FindRepository finds the repository that a directory is in. It refuses with a remedy if
// worktrees cannot be made of it: git is missing, dir is not inside the files of a
// repository, or the repository has no commit.
func FindRepository(ctx context.Context, dir string, in GitContainment) (Repository, error) {
	ask := func(args ...string) (string, error) {
		return in.outputIn(ctx, dir, append([]string{"rev-parse"}, args...)...)
	}
	refuse := func(remedy, format string, args ...any) (Repository, error) {
		return Repository{}, picket.Invalid("Workspace", remedy, format, args...)
	}
	if _, err := exec.LookPath("git"); err != nil {
		return refuse("Install git, or use a workspace of kind copy.", "a worktree needs git, which is not on PATH")
	}
	where, err := ask("--is-bare-repository", "--is-inside-work-tree")
	var e *gitError
	switch {
	case errors.As(err, &e) && strings.Contains(e.stderr, "not a git repository"):
		return refuse("Go into a git repository, make this one with git init and a first commit, or use a workspace of kind copy.", "%s is not in a git repository", dir)
	case err != nil:
		return refuse("Make git work in this directory, or use a workspace of kind copy.", "git cannot read %s: %v",
			dir, err)
	case strings.HasPrefix(where, "true"):
		return refuse("Start from a checkout of it (git clone), not from the bare repository.",
			"%s is a bare repository", dir)
	case where != "false\ntrue":
		return refuse("Go to the files of the repository.", "%s is not inside the files of a repository", dir)
	}
	if _, err := ask("--verify", "--quiet", "HEAD^{commit}"); err != nil {
		return refuse("Make a first commit: git commit --allow-empty -m start",
			"the repository at %s has no commit yet", dir)
	}
	paths, err := ask("--show-toplevel", "--git-common-dir", "--show-prefix")
	part := strings.Split(paths, "\n")
	if err != nil || len(part) != 3 {
		return refuse("Move the repository to a directory with an ordinary name.",
			"git cannot say where the repository of %s is", dir)
	}
	r := Repository{git: git{common: part[1]}, top: part[0], prefix: strings.TrimSuffix(part[2], "/")}
	if !filepath.IsAbs(r.common) {
		r.common = filepath.Join(dir, r.common)
	}
	return r, nil
}

// resolveCommit is what a name stands for; empty when there is no such thing.
func (g git) resolveCommit(ctx context.Context, name string) string {
	id, err := g.output(ctx, "rev-parse", "--verify", "--quiet", "--end-of-options", name+"^{commit}")
	if err != nil {
		return ""
	}
	return id
}

// head is the commit that the checkout of the adapter's directory is at.
func (r Repository) head(ctx context.Context) (string, error) {
	return r.outputIn(ctx, r.top, "rev-parse", "--verify", "HEAD^{commit}")
}
