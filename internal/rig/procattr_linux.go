package rig

import "syscall"

// dieWithTest has the kernel kill a process when the test that started it
// dies.
func dieWithTest() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
