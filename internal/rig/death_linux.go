package rig

import "syscall"

// killedWithTest has the kernel kill a process when the test that started it
// dies.
func killedWithTest() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
