// Package e2e holds the tests that run the picket binary as people do: real
// processes, real signals and a real redis-server, on Linux. It has no code of
// its own.
package e2e
