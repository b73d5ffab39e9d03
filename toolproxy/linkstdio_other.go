//go:build !linux

package toolproxy

import "syscall"

// dieWithUs has no counterpart here: a command sees its input end when the
// proxy is killed.
func dieWithUs(*syscall.SysProcAttr) {}
