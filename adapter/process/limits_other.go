//go:build !linux

package process

// machineMemory is not known here.
func machineMemory() int64 { return 0 }
