package mcp

import "syscall"

// killWithParent ends a command that outlives a proxy which was killed.
func killWithParent(attr *syscall.SysProcAttr) { attr.Pdeathsig = syscall.SIGKILL }
