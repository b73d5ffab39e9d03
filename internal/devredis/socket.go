package devredis

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// maxSocketPath is the longest path that both Linux (108 bytes with the final
// zero) and the BSDs (104) accept for a unix socket.
const maxSocketPath = 103

// socketRecord names the file in the data directory that remembers a socket
// placed elsewhere because the directory's own path is too long.
const socketRecord = "redis.socket"

// socketPath is where the store of dir listens: in dir if the path fits, else in
// a private short directory that is remembered, so that the next start looks at
// the same place.
func socketPath(dir string) (string, error) {
	own := filepath.Join(dir, "redis.sock")
	if len(own) <= maxSocketPath {
		return own, nil
	}
	record := filepath.Join(dir, socketRecord)
	if b, err := os.ReadFile(record); err == nil {
		path := strings.TrimSpace(string(b))
		if isPrivateDir(filepath.Dir(path)) && len(path) <= maxSocketPath {
			return path, nil
		}
	}
	short, err := shortDir()
	if err != nil {
		return "", err
	}
	path := filepath.Join(short, "redis.sock")
	if err := os.WriteFile(record, []byte(path+"\n"), 0o600); err != nil {
		return "", fmt.Errorf("remember the socket: %w", err)
	}
	return path, nil
}

func shortDir() (string, error) {
	var errs []error
	for _, base := range []string{os.Getenv("XDG_RUNTIME_DIR"), "/tmp"} {
		if base == "" || len(base) > 60 {
			continue
		}
		dir, err := os.MkdirTemp(base, "picket-") // 0700 by contract
		if err == nil {
			return dir, nil
		}
		errs = append(errs, err)
	}
	return "", fmt.Errorf("make a short directory for the socket: %w", errors.Join(errs...))
}

// isPrivateDir reports whether dir is a directory of this user that nobody else may enter.
// Otherwise a record could name a directory that somebody else has made since.
func isPrivateDir(dir string) bool {
	info, err := os.Lstat(dir)
	if err != nil || !info.IsDir() || info.Mode().Perm() != 0o700 {
		return false
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	return ok && int(st.Uid) == os.Geteuid()
}

// removeSocket removes a socket and the short directory it was placed in.
func removeSocket(dir, socket string) {
	_ = os.Remove(socket)
	if filepath.Dir(socket) != filepath.Clean(dir) {
		_ = os.Remove(filepath.Dir(socket))
		_ = os.Remove(filepath.Join(dir, socketRecord))
	}
}
