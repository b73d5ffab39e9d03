//go:build !(linux || darwin || freebsd || netbsd || openbsd || dragonfly)

package adapter

const canExec = false
