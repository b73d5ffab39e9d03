//go:build unix

package mirror

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

// A pipe that takes the place of a file while it is opened does not stop a pass.
func TestAPipeDoesNotStopAPass(t *testing.T) {
	where := t.TempDir()
	at, pipe, file := filepath.Join(where, "x"), filepath.Join(where, "pipe"), filepath.Join(where, "file")
	plant := func() error {
		if err := os.WriteFile(file, []byte("text"), 0o600); err != nil {
			return err
		}
		return os.Rename(file, at)
	}
	if err := plant(); err != nil {
		t.Fatal(err)
	}
	root, err := os.OpenRoot(where)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	planted, read := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(read)
		for {
			if b, err := readFile(root, "x", 10); err == nil && string(b) != "text" {
				t.Errorf("a pipe is read as %q", b)
			}
			select {
			case <-planted:
				return
			default:
			}
		}
	}()
	for range 400 {
		if err := errors.Join(syscall.Mkfifo(pipe, 0o600), os.Rename(pipe, at), plant()); err != nil {
			t.Fatal(err)
		}
	}
	close(planted)
	select {
	case <-read:
	case <-time.After(10 * time.Second):
		t.Fatal("a pass waits for a pipe")
	}
}
