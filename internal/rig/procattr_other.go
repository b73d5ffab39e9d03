//go:build !linux

package rig

import "syscall"

// dieWithTest changes nothing here: only Linux kills a process with the one
// that started it.
func dieWithTest() *syscall.SysProcAttr { return &syscall.SysProcAttr{} }
