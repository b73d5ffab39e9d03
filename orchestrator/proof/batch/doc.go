// Package batch holds the tests of calls that share one call of Redis: each has the
// answer and the effect that it has alone, whatever becomes of the others.
package batch
