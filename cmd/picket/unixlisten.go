package main

import (
	"context"
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/cmd/picket/cli/exit"
	"github.com/picket-dev/picket/internal/files"
	"github.com/picket-dev/picket/internal/unixsocket"
)

const (
	// socketLockPatience is how long another server is waited for that opens or removes a socket
	// in the same directory.
	socketLockPatience = 5 * time.Second
	// socketProbeTime is how long a server may take to accept the connection that shows it is alive.
	socketProbeTime = time.Second
)

// listenOnUnix listens on a socket that only this user can reach. It removes the socket of a
// server that has ended.
func listenOnUnix(path string) (net.Listener, error) {
	dir := filepath.Dir(path)
	if err := ensurePrivateDir(dir); err != nil {
		return nil, err
	}
	unlock, err := lockSocketDir(dir)
	if err != nil {
		return nil, exit.Usagef("cannot listen on %s: %v", path, err)
	}
	defer unlock()
	if err := removeStaleSocket(path); err != nil {
		return nil, err
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return nil, exit.Usagef("cannot listen on %s: %v", path, err)
	}
	l.SetUnlinkOnClose(false)
	// The directory keeps others out until the mode is set.
	own, err := os.Lstat(path)
	if err == nil {
		err = os.Chmod(path, 0o600)
	}
	if err != nil {
		l.Close()
		return nil, exit.Usagef("cannot listen on %s: %v", path, err)
	}
	return &unixListener{UnixListener: l, path: path, own: own}, nil
}

// ensurePrivateDir makes a directory for sockets, or checks that no other user can enter it.
func ensurePrivateDir(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return exit.Usagef("the directory of the socket cannot be used: %v", err)
	}
	info, err := os.Stat(dir)
	if err != nil {
		return exit.Usagef("the directory of the socket cannot be used: %v", err)
	}
	if stat, ok := info.Sys().(*syscall.Stat_t); ok && int(stat.Uid) != os.Geteuid() {
		return picket.Refuse(exit.CodeUsage, "Put the socket into a directory of your own, which is made if it is missing.",
			"the directory %s belongs to another user", dir)
	}
	if info.Mode().Perm()&0o077 != 0 {
		return picket.Refuse(exit.CodeUsage,
			"Choose a path in a directory of your own, such as unix:$HOME/.picket/api.sock. It is made if it is missing.",
			"the directory %s can be entered by others", dir)
	}
	return nil
}

// lockSocketDir keeps other servers from opening and removing sockets in a directory.
func lockSocketDir(dir string) (unlock func(), err error) {
	lock, err := files.LockDir(context.Background(), dir, socketLockPatience)
	if err != nil {
		return nil, err
	}
	return func() { lock.Close() }, nil
}

// removeStaleSocket removes a socket on which no server listens. Anything else at the path is refused.
func removeStaleSocket(path string) error {
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return exit.Usagef("cannot listen on %s: %v", path, err)
	}
	if info.Mode().Type() != fs.ModeSocket {
		return picket.Refuse(exit.CodeUsage, "Choose another path.", "%s is there already, and is not a socket", path)
	}
	conn, err := net.DialTimeout("unix", path, socketProbeTime)
	if err == nil {
		conn.Close()
	}
	if !errors.Is(err, syscall.ECONNREFUSED) {
		return picket.Refuse(picket.CodeStateConflict, "Use that server, stop it, or choose another path.",
			"a server listens on %s already", unixsocket.URL(path))
	}
	if err := os.Remove(path); err != nil {
		return exit.Usagef("the socket of a server that has ended cannot be removed: %v", err)
	}
	return nil
}

// unixListener removes its socket when it is closed, but not a socket that took its place.
type unixListener struct {
	*net.UnixListener
	path string
	own  fs.FileInfo
}

// Close ends listening and removes the socket.
func (l *unixListener) Close() error {
	if unlock, err := lockSocketDir(filepath.Dir(l.path)); err == nil {
		defer unlock()
	}
	if there, err := os.Lstat(l.path); err == nil && os.SameFile(l.own, there) {
		_ = os.Remove(l.path)
	}
	return l.UnixListener.Close()
}
