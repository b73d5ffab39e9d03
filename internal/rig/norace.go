//go:build !race

package rig

// Race reports whether the race detector watches this program.
const Race = false
