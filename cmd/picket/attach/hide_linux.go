package attach

import "golang.org/x/sys/unix"

// HideProcess keeps other processes of the same user, agents included, from
// reading the environment, the memory and the descriptors of this one in /proc.
// It also turns core dumps off. A program that this process executes
// does not inherit the protection.
func HideProcess() error { return unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0) }
