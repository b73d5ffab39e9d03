//go:build !linux

package main

// ticketDir is a directory in the memory of the machine. This system has none.
func ticketDir() string { return "" }
