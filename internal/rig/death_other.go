//go:build !linux

package rig

import "syscall"

// killedWithTest changes nothing here: only Linux kills a process with the one
// that started it.
func killedWithTest() *syscall.SysProcAttr { return &syscall.SysProcAttr{} }
