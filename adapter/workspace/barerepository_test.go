package workspace

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/picket-dev/picket"
)

const bareTask = "task_01ARZ3NDEKTSV4RRFFQ69G5FAV"

// machine is one machine with a clone of a repository and an adapter's state.
type machine struct {
	t     *testing.T
	dir   string
	store *Store
}

func userGit(t *testing.T, dir string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "git", args...)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("git %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return strings.TrimSpace(string(out))
}

func ownSettings(t *testing.T) {
	t.Helper()
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip("git is not on PATH: the bare repository is not tested")
	}
	for name, value := range map[string]string{"GIT_CONFIG_GLOBAL": os.DevNull, "GIT_CONFIG_NOSYSTEM": "1",
		"GIT_AUTHOR_NAME": "Ada", "GIT_AUTHOR_EMAIL": "ada@example.com", "GIT_COMMITTER_NAME": "Ada",
		"GIT_COMMITTER_EMAIL": "ada@example.com"} {
		t.Setenv(name, value)
	}
}

// newMachines makes clones of one repository with a commit, on two machines.
func newMachines(t *testing.T) (one, two machine) {
	t.Helper()
	ownSettings(t)
	first := filepath.Join(t.TempDir(), "repo")
	userGit(t, ".", "init", "--quiet", "--initial-branch=main", first)
	writeText(t, filepath.Join(first, "a.txt"), "one\n")
	userGit(t, first, "add", "--all")
	userGit(t, first, "commit", "--quiet", "--message", "start")
	second := filepath.Join(t.TempDir(), "repo")
	userGit(t, ".", "clone", "--quiet", first, second)
	return newMachine(t, first), newMachine(t, second)
}

func newMachine(t *testing.T, dir string) machine {
	t.Helper()
	repo, err := FindRepository(t.Context(), dir, GitContainment{})
	if err != nil {
		t.Fatal(err)
	}
	return machine{t, dir, &Store{StateDir: t.TempDir(), Root: t.TempDir(), Dir: dir, Kind: Worktree, Repo: repo,
		Resume: ResumeReuse, Log: slog.New(slog.DiscardHandler)}}
}

func writeText(t *testing.T, file, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// work makes a commit on the branch of the task, and returns it.
func (m machine) work(file, text string) string {
	m.t.Helper()
	userGit(m.t, m.dir, "checkout", "--quiet", "-B", picket.WorkBranch(bareTask))
	writeText(m.t, filepath.Join(m.dir, file), text)
	userGit(m.t, m.dir, "add", "--all")
	userGit(m.t, m.dir, "commit", "--quiet", "--message", "work on "+file)
	tip := userGit(m.t, m.dir, "rev-parse", "HEAD")
	userGit(m.t, m.dir, "checkout", "--quiet", "main")
	return tip
}

func (m machine) base() string { return userGit(m.t, m.dir, "rev-parse", "main") }

// bare does something with the bare repository of the machine.
func (m machine) bare(do func(ctx context.Context, b *BareRepository) error) error {
	m.t.Helper()
	b, err := m.store.OpenBare(m.t.Context())
	if err != nil {
		m.t.Fatal(err)
	}
	defer b.Close()
	return do(m.t.Context(), b)
}

// importBundle takes a bundle as another machine has sent it.
func (m machine) importBundle(bundle []byte) (tip string, err error) {
	err = m.bare(func(ctx context.Context, b *BareRepository) error {
		if err := b.Copy(ctx, m.store.repository(), m.base()); err != nil {
			return err
		}
		tip, err = b.Import(ctx, bytes.NewReader(bundle), MaxBundle, bareTask)
		return err
	})
	return tip, err
}

// A branch travels as a bundle of its own commits to a machine that has only its base.
func TestABundleBringsABranchToAnotherMachine(t *testing.T) {
	one, two := newMachines(t)
	want := one.work("b.txt", "two\n")
	bundle, tip, err := one.store.repository().Bundle(t.Context(), bareTask, one.base(), MaxBundle)
	if err != nil || tip != want {
		t.Fatalf("the bundle leads to %q, not %q: %v", tip, want, err)
	}
	if got, err := two.importBundle(bundle); err != nil || got != want {
		t.Fatalf("imported %q, %v", got, err)
	}
	if exec.CommandContext(t.Context(), "git", "-C", two.dir, "cat-file", "-e", want).Run() == nil {
		t.Error("the user's repository has the commit before it was brought there")
	}
	for range 2 { // it may be repeated
		err = two.bare(func(ctx context.Context, b *BareRepository) error {
			got, err := b.Bring(ctx, two.store.repository(), bareTask)
			if got != want {
				return fmt.Errorf("brought %q: %w", got, err)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if got := userGit(t, two.dir, "show", workRef(bareTask)+":b.txt"); got != "two" {
		t.Errorf("the file is %q", got)
	}
	if said := userGit(t, two.dir, "fsck", "--strict"); strings.Contains(said, "missing") {
		t.Error(said)
	}
	err = two.bare(func(ctx context.Context, b *BareRepository) error {
		info, err := os.Stat(b.dir)
		if err == nil && info.Mode().Perm() != 0o700 {
			err = fmt.Errorf("its mode is %v", info.Mode())
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

// What is too large is not bundled and not taken, and the error names the limit.
func TestABundleIsBounded(t *testing.T) {
	one, two := newMachines(t)
	one.work("b.txt", "two\n")
	bundle, _, err := one.store.repository().Bundle(t.Context(), bareTask, one.base(), MaxBundle)
	if err != nil {
		t.Fatal(err)
	}
	limit := len(bundle) - 1
	if _, _, err := one.store.repository().Bundle(t.Context(), bareTask, one.base(), limit); err == nil ||
		!strings.Contains(err.Error(), fmt.Sprint(limit)) {
		t.Errorf("a bundle above the limit: %v", err)
	}
	err = two.bare(func(ctx context.Context, b *BareRepository) error {
		_, err := b.Import(ctx, bytes.NewReader(bundle), int64(limit), bareTask)
		return err
	})
	if err == nil || !strings.Contains(err.Error(), fmt.Sprint(limit)) {
		t.Errorf("a bundle above the limit is taken: %v", err)
	}
	if _, _, err := one.store.repository().Bundle(t.Context(), bareTask, userGit(t, one.dir, "rev-parse",
		workRef(bareTask)), MaxBundle); !errors.Is(err, ErrNoWork) {
		t.Errorf("a branch without commits of its own: %v", err)
	}
}

// A bundle is refused if it is not the branch of the task, whole and sound. Nothing of it stays.
func TestAHostileBundleIsRefused(t *testing.T) {
	one, two := newMachines(t)
	tip := one.work("b.txt", "two\n")
	good, _, err := one.store.repository().Bundle(t.Context(), bareTask, one.base(), MaxBundle)
	if err != nil {
		t.Fatal(err)
	}
	made := func(args ...string) []byte {
		t.Helper()
		file := filepath.Join(t.TempDir(), "bundle")
		userGit(t, one.dir, append([]string{"bundle", "create", "--quiet", file}, args...)...)
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	// a tree with a name that leads out of the checkout
	blob := userGit(t, one.dir, "hash-object", "-w", "a.txt")
	raw := fmt.Sprintf("100644 ..\x00%s", unhex(t, blob))
	treeFile := filepath.Join(t.TempDir(), "tree")
	writeText(t, treeFile, raw)
	tree := userGit(t, one.dir, "hash-object", "-t", "tree", "--literally", "-w", treeFile)
	commit := userGit(t, one.dir, "commit-tree", tree, "-p", one.base(), "-m", "hostile")
	userGit(t, one.dir, "update-ref", workRef(bareTask), commit)
	dotdot := made(workRef(bareTask), "^main")
	userGit(t, one.dir, "update-ref", workRef(bareTask), tip)

	// a history that begins at a commit nobody else has
	userGit(t, one.dir, "checkout", "--quiet", "--detach", "main")
	writeText(t, filepath.Join(one.dir, "c.txt"), "three\n")
	userGit(t, one.dir, "add", "--all")
	userGit(t, one.dir, "commit", "--quiet", "--message", "unknown")
	unknown := userGit(t, one.dir, "rev-parse", "HEAD")
	userGit(t, one.dir, "commit", "--quiet", "--allow-empty", "--message", "next")
	userGit(t, one.dir, "update-ref", workRef(bareTask), "HEAD")
	baseless := made(workRef(bareTask), "^"+unknown)
	userGit(t, one.dir, "checkout", "--quiet", "main")
	userGit(t, one.dir, "update-ref", workRef(bareTask), tip)

	head, pack, _ := bytes.Cut(good, []byte("\n\n"))
	for name, c := range map[string]struct {
		bundle []byte
		want   string
	}{
		"nothing":        {nil, "not a bundle"},
		"no bundle":      {[]byte("#!/bin/sh\necho\n\n"), "not a bundle"},
		"another branch": {made("main"), `has the ref "refs/heads/main"`},
		"two branches":   {made("main", workRef(bareTask)), "more than one ref"},
		"cut off":        {good[:len(good)-30], "unpack the bundle"},
		"changed":        {append(bytes.Clone(good[:len(good)-30]), make([]byte, 30)...), "unpack the bundle"},
		"a name that is an option": {bytes.Replace(good, []byte(" refs/heads/"), []byte(" --exec=/x/"), 1),
			"has the ref"},
		"a tip that is not there": {fmt.Appendf(nil, "%s\n\n%s",
			bytes.Replace(head, []byte(tip), []byte(strings.Repeat("1", 40)), 1), pack), "does not lead"},
		"a path out of the checkout": {dotdot, "check the objects"},
		"an unknown base":            {baseless, ErrMissingBase.Error()},
		"a long line":                {bytes.Repeat([]byte("# v2 git bundle"), 1<<10), "not a bundle"},
		"a filter": {fmt.Appendf(nil, "# v3 git bundle\n@filter=blob:none\n%s %s\n\n", tip,
			workRef(bareTask)), "not expected"},
	} {
		t.Run(name, func(t *testing.T) {
			two.t = t
			if got, err := two.importBundle(c.bundle); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("imported %q: %v", got, err)
			}
			_ = two.bare(func(ctx context.Context, b *BareRepository) error {
				if tip := b.Tip(ctx, bareTask); tip != "" {
					t.Errorf("the branch is at %s", tip)
				}
				if left, _ := filepath.Glob(filepath.Join(b.dir, "incoming-*")); len(left) > 0 {
					t.Errorf("left behind: %v", left)
				}
				return nil
			})
		})
	}
	two.t = t
	if got, err := two.importBundle(good); err != nil || got != tip {
		t.Errorf("after all that the good bundle gives %q, %v", got, err)
	}
}

func unhex(t *testing.T, id string) string {
	t.Helper()
	var b []byte
	if _, err := fmt.Sscanf(id, "%x", &b); err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// An adapter that is killed at any step of an import leaves a repository that the next one uses.
func TestAnImportMayEndAnywhere(t *testing.T) {
	one, two := newMachines(t)
	tip := one.work("b.txt", "two\n")
	bundle, _, err := one.store.repository().Bundle(t.Context(), bareTask, one.base(), MaxBundle)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "bundle")
	if err := os.WriteFile(file, bundle, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, at := range []string{"initialized", "checked", "moved"} {
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestImportUntilKilled$")
		args := strings.Join([]string{at, two.store.StateDir, two.dir, file}, "\n")
		cmd.Env = append(os.Environ(), "TEST_IMPORT="+args)
		out, err := cmd.CombinedOutput()
		if exit := (*exec.ExitError)(nil); !errors.As(err, &exit) || exit.ExitCode() != -1 {
			t.Fatalf("it was not killed at %s: %v\n%s", at, err, out)
		}
	}
	if got, err := two.importBundle(bundle); err != nil || got != tip {
		t.Errorf("imported %q, %v", got, err)
	}
}

// The locks of a git that was killed are removed, wherever they are.
func TestLocksOfAKilledGitAreRemoved(t *testing.T) {
	one, two := newMachines(t)
	tip := one.work("b.txt", "two\n")
	bundle, _, err := one.store.repository().Bundle(t.Context(), bareTask, one.base(), MaxBundle)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := two.importBundle(bundle); err != nil {
		t.Fatal(err)
	}
	names := []string{"packed-refs", "config", "HEAD", "shallow", "objects/info/commit-graph", workRef(bareTask)}
	var git string
	_ = two.bare(func(_ context.Context, b *BareRepository) error {
		git = b.git()
		return nil
	})
	for _, name := range names {
		writeText(t, filepath.Join(git, name+".lock"), "")
	}
	err = two.bare(func(ctx context.Context, b *BareRepository) error {
		for _, name := range names {
			if _, err := os.Lstat(filepath.Join(git, name+".lock")); err == nil {
				t.Errorf("%s is still locked", name)
			}
		}
		if got := b.Tip(ctx, bareTask); got != tip {
			t.Errorf("the branch is at %q", got)
		}
		_, err := b.output(ctx, "update-ref", "-d", workRef(bareTask))
		return err
	})
	if err != nil {
		t.Errorf("a branch cannot be deleted: %v", err)
	}
}

// TestImportUntilKilled is the process that TestAnImportMayEndAnywhere kills.
func TestImportUntilKilled(t *testing.T) {
	args := strings.Split(os.Getenv("TEST_IMPORT"), "\n")
	if len(args) != 4 {
		t.Skip("it is a part of TestAnImportMayEndAnywhere")
	}
	m := newMachine(t, args[2])
	m.store.StateDir, m.store.OnStep = args[1], func(point string) {
		if point == args[0] {
			self, _ := os.FindProcess(os.Getpid())
			_ = self.Kill()
			select {}
		}
	}
	bundle, err := os.ReadFile(args[3])
	if err != nil {
		t.Fatal(err)
	}
	_, err = m.importBundle(bundle)
	t.Errorf("it came to its end: %v", err)
}

// What a repository is configured to do, replaces or grafts has no part in what is copied from it.
func TestTheWorkspaceConfiguresNothing(t *testing.T) {
	one, _ := newMachines(t)
	tip := one.work("b.txt", "two\n")
	mark := filepath.Join(t.TempDir(), "mark")
	program := "touch " + mark + "; false"
	for _, kv := range [][2]string{
		{"core.fsmonitor", program}, {"core.sshCommand", program}, {"core.gitProxy", program}, {"core.pager", program},
		{"core.alternateRefsCommand", program}, {"credential.helper", "!" + program},
		{"uploadpack.packObjectsHook", program}, {"core.hooksPath", filepath.Join(one.dir, "hooks")},
	} {
		userGit(t, one.dir, "config", kv[0], kv[1])
	}
	for _, hook := range []string{"reference-transaction", "pre-push", "post-update"} {
		writeText(t, filepath.Join(one.dir, "hooks", hook), "#!/bin/sh\n"+program+"\n")
		if err := os.Chmod(filepath.Join(one.dir, "hooks", hook), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	run := func(args ...string) string {
		safe := []string{"-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null"}
		return userGit(t, one.dir, append(safe, args...)...)
	}
	other := run("commit-tree", tip+"^{tree}", "-m", "replacement")
	run("replace", tip, other)
	writeText(t, filepath.Join(one.dir, ".git", "info", "grafts"), tip+"\n")
	err := one.bare(func(ctx context.Context, b *BareRepository) error {
		got, err := b.CopyBranch(ctx, one.store.repository(), bareTask)
		if err != nil || got != tip {
			return fmt.Errorf("copied %q: %w", got, err)
		}
		if parent, err := b.output(ctx, "rev-parse", tip+"^"); err != nil || parent != one.base() {
			return fmt.Errorf("its parent is %q: %w", parent, err)
		}
		config, err := b.output(ctx, "config", "--list")
		if err != nil || strings.Contains(config, program) {
			return fmt.Errorf("configured: %s %w", config, err)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(mark); err == nil {
		t.Error("a program of the workspace's configuration has run")
	}
}

// A link in place of the directory of branches leads nowhere.
func TestBringFollowsNoLink(t *testing.T) {
	one, two := newMachines(t)
	one.work("b.txt", "two\n")
	bundle, _, err := one.store.repository().Bundle(t.Context(), bareTask, one.base(), MaxBundle)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := two.importBundle(bundle); err != nil {
		t.Fatal(err)
	}
	outside := t.TempDir()
	if err := os.Symlink(outside, filepath.Join(two.dir, ".git", "refs", "heads", "picket")); err != nil {
		t.Fatal(err)
	}
	err = two.bare(func(ctx context.Context, b *BareRepository) error {
		_, err := b.Bring(ctx, two.store.repository(), bareTask)
		return err
	})
	if entries, _ := os.ReadDir(outside); err == nil || len(entries) > 0 {
		t.Errorf("outside there are %v, %v", entries, err)
	}
}
