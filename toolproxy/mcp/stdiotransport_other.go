//go:build !linux

package mcp

import "syscall"

// killWithParent has no counterpart here: a command sees its input end when the
// proxy is killed.
func killWithParent(*syscall.SysProcAttr) {}
