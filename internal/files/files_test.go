package files

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"
)

func TestReplace(t *testing.T) {
	unwritable := func() {}
	for name, c := range map[string]struct {
		do   func(path string) error
		want string // "" is an error
	}{
		"Replace":          {func(p string) error { return Replace(p, []byte("x")) }, "x"},
		"WriteJSON":        {func(p string) error { return WriteJSON(p, []string{"x"}) }, "[\n  \"x\"\n]\n"},
		"WritePrivate":     {func(p string) error { return WritePrivate(p, []byte("x")) }, "x"},
		"WritePrivateJSON": {func(p string) error { return WritePrivateJSON(p, []string{"x"}) }, "[\n  \"x\"\n]\n"},
		"no JSON":          {func(p string) error { return WriteJSON(p, unwritable) }, ""},
	} {
		dir := t.TempDir()
		path := filepath.Join(dir, "file")
		if err := os.WriteFile(path, []byte("old, and longer"), 0o644); err != nil {
			t.Fatal(err)
		}
		err := c.do(path)
		got, _ := os.ReadFile(path)
		if c.want == "" && (err == nil || string(got) != "old, and longer") {
			t.Errorf("%s: %v; the file holds %q", name, err, got)
		}
		if c.want != "" && (err != nil || string(got) != c.want) {
			t.Errorf("%s: %v; the file holds %q", name, err, got)
		}
		info, err := os.Stat(path)
		if err != nil || c.want != "" && info.Mode().Perm() != 0o600 && os.PathSeparator == '/' {
			t.Errorf("%s: the file has the mode %v, %v", name, info.Mode(), err)
		}
		if entries, _ := os.ReadDir(dir); len(entries) != 1 {
			t.Errorf("%s: %d files are left, want 1", name, len(entries))
		}
	}
}

func TestDirectoriesAreMadeOnlyByWritePrivate(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a", "b", "file")
	if err := Replace(path, nil); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("Replace in a missing directory: %v", err)
	}
	if err := WritePrivate(path, nil); err != nil {
		t.Error(err)
	}
	if info, err := os.Stat(filepath.Dir(path)); err != nil || info.Mode().Perm() != 0o700 && os.PathSeparator == '/' {
		t.Errorf("the directory has the mode %v, %v", info.Mode(), err)
	}
}

// A link that somebody has put in the place of the file is replaced, not followed.
func TestReplaceFollowsNoLink(t *testing.T) {
	dir := t.TempDir()
	outside, path := filepath.Join(dir, "outside"), filepath.Join(dir, "file")
	if err := errors.Join(os.WriteFile(outside, []byte("kept"), 0o600), os.Symlink(outside, path)); err != nil {
		t.Skip(err)
	}
	if err := Replace(path, []byte("new")); err != nil {
		t.Fatal(err)
	}
	if b, _ := os.ReadFile(outside); string(b) != "kept" {
		t.Errorf("the other file holds %q", b)
	}
}

func TestReplaceThatEndsEarly(t *testing.T) {
	planted := errors.New("planted")
	var steps []string
	for _, fails := range []string{"write", "fsync", "rename", "dirsync"} {
		dir := t.TempDir()
		path := filepath.Join(dir, "file")
		if err := Replace(path, []byte("old")); err != nil {
			t.Fatal(err)
		}
		steps = nil
		err := ReplaceInSteps(path, []byte("new"), func(step string) error {
			if steps = append(steps, step); step == fails {
				return planted
			}
			return nil
		})
		want := "old"
		if fails == "dirsync" {
			want = "new"
		}
		if b, _ := os.ReadFile(path); !errors.Is(err, planted) || string(b) != want {
			t.Errorf("%s: %v; the file holds %q, want %q", fails, err, b, want)
		}
		if entries, _ := os.ReadDir(dir); len(entries) != 1 {
			t.Errorf("%s: %d files are left, want 1", fails, len(entries))
		}
	}
	if want := []string{"write", "fsync", "rename", "dirsync"}; !slices.Equal(steps, want) {
		t.Errorf("the steps are %v, want %v", steps, want)
	}
}

func TestLock(t *testing.T) {
	if !CanLock {
		t.Skip("this system has no locks")
	}
	for name, lock := range map[string]func(context.Context, string, time.Duration) (*os.File, error){
		"file": LockFile, "directory": LockDir,
	} {
		path := filepath.Join(t.TempDir(), "it")
		if name == "directory" {
			if _, err := lock(t.Context(), path, 0); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("a missing directory: %v", err)
			}
			if err := os.Mkdir(path, 0o700); err != nil {
				t.Fatal(err)
			}
		}
		first, err := lock(t.Context(), path, 0)
		if err != nil {
			t.Fatal(name, err)
		}
		if _, err := lock(t.Context(), path, 0); !errors.Is(err, ErrLocked) {
			t.Errorf("%s: locked twice: %v", name, err)
		}
		if _, err := lock(t.Context(), path, 20*time.Millisecond); !errors.Is(err, ErrLocked) {
			t.Errorf("%s: waited without effect: %v", name, err)
		}
		ended, end := context.WithCancel(t.Context())
		end()
		if _, err := lock(ended, path, time.Hour); !errors.Is(err, ErrLocked) {
			t.Errorf("%s: the wait was ended: %v", name, err)
		}
		waited := make(chan error)
		go func() {
			second, err := lock(t.Context(), path, time.Minute)
			if err == nil {
				err = second.Close()
			}
			waited <- err
		}()
		first.Close()
		if err := <-waited; err != nil {
			t.Errorf("%s: after the first was closed: %v", name, err)
		}
	}
}

func TestTruncate(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	f, err := LockFile(t.Context(), path, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	_, err = f.WriteString("abc")
	if err = errors.Join(err, Truncate(f, 1)); err != nil {
		t.Fatal(err)
	}
	if b, _ := os.ReadFile(path); string(b) != "a" {
		t.Errorf("the file holds %q", b)
	}
}

func TestRemove(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := Remove(path); err != nil {
		t.Fatal(err)
	}
	if err := Remove(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("removed twice: %v", err)
	}
}
