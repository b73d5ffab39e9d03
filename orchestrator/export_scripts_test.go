package orchestrator

import (
	"context"
	"crypto/sha1"
	"encoding/hex"
	"io/fs"
	"maps"
	"slices"
)

// ScriptNames lists every script that is compiled from the embedded files.
func ScriptNames() []string {
	scripts, err := newScripts(false)
	if err != nil {
		panic(err)
	}
	return slices.Sorted(maps.Keys(scripts))
}

// ScriptDigests tells the digest by which a store calls each script.
func ScriptDigests(s *Store) map[string]string {
	out := map[string]string{}
	for name, sc := range s.runner.scripts {
		out[name] = sc.sha
	}
	return out
}

// Sources tells the source of each script of a store.
func Sources(s *Store) map[string]string {
	out := map[string]string{}
	for name, sc := range s.runner.scripts {
		out[name] = sc.source
	}
	return out
}

// RewriteEach is Rewrite with the script's name.
func RewriteEach(s *Store, change func(name, source string) string) {
	for name, sc := range s.runner.scripts {
		sc.source = change(name, sc.source)
		sum := sha1.Sum([]byte(sc.source))
		sc.sha = hex.EncodeToString(sum[:])
	}
}

// ForgetWaiter forgets a waiter, as Acquire does when its client goes away.
func ForgetWaiter(ctx context.Context, e *Engine, waiter string) { e.forgetWaiter(ctx, waiter) }

// WithNeeds lists the parts that a script needs, in the order of the script.
func WithNeeds(body string, read func(name string) (string, error)) ([]string, error) {
	return withNeeds(nil, body, read)
}

// LuaFiles reads Lua files by their base names.
func LuaFiles(from fs.FS) (map[string]string, error) { return luaFiles(from) }
