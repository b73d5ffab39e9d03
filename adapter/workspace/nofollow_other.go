//go:build !unix

package workspace

import (
	"fmt"
	"os"
	"path/filepath"
)

// openNoFollow opens a directory below root, which must not be a link.
func openNoFollow(root, below string) (*os.File, error) {
	path := filepath.Join(root, below)
	info, err := os.Lstat(path)
	if err != nil {
		return nil, err
	}
	if !info.IsDir() {
		return nil, fmt.Errorf("%s is not a directory", path)
	}
	return os.Open(path)
}

// removeEmptyDir removes an empty directory in another one.
func removeEmptyDir(in *os.File, name string) error { return os.Remove(filepath.Join(in.Name(), name)) }
