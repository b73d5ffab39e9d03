//go:build unix

package workspace

import (
	"io/fs"
	"syscall"
)

func identityOf(info fs.FileInfo) *dirIdentity {
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return nil
	}
	return &dirIdentity{Device: uint64(stat.Dev), Inode: uint64(stat.Ino)}
}
