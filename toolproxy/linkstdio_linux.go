package toolproxy

import "syscall"

// dieWithUs ends a command that outlives a proxy which was killed.
func dieWithUs(attr *syscall.SysProcAttr) { attr.Pdeathsig = syscall.SIGKILL }
