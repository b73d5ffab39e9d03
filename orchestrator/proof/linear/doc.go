// Package linear records histories of concurrent clients and checks that they
// are linearizable.
package linear
