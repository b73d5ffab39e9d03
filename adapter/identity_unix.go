//go:build unix

package adapter

import (
	"io/fs"
	"syscall"
)

func identityOf(info fs.FileInfo) *identity {
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return nil
	}
	return &identity{Device: uint64(stat.Dev), Inode: uint64(stat.Ino)}
}
