package replies

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/picket-dev/picket/internal/rig"
	"github.com/picket-dev/picket/orchestrator/proof/branches"
	"github.com/picket-dev/picket/orchestrator/proof/calls"
	"github.com/picket-dev/picket/orchestrator/proof/kit"
	"github.com/picket-dev/picket/orchestrator/store"
)

// The server itself refuses the writes of a verb whose flags announce that it makes none.
// readOnly gives this flag to the verbs for which reads is true. The writing of store time is the one write
// that every verb makes, so it is allowed to fail.
func readOnly(reads func(verb string) bool) func(name, text string) string {
	return func(name, text string) string {
		if name == "_clock" {
			return timeWrites.ReplaceAllString(text, "redis.pcall($1) -- writes time")
		}
		if !reads(name) {
			return text
		}
		return "-- flags: no-writes\n" + strings.TrimPrefix(text, "-- flags: allow-oom\n")
	}
}

// timeWrites are the calls that write store time.
var timeWrites = regexp.MustCompile(`(?m)redis_call\((.*)\) -- writes time$`)

// The scripts listed as readers write nothing on any of their branches. The calls take
// every branch, while the server refuses every write of these scripts.
func TestReadersOnlyReadReal(t *testing.T) {
	f := kit.OpenFixture(t, rig.Real(t))
	defer f.Close()
	kit.RewriteEach(f.Store, readOnly(func(verb string) bool { return slices.Contains(calls.Readers, verb) }))
	before := f.Store.ScriptStats()
	branches.Cover(t, f)
	for _, c := range f.Store.ScriptStats() {
		i := slices.IndexFunc(before, func(b store.ScriptStats) bool { return b.Script == c.Script })
		if slices.Contains(calls.Readers, c.Script) && c.Count == before[i].Count {
			t.Errorf("%s.lua was never called", c.Script)
		}
	}
}

// Every script that the matrix covers does write: called with nothing to
// change it may not, but with something it is refused by such a server.
func TestWritersWriteReal(t *testing.T) {
	s := rig.Real(t)
	seen := map[string]bool{}
	for _, c := range calls.All() {
		p := calls.Setup{T: t, Store: s}
		w := p.NewEnv()
		c.Setup(w)
		kit.RewriteEach(w.Stores[1], readOnly(func(verb string) bool { return verb == c.Script() }))
		_, err := c.Call(w, w.Via)
		said := fmt.Sprint(err, errors.Unwrap(err))
		if strings.Contains(said, "Write commands are not allowed from read-only scripts") {
			seen[c.Script()] = true
		}
		w.Close()
	}
	for _, name := range calls.Writers() {
		silent := slices.ContainsFunc(calls.All(),
			func(c calls.Case) bool { return c.Script() == name && c.NeverRepeated != "" })
		if !seen[name] && !silent {
			t.Errorf("%s.lua was called and wrote nothing: it belongs to the readers", name)
		}
	}
}
