//go:build !unix

package adapter

import (
	"fmt"
	"os"
	"path/filepath"
)

// openBeneath opens a directory below root, which must not be a link.
func openBeneath(root, below string) (*os.File, error) {
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

// pathOf is the path of a directory: here, a descriptor has none.
func pathOf(dir *os.File) string { return dir.Name() }

// removeEmpty removes an empty directory in another one.
func removeEmpty(in *os.File, name string) error { return os.Remove(filepath.Join(in.Name(), name)) }
