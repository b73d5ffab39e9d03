//go:build unix

package workspace

import (
	"errors"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

const openDirFlags = unix.O_RDONLY | unix.O_DIRECTORY | unix.O_NOFOLLOW | unix.O_CLOEXEC

// openNoFollowByStep opens a directory below root, one component after the other, and
// follows no link.
func openNoFollowByStep(root, below string) (*os.File, error) {
	path := filepath.Join(root, below)
	names := strings.FieldsFunc(path, func(r rune) bool { return r == '/' })
	fd, err := openStep(unix.AT_FDCWD, "/", traverseFlags)
	for i := 0; i < len(names) && err == nil; i++ {
		above, flags := fd, traverseFlags
		if i == len(names)-1 {
			flags = openDirFlags
		}
		fd, err = openStep(above, names[i], flags)
		unix.Close(above)
	}
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: path, Err: err}
	}
	return os.NewFile(uintptr(fd), path), nil
}

func openStep(at int, name string, flags int) (fd int, err error) {
	for {
		if fd, err = unix.Openat(at, name, flags, 0); !errors.Is(err, unix.EINTR) {
			return fd, err
		}
	}
}

// removeEmptyDir removes an empty directory in another one, and nothing else.
func removeEmptyDir(in *os.File, name string) error {
	for {
		if err := unix.Unlinkat(int(in.Fd()), name, unix.AT_REMOVEDIR); !errors.Is(err, unix.EINTR) {
			return os.NewSyscallError("rmdir", err)
		}
	}
}
