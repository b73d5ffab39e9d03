package orchestrator

import (
	"context"
	"crypto/sha1"
	"encoding/hex"

	"github.com/picket-dev/picket"
)

// Rewrite changes the source of every script of a store, for tests that watch
// scripts at work or plant a bug.
func Rewrite(s *Store, change func(source string) string) {
	for _, sc := range s.gate.scripts {
		sc.source = change(sc.source)
		sum := sha1.Sum([]byte(sc.source))
		sc.sha = hex.EncodeToString(sum[:])
	}
}

// Worded reports whether a code that a script answers has a message and a
// remedy.
func Worded(code picket.Code) bool {
	_, ok := wording[code]
	return ok
}

// Found makes the record of a namespace that has lost it, as Open does.
func Found(ctx context.Context, e *Engine) error {
	_, err := e.run(ctx, "found", "store_again")
	return err
}
