package mirror

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/orchestrator/heartbeat"
)

// Links are refused wherever they are, and nothing is written through them.
func TestLinksAreRefused(t *testing.T) {
	outside := t.TempDir()
	secret := filepath.Join(outside, policyFile)
	for name, plant := range map[string]func(b *bench) error{
		"file": func(b *bench) error {
			b.edit("ann", "")
			b.unlink("ann")
			return os.Symlink(secret, b.path("ann"))
		},
		"directory": func(b *bench) error { return os.Symlink(outside, filepath.Join(b.dir, "ann")) },
		"no file":   func(b *bench) error { return os.MkdirAll(b.path("ann"), 0o700) },
		"loop":      func(b *bench) error { return os.Symlink("ann", filepath.Join(b.dir, "ann")) },
		"inside": func(b *bench) error {
			b.edit("bob", "of bob\n")
			return os.Symlink("bob", filepath.Join(b.dir, "ann"))
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.t = t
			if err := os.WriteFile(secret, []byte("secret\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			m := b.process("a")
			if err := plant(b); err != nil {
				t.Fatal(err)
			}
			for range 2 {
				b.pass(m)
				f := b.store.files[0]
				if f.Name != "ann" || f.State != StateRefused || f.Body != "" || f.Digest != "" ||
					f.Diagnostics[0].Code != heartbeat.CodePathEscape || strings.Contains(fmt.Sprint(f), outside) {
					t.Errorf("published was %+v", f)
				}
				b.store.put("ann", "one\n", "")
			}
			if read, err := os.ReadFile(secret); err != nil || string(read) != "secret\n" {
				t.Errorf("the file outside is %q, %v", read, err)
			}
		})
	}
}

// A link in the place of the new file or of the manifest is not followed.
func TestLinksInThePlaceOfOwnFiles(t *testing.T) {
	b := newBench(t)
	m := b.process("a")
	b.edit("ann", "x")
	b.unlink("ann")
	outside := filepath.Join(t.TempDir(), "target")
	for _, link := range []string{filepath.Join(b.dir, "ann", newPolicyFile), filepath.Join(b.dir, newManifestFile)} {
		if err := os.Symlink(outside, link); err != nil {
			t.Fatal(err)
		}
	}
	b.store.put("ann", "one\n", "")
	b.pass(m)
	b.want("one\n", "")
	if _, err := os.Stat(outside); !os.IsNotExist(err) {
		t.Errorf("a file was written through a link: %v", err)
	}
	if err := os.Remove(filepath.Join(b.dir, manifestFile)); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(outside, filepath.Join(b.dir, manifestFile)); err != nil {
		t.Fatal(err)
	}
	if err := m.Pass(t.Context()); !errors.Is(err, errLink) {
		t.Errorf("with a link for a manifest: %v", err)
	}
}

// A directory that is a link is refused, and so is a file in its place.
func TestTheDirectoryIsNoLink(t *testing.T) {
	link, file := filepath.Join(t.TempDir(), "link"), filepath.Join(t.TempDir(), "file")
	if err := errors.Join(os.Symlink(t.TempDir(), link), os.WriteFile(file, nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	for _, where := range []string{link, file} {
		_, err := New(Config{Dir: where, Store: newFakeStore()})
		if picket.CodeOf(err) != picket.CodeValidation {
			t.Errorf("%s: %v", where, err)
		}
	}
}

// Names of the store that are not names here are refused, and others in the directory are left alone.
func TestNamesAreChecked(t *testing.T) {
	b := newBench(t)
	m := b.process("a")
	b.store.put("../ann", "one\n", "")
	b.edit(".hidden", "mine\n")
	b.pass(m)
	if len(b.store.files) != 1 || b.store.files[0].State != StateRefused {
		t.Errorf("published was %+v", b.store.files)
	}
	b.want(Absent, "")
}

// A file that cannot be written does not keep the others from being mirrored. A directory that cannot be
// used is left to another process.
func TestWhatCannotBeWritten(t *testing.T) {
	b := newBench(t)
	m := b.process("a")
	b.edit("bob", "")
	b.unlink("bob")
	if err := os.MkdirAll(filepath.Join(b.dir, "bob", newPolicyFile, "full"), 0o700); err != nil {
		t.Fatal(err)
	}
	b.store.put("ann", "one\n", "")
	b.store.put("bob", "one\n", "")
	b.edit("eve", "mine\n")
	if err := m.Pass(t.Context()); err == nil || b.store.holder != "a" {
		t.Errorf("%v, %q holds the directory", err, b.store.holder)
	}
	b.want("one\n", "")
	if len(b.store.files) != 1 || b.store.files[0].Name != "eve" {
		t.Errorf("published was %+v", b.store.files)
	}
	if err := errors.Join(os.RemoveAll(b.dir), os.WriteFile(b.dir, nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	if err := m.Pass(t.Context()); err == nil || b.store.holder != "" {
		t.Errorf("%v, %q holds the directory", err, b.store.holder)
	}
}
