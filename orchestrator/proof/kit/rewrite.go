package kit

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/picket-dev/picket/internal/rig"
	"github.com/picket-dev/picket/orchestrator"
	"github.com/picket-dev/picket/orchestrator/lua"
	"github.com/picket-dev/picket/orchestrator/store"
)

// Builtin returns the program of this build.
func Builtin(t *testing.T) *lua.Program {
	t.Helper()
	p, err := builtin()
	OK(t, err)
	return p
}

var builtin = sync.OnceValues(func() (*lua.Program, error) {
	texts, err := lua.Read(lua.Files)
	if err != nil {
		return nil, err
	}
	return lua.NewProgram(texts)
})

// ScriptNames lists every verb.
func ScriptNames() []string {
	p, err := builtin()
	if err != nil {
		panic(err)
	}
	return slices.Sorted(maps.Keys(p.Verbs))
}

// Rewrite changes the text of every Lua file of a store, for tests that watch
// verbs at work or plant a bug. It panics if the files do not fit together then.
func Rewrite(s *orchestrator.Store, change func(text string) string) {
	RewriteEach(s, func(_, text string) string { return change(text) })
}

// RewriteEach is Rewrite with the base name of the file.
func RewriteEach(s *orchestrator.Store, change func(name, text string) string) {
	p, err := s.Connection().Program().Change(change)
	if err != nil {
		panic(fmt.Sprintf("rewrite Lua: %v", err))
	}
	s.Connection().UseProgram(p)
}

// RewriteCache remembers what programs were changed to: the same change on many
// stores is made once.
type RewriteCache struct {
	mu sync.Mutex
	of map[*lua.Program]*lua.Program
}

// RewriteAs is Rewrite for a change that was made before on another store.
func RewriteAs(s *orchestrator.Store, was *RewriteCache, change func(text string) string) {
	was.mu.Lock()
	defer was.mu.Unlock()
	from := s.Connection().Program()
	if was.of[from] == nil {
		Rewrite(s, change)
		if was.of == nil {
			was.of = map[*lua.Program]*lua.Program{}
		}
		was.of[from] = s.Connection().Program()
	}
	s.Connection().UseProgram(was.of[from])
}

// MatchCall matches commands by which a store calls a verb in the namespace of the tests, alone or in
// a batch.
func MatchCall(s *orchestrator.Store, memory bool, verb string) rig.Match {
	p := s.Connection().Program()
	if memory {
		return rig.MatchWords("EVALSHA", p.Verbs[verb].Digest(), "1", Meta)
	}
	l := p.Library()
	alone := rig.MatchWords("FCALL", l.Function(verb), "1", Meta)
	return func(command []string) bool {
		return alone(command) || slices.Contains(verbsOfBatch(l, command), verb)
	}
}

// verbsOfBatch lists the verbs that a command calls in a batch.
func verbsOfBatch(l *lua.Library, command []string) (verbs []string) {
	for _, allowOOM := range []bool{false, true} {
		if !rig.MatchWords("FCALL", l.Batch(allowOOM), "1", Meta)(command) {
			continue
		}
		for at := 4; at+1 < len(command); {
			n, err := strconv.Atoi(command[at+1])
			if err != nil {
				return nil
			}
			verbs = append(verbs, command[at])
			at += 2 + n
		}
	}
	return verbs
}

// LoadLibrary makes a Redis server know the library of a store, if it does not know it.
func LoadLibrary(ctx context.Context, c redis.Cmdable, s *orchestrator.Store) error {
	l := s.Connection().Program().Library()
	known, err := c.FunctionList(ctx, redis.FunctionListQuery{LibraryNamePattern: l.Name}).Result()
	if err != nil || len(known) > 0 {
		return err
	}
	return c.FunctionLoadReplace(ctx, l.Loaded(FastClock()())).Err()
}

// CallRaw calls a verb of a store past its engine.
func CallRaw(ctx context.Context, c redis.UniversalClient, s *orchestrator.Store, on rig.Store, verb string,
	args ...any) error {
	if on.Memory {
		return c.Eval(ctx, s.Connection().Program().Verbs[verb].Script(), []string{Meta}, args...).Err()
	}
	if err := LoadLibrary(ctx, c, s); err != nil {
		return err
	}
	return c.FCall(ctx, s.Connection().Program().Library().Function(verb), []string{Meta}, args...).Err()
}

// CallBatch calls several verbs by the function of a library that does so. It returns two values for each verb: 1 if it
// has refused or broken, else 0, and its answer.
func CallBatch(ctx context.Context, c redis.UniversalClient, function string, args ...any) ([]any, error) {
	got, err := c.FCall(ctx, function, []string{Meta}, args...).Result()
	if err != nil {
		return nil, err
	}
	return store.UnpackReplies(got)
}
