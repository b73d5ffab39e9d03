//go:build unix && !linux

package workspace

import (
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

const traverseFlags = openDirFlags

// openNoFollow opens a directory below root. Neither root nor what is below it
// may hold a link.
func openNoFollow(root, below string) (*os.File, error) {
	if !filepath.IsLocal(below) {
		return nil, &os.PathError{Op: "open", Path: filepath.Join(root, below), Err: unix.EXDEV}
	}
	return openNoFollowByStep(root, below)
}
