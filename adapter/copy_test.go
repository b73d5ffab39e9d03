package adapter_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/adapter"
	"github.com/picket-dev/picket/adapter/adaptertest"
	"github.com/picket-dev/picket/adapter/workspace"
	"github.com/picket-dev/picket/internal/rig/proctest"
)

func TestACopyOfADirectory(t *testing.T) {
	dir, outside := t.TempDir(), t.TempDir()
	write(t, filepath.Join(outside, "secret"), "hush\n")
	write(t, filepath.Join(dir, "a", "b.txt"), "text\n")
	write(t, filepath.Join(dir, ".git", "HEAD"), "ref: x\n")
	for link, to := range map[string]string{
		"out":    outside,
		"secret": filepath.Join(outside, "secret"),
		"up":     "..",
		"in":     "a/b.txt",
	} {
		if err := os.Symlink(to, filepath.Join(dir, link)); err != nil {
			t.Fatal(err)
		}
	}
	if err := syscall.Mkfifo(filepath.Join(dir, "pipe"), 0o600); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "tool"), "#!/bin/sh\n")
	if err := errors.Join(os.Chmod(filepath.Join(dir, "tool"), 0o755),
		os.Chmod(filepath.Join(dir, "a"), 0o500)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.Chmod(filepath.Join(dir, "a"), 0o700) })
	text, _, res := outputOf(t,
		[]string{"sh", "-c",
			`find . -path ./.picket -prune -o -print | sort; readlink out secret up in; cat in; test -x tool && stat -c %a a; chmod 700 a; rm -rf a secret out tool`},
		adaptertest.Task{}, func(c *adapter.Config) { c.Workspace, c.Dir = workspace.Copy, dir })
	want := strings.Join([]string{".", "./.git", "./.git/HEAD", "./a", "./a/b.txt", "./in", "./out", "./secret",
		"./tool", "./up",
		outside, filepath.Join(outside, "secret"), "..", "a/b.txt", "text", "500", ""}, "\n")
	if text != want {
		t.Errorf("the copy is\n%s\nwant\n%s", text, want)
	}
	for _, file := range []string{filepath.Join(dir, "a", "b.txt"), filepath.Join(outside, "secret"),
		filepath.Join(dir, "tool")} {
		if !exists(file) {
			t.Errorf("%s is gone", file)
		}
	}
	if res.Workspace == dir {
		t.Error("it worked in the directory itself")
	}
}

// An agent cannot make the next run write outside of its workspace.
func TestAgentFilesStayInTheWorkspace(t *testing.T) {
	for _, trap := range []string{
		`rm -r .picket; ln -s "$OUT" .picket`,
		`rm .picket/task.json; ln -s "$OUT/file" .picket/task.json`,
		`rm -r .picket; echo x > .picket`,
		`rm .picket/task.json; mkdir -p .picket/task.json/deep`,
	} {
		out := t.TempDir()
		write(t, filepath.Join(out, "file"), "mine\n")
		s, state := adaptertest.Start(t), t.TempDir()
		lease := s.Grant(adaptertest.Task{OnExit: picket.OnExitComplete})
		for i, script := range []string{strings.ReplaceAll(trap, "$OUT", out) + "; touch work",
			`test -f .picket/task.json && test ! -L .picket && echo good`} {
			if i > 0 {
				lease = s.Supersede(lease.TaskID)
			}
			a := newAdapter(t, s, []string{"sh", "-c", script}, func(c *adapter.Config) { c.StateDir = state })
			if _, err := a.RunLease(proctest.Patience(t), lease); err != nil {
				t.Fatalf("%s: %v", trap, err)
			}
		}
		files, _ := os.ReadDir(out)
		text, _ := os.ReadFile(filepath.Join(out, "file"))
		if v := s.View(lease.TaskID); string(v.Output) != `"good\n"` || string(text) != "mine\n" || len(files) != 1 {
			t.Errorf("after %s: %s, outside is %q in %v", trap, v.Output, text, files)
		}
	}
}

// A directory that holds our own state is copied without it.
func TestACopyLeavesOutOurState(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "one"), "12345")
	write(t, filepath.Join(dir, "two"), "12345")
	s := adaptertest.Start(t)
	lease := s.Grant(adaptertest.Task{OnExit: picket.OnExitComplete})
	a := newAdapter(t, s, []string{"ls"}, func(c *adapter.Config) {
		c.Workspace, c.Dir, c.StateDir = workspace.Copy, dir, filepath.Join(dir, "state")
	})
	if _, err := a.RunLease(proctest.Patience(t), lease); err != nil {
		t.Fatal(err)
	}
	if v := s.View(lease.TaskID); string(v.Output) != `"one\ntwo\n"` {
		t.Errorf("the copy holds %s", v.Output)
	}
}
