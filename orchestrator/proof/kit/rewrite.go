package kit

import (
	"maps"
	"slices"
	"sync"

	"github.com/picket-dev/picket/orchestrator"
	"github.com/picket-dev/picket/orchestrator/store"
)

// Sources returns the source of each script of a store.
func Sources(s *orchestrator.Store) map[string]string { return s.Connection().Sources() }

// AllSources returns the source of each script for a real store.
func AllSources() map[string]string { return SourcesOf(false) }

// SourcesOf returns what every script is composed to.
func SourcesOf(memory bool) map[string]string {
	sources, err := store.Scripts(memory)
	if err != nil {
		panic(err)
	}
	return sources
}

// ScriptNames lists every script.
func ScriptNames() []string { return slices.Sorted(maps.Keys(AllSources())) }

// ScriptDigests returns the digest by which a store calls each script.
func ScriptDigests(s *orchestrator.Store) map[string]string { return s.Connection().Digests() }

// Rewrite changes the source of every script of a store, for tests that watch
// scripts at work or plant a bug.
func Rewrite(s *orchestrator.Store, change func(source string) string) {
	s.Connection().RewriteScripts(func(_, source string) string { return change(source) })
}

// RewriteEach is Rewrite with the script's name.
func RewriteEach(s *orchestrator.Store, change func(name, source string) string) {
	s.Connection().RewriteScripts(change)
}

// RewriteCache remembers what sources were changed to: the same change on many
// stores is made once.
type RewriteCache struct{ of sync.Map }

// RewriteAs is Rewrite for a change that was made before on another store.
func RewriteAs(s *orchestrator.Store, was *RewriteCache, change func(source string) string) {
	Rewrite(s, func(source string) string {
		known, ok := was.of.Load(source)
		if !ok {
			known, _ = was.of.LoadOrStore(source, change(source))
		}
		return known.(string)
	})
}
