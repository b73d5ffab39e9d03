package orchestrator_test

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/picket-dev/picket/internal/rig"
	"github.com/picket-dev/picket/orchestrator"
	"github.com/picket-dev/picket/orchestrator/store"
)

// The server itself refuses a write of a script that says it makes none. The
// reading of store time is the one write that every script makes, so it is
// taken out first.
func readOnly(source string) string {
	source = timeWrites.ReplaceAllString(source, "")
	_, rest, _ := strings.Cut(source, "\n")
	return "#!lua flags=no-writes\n" + rest
}

// timeWrites are the lines that write store time.
var timeWrites = regexp.MustCompile(`(?m)^.*-- @writes-time$`)

// The scripts listed as readers write nothing on any of their branches: the
// tour takes every branch, while the server refuses every write of theirs.
func TestReadersOnlyReadReal(t *testing.T) {
	f := openFixture(t, rig.Real(t))
	defer f.close()
	orchestrator.RewriteEach(f.store, func(name, source string) string {
		if slices.Contains(readers, name) {
			return readOnly(source)
		}
		return source
	})
	before := f.store.ScriptStats()
	coverBranches(t, f)
	for _, c := range f.store.ScriptStats() {
		i := slices.IndexFunc(before, func(b store.ScriptStats) bool { return b.Script == c.Script })
		if slices.Contains(readers, c.Script) && c.Count == before[i].Count {
			t.Errorf("%s.lua was never called", c.Script)
		}
	}
}

// Every script that the matrix covers does write: called with nothing to
// change it may not, but with something it is refused by such a server.
func TestWritersWriteReal(t *testing.T) {
	s := rig.Real(t)
	seen := map[string]bool{}
	for _, c := range replyCases() {
		p := replySetup{t: t, store: s}
		w := p.newEnv()
		c.setup(w)
		orchestrator.RewriteEach(w.stores[1], func(name, source string) string {
			if name == c.script() {
				return readOnly(source)
			}
			return source
		})
		_, err := c.call(w, w.via)
		if err != nil && strings.Contains(fmt.Sprint(err), "Write commands are not allowed from read-only scripts") {
			seen[c.script()] = true
		}
		w.close()
	}
	for _, name := range writers() {
		silent := slices.ContainsFunc(replyCases(),
			func(c replyCase) bool { return c.script() == name && c.neverRepeated != "" })
		if !seen[name] && !silent {
			t.Errorf("%s.lua was called and wrote nothing: it belongs to the readers", name)
		}
	}
}
