package workspace

import (
	"errors"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// openNoFollow opens a directory below root. Neither root nor what is below it
// may hold a link.
func openNoFollow(root, below string) (*os.File, error) {
	if !filepath.IsLocal(below) {
		return nil, &os.PathError{Op: "open", Path: filepath.Join(root, below), Err: unix.EXDEV}
	}
	top, err := openat2NoFollow(unix.AT_FDCWD, root, traverseFlags, 0)
	if err == nil {
		defer unix.Close(top)
		var fd int
		if fd, err = openat2NoFollow(top, below, openDirFlags, unix.RESOLVE_BENEATH); err == nil {
			return os.NewFile(uintptr(fd), filepath.Join(root, below)), nil
		}
	}
	if errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.EPERM) { // an older kernel, or a filter of system calls
		return openNoFollowByStep(root, below)
	}
	return nil, &os.PathError{Op: "open", Path: filepath.Join(root, below), Err: err}
}

// traverseFlags open a directory to go through it, which needs no right to list it.
const traverseFlags = openDirFlags | unix.O_PATH

func openat2NoFollow(at int, path string, flags, more uint64) (fd int, err error) {
	how := &unix.OpenHow{Flags: flags, Resolve: unix.RESOLVE_NO_SYMLINKS | more}
	for range 1000 { // EAGAIN: something was renamed meanwhile
		if fd, err = unix.Openat2(at, path, how); !errors.Is(err, unix.EINTR) && !errors.Is(err, unix.EAGAIN) {
			break
		}
	}
	return fd, err
}
