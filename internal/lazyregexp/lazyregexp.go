// Package lazyregexp compiles regular expressions when they are first used.
// A program has many of them, and most of its runs use only a few: compiled at
// the start they would delay every command and every agent.
package lazyregexp

import (
	"os"
	"regexp"
	"strings"
	"sync"
)

// New returns a function that returns the compiled expression. The first call
// compiles it, and panics if it is not valid. Calls at the same time are safe.
// In the program of a test New compiles it at once, so that every test of a
// package finds an expression that is not valid.
func New(expr string) func() *regexp.Regexp {
	compiled := sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(expr) })
	if strings.HasSuffix(os.Args[0], ".test") {
		compiled()
	}
	return compiled
}
