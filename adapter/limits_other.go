//go:build !linux

package adapter

// machineMemory is not known here.
func machineMemory() int64 { return 0 }
