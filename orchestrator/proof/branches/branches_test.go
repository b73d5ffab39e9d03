package branches

import (
	"fmt"
	"strings"
	"testing"

	"github.com/picket-dev/picket/internal/rig"
	"github.com/picket-dev/picket/orchestrator/proof/kit"
)

// Every branch of every script runs on both stores, every script at least
// once, and every key and channel that a script uses carries the tag of its
// namespace. Branches are both ways of an if, bodies of loops and functions;
// "a and b or c" is one branch.
func TestEveryLuaBranchRuns(t *testing.T) {
	rig.SkipShort(t)
	files := kit.LuaSources(t)
	var all []string
	counted := map[string]string{}
	for _, f := range files {
		// First the tag, so that the counters themselves are not held against it.
		tagged := kit.LuaFile{Name: f.Name, Text: strings.ReplaceAll(f.Text, "redis.call", "tagged")}
		source, branches := tagged.Counted()
		counted[f.Text] = source
		all = append(all, branches...)
	}
	kit.OnBothStores(t, func(t *testing.T, f *kit.Fixture) {
		kit.RewriteEach(f.Store, func(name, text string) string {
			text = counted[text]
			// few leases are more than a step ends
			text = strings.Replace(text, "local BATCH = 100", "local BATCH = 2", 1)
			// few values are more than one command gets, and few tasks more than are known of a lane
			text = strings.Replace(text, "local STEP = 1000", "local STEP = 2", 1)
			text = strings.Replace(text, "local HEADS, TASKS = 16, 8", "local HEADS, TASKS = 2, 2", 1)
			// the values that records get are texts
			text = strings.Replace(text, "    if r._changed ~= change then begin_change(r) end\n", textsOnly, 1)
			// and few tasks more than a page looks at
			text = strings.Replace(text, "local LOOKS = 2000", "local LOOKS = 2", 1)
			return withCounts(name, withTagCheck(name, text))
		})
		Cover(t, f)
		got, err := f.Raw.HGetAll(f.Ctx, "pk:{default}:meta:branches").Result()
		kit.OK(t, err)
		for _, branch := range all {
			exempt := realOnly
			if !f.RigStore.Memory {
				exempt = memoryOnly
			}
			if got[branch] == "" && !exempt(files, branch) {
				t.Errorf("never ran: %s", branch)
			}
		}
		for _, c := range f.Store.ScriptStats() {
			if c.Count == 0 {
				t.Errorf("%s.lua never ran", c.Script)
			}
		}
		t.Logf("%d branches in %d files", len(all), len(files))
	})
}

// textsOnly stands for how a change of a record begins.
const textsOnly = `    if r._changed ~= change then begin_change(r) end
    assert(type(value) == 'string' and type(value2 or '') == 'string' and type(value3 or '') == 'string', name)
`

// memoryOnly reports whether the line of a branch is marked as one that only a store in memory runs.
func memoryOnly(files []kit.LuaFile, branch string) bool {
	for _, f := range files {
		for i, line := range strings.Split(f.Text, "\n") {
			if strings.HasPrefix(branch, fmt.Sprintf("%s.lua:%d ", f.Name, i+1)) {
				return strings.HasSuffix(line, "-- in memory only")
			}
		}
	}
	return false
}

// realOnly reports whether a branch is taken only by code that serves more than one call, which the
// store in memory does not have, or whether its line is marked.
func realOnly(files []kit.LuaFile, branch string) bool {
	for _, f := range files {
		inBatch := false
		for i, line := range strings.Split(f.Text, "\n") {
			inBatch = inBatch || strings.HasPrefix(line, "local function run_batch(")
			if strings.HasPrefix(branch, fmt.Sprintf("%s.lua:%d ", f.Name, i+1)) {
				return inBatch || strings.HasSuffix(line, "-- on a real store only") ||
					strings.HasSuffix(line, "-- @trusts-verified")
			}
		}
	}
	return false
}

// withTagCheck puts the check before all other code.
func withTagCheck(name, text string) string {
	if name == "_base" {
		return tagCheck + text
	}
	return text
}

// withCounts stores the branches that ran whenever a call ends.
func withCounts(name, text string) string {
	switch name {
	case "_base":
		return storeRan + text
	case "_run":
		text = strings.Replace(text, "local function run(", "local function run_uncounted(", 1)
		text = strings.Replace(text, "local function run_batch(", "local function run_batch_uncounted(", 1)
		return text + "\nlocal run, run_batch = counted(run_uncounted), counted(run_batch_uncounted)\n"
	}
	return text
}

// storeRan has what the code of [kit.LuaFile.Counted] needs.
const storeRan = `
local ran, stored = {}, {}
local function counted(f)
  return function(...)
    local ok, reply = pcall(f, ...)
    local new = {}
    for branch in pairs(ran) do
      if not stored[branch] then new[#new + 1], new[#new + 2] = branch, '1' end
      ran[branch], stored[branch] = nil, true
    end
    if #new > 0 then redis.call('HSET', KEYS[1] .. ':branches', unpack(new)) end
    if not ok then error(reply, 0) end
    return reply
  end
end
`

// tagCheck stands in for redis.call and refuses a key of another hash slot,
// which a single server would let pass.
const tagCheck = `
local TAG = 'pk:{default}:'
local function tagged(...)
  local a = { ... }
  local command, last = string.upper(a[1]), 2
  if command == 'TIME' or command == 'SCAN' then last = 1 end
  if command == 'MEMORY' then a[2] = a[3] end
  if command == 'DEL' or command == 'EXISTS' then last = #a end
  for i = 2, last do
    if string.sub(a[i], 1, #TAG) ~= TAG then error(command .. ' of ' .. a[i] .. ' leaves the namespace') end
  end
  return redis.call(...)
end
`

// The check bites: a script that leaves its namespace does not run.
func TestAKeyWithoutTheTagIsSeen(t *testing.T) {
	kit.OnBothStores(t, func(t *testing.T, f *kit.Fixture) {
		kit.RewriteEach(f.Store, func(name, text string) string {
			text = strings.ReplaceAll(text, "redis.call", "tagged")
			return withTagCheck(name, strings.ReplaceAll(text, "K('handoffs:', 'open')", "'handoffs:open'"))
		})
		if _, err := f.Stats(f.Ctx); err == nil || !strings.Contains(fmt.Sprint(err), "leaves the namespace") {
			t.Fatalf("a key without the tag: %v", err)
		}
	})
}
