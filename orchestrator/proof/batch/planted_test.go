package batch

import (
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/picket-dev/picket/internal/rig"
	"github.com/picket-dev/picket/orchestrator/lua"
	"github.com/picket-dev/picket/orchestrator/proof/calls"
	"github.com/picket-dev/picket/orchestrator/proof/kit"
)

// planted are bugs of _store.lua: a text of it and what stands in its place.
var planted = []struct{ name, old, new string }{
	{"the writes of a broken verb stay",
		"    for n = undo_size, 3, -3 do undo_log[n - 1][undo_log[n]] = undo_log[n - 2] end", ""},
	{"the records that a broken verb has changed stay",
		"      records[changed[n][1]], dirty[#dirty + 1] = was, was\n", ""},
	{"the numbers of the events of a broken verb are used up", "    m.seq = kept_seq", ""},
	{"a change is not copied before the next one", "kept = packing.copy(r)", "kept = r"},
	{"a verb that breaks takes the writes of the verb before it back",
		"  local function save()\n    change, changes, undo_size = change + 1, 0, 0",
		"  local function save()\n    change, changes = change + 1, 0"},
	{"a verb that breaks takes the records of the verb before it back",
		"  local function save()\n    change, changes, undo_size = change + 1, 0, 0",
		"  local function save()\n    change, undo_size = change + 1, 0"},
	{"a verb goes on with the change of the verb before it",
		"  local function save()\n    change, changes, undo_size = change + 1, 0, 0",
		"  local function save()\n    changes, undo_size = 0, 0"},
	{"a command does not see what waits for its key", "    write_now(key)\n    scores_known[key] = nil",
		"    scores_known[key] = nil"},
	{"a command leaves the record that it changes", "    if not READS[command] then", "    if false then"},
	{"a score that waits is not seen", "local score = w and w[member]", "local score"},
	{"a text that waits is not seen", "local text = texts_waiting[key] or texts_known[key]",
		"local text = texts_known[key]"},
	{"what is read ahead replaces what was changed", "local r = records[key] or packing.unpack_record(kind, key, text)",
		"local r = packing.unpack_record(kind, key, text)"},
	{"members of a set are not removed", "      write_values('ZREM', key, removed)\n", ""},
	{"the changes of a hash are not written", "    write_values('HSET', r[1], flat)\n", ""},
	{"a record lives for ever", "        limit_life(r[1])\n", ""},
	{"a text is not written", "        values[n + 1], values[n + 2] = key, text\n        n = n + 2\n", ""},
	{"a field that few records have is lost", "      if not first[all[i]] then others[all[i]] = all[i + 1] end\n", ""},
}

// The comparison of batches with calls one by one finds every planted bug. The calls one by one run without it.
func TestBatchesFindPlantedBugsReal(t *testing.T) {
	rig.SkipShort(t)
	if rig.Race {
		t.Skip("the bugs are in Lua, which the race detector does not see")
	}
	s, steps := rig.Real(t), rand.New(rand.NewPCG(rig.Seed(t), 0))
	for i, bug := range planted {
		if !rig.OfToday(i, 4) {
			continue
		}
		t.Run(bug.name, func(t *testing.T) {
			found, batches := hunt(t, s, steps, bug.old, bug.new)
			if found == "" {
				t.Fatalf("nothing was found in %d batches", batches)
			}
			t.Logf("found in batch %d: %s", batches, strings.ToValidUTF8(found[:min(len(found), 500)], "."))
		})
	}
	if !rig.Soaking() {
		return
	}
	t.Run("no bug", func(t *testing.T) {
		const line = "  local function check_written() assert(not failed, failed) end"
		if found, batches := hunt(t, s, steps, line, line+" -- the same"); found != "" {
			t.Errorf("in batch %d was found: %s", batches, found)
		}
	})
}

// hunt runs histories until the comparison finds what is planted.
func hunt(t *testing.T, s rig.Store, steps *rand.Rand, old, new string) (found string, batches int) {
	t.Helper()
	libraries := map[*lua.Program]*lua.Library{}
	try := func(h *history) {
		program := h.w.Stores[1].Connection().Program()
		if libraries[program] == nil {
			libraries[program] = plant(t, program, old, new)
		}
		h.library = libraries[program]
		kit.OK(t, h.w.Raw.FunctionLoadReplace(t.Context(), h.library.Loaded(kit.FastClock()())).Err())
		batches += h.compareAll(steps, func(wrong []string) bool {
			if len(wrong) > 0 {
				found = wrong[0]
			}
			return found == ""
		})
	}
	settleThenGrant(t, try)
	for _, c := range calls.All() {
		for _, twice := range []bool{false, true} {
			if found == "" {
				onHistory(t, s, c, twice, try)
			}
		}
	}
	return found, batches
}

// plant returns the library of a program with a bug.
func plant(t *testing.T, p *lua.Program, old, new string) *lua.Library {
	t.Helper()
	n := 0
	p, err := p.Change(func(_, text string) string {
		n += strings.Count(text, old)
		return strings.Replace(text, old, new, 1)
	})
	kit.OK(t, err)
	if n != 1 {
		t.Fatalf("%q occurs %d times in the scripts, want 1", old, n)
	}
	return p.Library()
}
