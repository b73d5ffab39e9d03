package batch

import (
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/internal/rig"
	"github.com/picket-dev/picket/orchestrator/lua"
	"github.com/picket-dev/picket/orchestrator/proof/calls"
	"github.com/picket-dev/picket/orchestrator/proof/kit"
	"github.com/picket-dev/picket/orchestrator/store"
)

// Every verb stands in a batch between two others, or is called twice and then another one. It breaks where it calls
// Redis: at each such place in the soak, otherwise at about every fourth. The batch leaves the store and gives the
// answers as the same three calls do one by one.
func TestABatchIsAsItsCallsReal(t *testing.T) {
	s, steps := rig.Real(t), rand.New(rand.NewPCG(rig.Seed(t), 0))
	verbs, batches := map[string]bool{}, 0
	for _, c := range calls.All() {
		ways := []bool{false, true}
		if !rig.Soaking() {
			ways = []bool{steps.IntN(2) == 0}
		}
		for _, twice := range ways {
			onHistory(t, s, c, twice, func(h *history) {
				verbs[c.Script()] = true
				batches += h.compareAll(steps, func(wrong []string) bool {
					for _, what := range wrong {
						t.Error(what)
					}
					return true
				})
			})
		}
	}
	t.Logf("%d batches of %d verbs", batches, len(verbs))
	for name, v := range kit.Builtin(t).Verbs {
		if !v.Alone && !verbs[name] && slices.Contains(calls.Writers(), name) {
			t.Errorf("%s.lua was in no batch", name)
		}
	}
}

// onHistory makes the history of a case, unless the case has no call: its call between two others, where it may break,
// or its call twice and then another one, where the first may break.
func onHistory(t *testing.T, s rig.Store, c calls.Case, twice bool, do func(h *history)) {
	t.Helper()
	if kit.Builtin(t).Verbs[c.Script()].Alone || slices.Contains(othersAtWork, c.Name) {
		return
	}
	w := calls.Setup{T: t, Store: s, NoBatch: true, Bug: withBreaks}.NewEnv()
	defer w.Close()
	c.Setup(w)
	h := newHistory(t, c.Name, w)
	if !h.record(c.Script(), func() { _, _ = c.Call(w, w.Via) }) {
		return // the case calls nothing in its state
	}
	for _, title := range []string{"before", "after"} {
		h.record("submit", func() { _, _ = w.Via.Submit(w.Ctx, kit.Operator, picket.TaskSpec{Title: title}) })
	}
	if twice {
		h.items[1], h.breaking = h.items[0], 0
	} else {
		h.items[0], h.items[1] = h.items[1], h.items[0]
	}
	h.keep()
	do(h)
}

// everyCall is about how many calls lie between two at which a verb breaks.
func everyCall() int {
	switch {
	case rig.Soaking():
		return 1
	case rig.Race:
		return 40
	}
	return 4
}

// othersAtWork are the cases in which an adapter waits for what the call does, and changes the store.
var othersAtWork = []string{"record_wake/sent"}

// withBreaks makes a verb break where it reads or writes something. The hash rig-break says where: in which run since
// the hash has this id, and how often the verb has done so before. Lanes do not count: what a verb reads of them
// depends on the verbs before it in its batch.
func withBreaks(text string) string {
	text = strings.Replace(text, "  redis_call, P = redis.call, ", "  read_breaks()\n  redis_call, P = redis.call, ", 1)
	text = strings.Replace(text, "  for i = 1, #verb_begins do", "  runs, made = runs + 1, 0\n  for i = 1, #verb_begins do", 1)
	text = strings.Replace(text, "local function save_call()\n", "local function save_call()\n  made = -1000000\n", 1)
	text = strings.Replace(text, "  local function call(command, key, ...)\n", `  local whole = false
  on_call(function()
    for name, f in pairs(whole and {} or special) do
      special[name] = function(key, ...)
        break_at(key)
        return f(key, ...)
      end
    end
    whole = true
  end)
  local function call(command, key, ...)
    break_at(key)
`, 1)
	text = strings.Replace(text, "    if r._changed ~= change then begin_change(r) end\n",
		"    break_at(r[1])\n    if r._changed ~= change then begin_change(r) end\n", 1)
	return strings.Replace(text, "local redis_call, P, META\n", `local breaks, runs, made = {}, 0, 0
local function break_at(key)
  if string.find(key, ':lanes', 1, true) or string.find(key, ':lane:', 1, true) or string.find(key, ':delayed', 1, true) then
    return
  end
  made = made + 1
  if runs == breaks.run and made == breaks.call then error('broken on purpose') end
end
local function read_breaks()
  local b = redis.call('HMGET', 'rig-break', 'id', 'run', 'call')
  if b[1] and b[1] ~= breaks.id then runs, breaks = 0, { id = b[1], run = tonumber(b[2]), call = tonumber(b[3]) } end
end
local redis_call, P, META
`, 1)
}

// history is three calls and the store that they find.
type history struct {
	t       *testing.T
	name    string
	w       *calls.Env
	items   [][]string // the words of each call
	store   map[string]kept
	id      int
	library *lua.Library // that runs the batches
	// breaking is the index of the call that may break.
	breaking int
}

func newHistory(t *testing.T, name string, w *calls.Env) *history {
	return &history{t: t, name: name, w: w, breaking: 1, library: w.Stores[1].Connection().Program().Library()}
}

// record notes the command of a verb that a call sends. The command does not arrive.
func (h *history) record(verb string, call func()) bool {
	h.t.Helper()
	match := kit.MatchCall(h.w.Stores[1], false, verb)
	var words []string
	h.w.Faults.Plan(func(command []string) *rig.Fault {
		if words != nil || !match(command) {
			return nil
		}
		words = slices.Clone(command)
		return rig.NewFault(rig.Drop)
	})
	call()
	h.w.Faults.Plan(nil)
	if words != nil {
		h.items = append(h.items, words)
	}
	return words != nil
}

// kept is a key as Redis dumps it.
type kept struct {
	value string
	life  time.Duration
}

func (h *history) keep() {
	h.t.Helper()
	h.store = map[string]kept{}
	keys := h.w.Raw.Scan(h.w.Ctx, 0, "pk:{default}:*", 1000).Iterator()
	for keys.Next(h.w.Ctx) {
		value, err := h.w.Raw.Dump(h.w.Ctx, keys.Val()).Result()
		kit.OK(h.t, err)
		life, err := h.w.Raw.PTTL(h.w.Ctx, keys.Val()).Result()
		kit.OK(h.t, err)
		h.store[keys.Val()] = kept{value, max(0, life)}
	}
	kit.OK(h.t, keys.Err())
}

// begin puts the store back, and lets a verb break at call n.
func (h *history) begin(n int) {
	h.t.Helper()
	var old []string
	keys := h.w.Raw.Scan(h.w.Ctx, 0, "pk:{default}:*", 1000).Iterator()
	for keys.Next(h.w.Ctx) {
		old = append(old, keys.Val())
	}
	kit.OK(h.t, keys.Err())
	h.id++
	_, err := h.w.Raw.Pipelined(h.w.Ctx, func(p redis.Pipeliner) error {
		p.Del(h.w.Ctx, old...)
		for key, k := range h.store {
			p.Restore(h.w.Ctx, key, k.life, k.value)
		}
		p.HSet(h.w.Ctx, "rig-break", "id", h.id, "run", h.breaking+1, "call", n)
		return nil
	})
	kit.OK(h.t, err)
}

// compareAll compares without a break and with breaks at calls further and further on, until the verb makes fewer calls
// or goOn returns false.
func (h *history) compareAll(steps *rand.Rand, goOn func(wrong []string) bool) (batches int) {
	h.t.Helper()
	for n := 0; ; n += 1 + steps.IntN(2*everyCall()-1) {
		batches++
		broke, wrong := h.compare(n)
		if !goOn(wrong) || !broke && n > 0 {
			return batches
		}
	}
}

// compare runs the calls one by one and in a batch, where one breaks at call n. It reports whether it broke, and what
// differs.
func (h *history) compare(n int) (broke bool, wrong []string) {
	h.t.Helper()
	h.begin(n)
	var alone []string
	for _, words := range h.items {
		alone = append(alone, answer(h.w.Raw.Do(h.w.Ctx, arguments(words)...).Result()))
	}
	after := h.dump()
	h.begin(n)
	batch := []any{"FCALL", h.library.Batch(true), 1, kit.Meta}
	for _, words := range h.items {
		verb := strings.TrimPrefix(words[1], h.w.Stores[1].Connection().Program().Library().Function(""))
		batch = append(append(batch, verb, len(words)-4), arguments(words[4:])...)
	}
	got, err := h.w.Raw.Do(h.w.Ctx, batch...).Result()
	var replies []any
	if err == nil {
		replies, err = store.UnpackReplies(got)
	}
	if err != nil {
		return false, []string{fmt.Sprintf("%s, broken at call %d: the batch fails: %v", h.name, n, err)}
	}
	var together []string
	for i := 0; i+1 < len(replies); i += 2 {
		if replies[i] == int64(1) {
			together = append(together, answer(nil, fmt.Errorf("%v", replies[i+1])))
		} else {
			together = append(together, answer(replies[i+1], nil))
		}
	}
	if !slices.Equal(alone, together) {
		wrong = append(wrong, fmt.Sprintf("%s, broken at call %d: one by one\n%q\ntogether\n%q", h.name, n, alone, together))
	}
	if is := h.dump(); is != after {
		wrong = append(wrong, fmt.Sprintf("%s, broken at call %d: the store differs: %s", h.name, n, difference(after, is)))
	}
	return strings.Contains(alone[h.breaking], "broken on purpose"), wrong
}

func (h *history) dump() string {
	h.t.Helper()
	text, err := kit.Dump(h.w.Ctx, h.w.Raw, nil)
	if err != nil {
		return "the store cannot be read: " + err.Error()
	}
	lines := append(strings.Split(text, "\n"), h.lives())
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

// lives are the kinds of keys that end some day, and how many there are of each.
func (h *history) lives() string {
	h.t.Helper()
	keys, err := h.w.Raw.Keys(h.w.Ctx, "pk:{default}:*").Result()
	kit.OK(h.t, err)
	lives := make([]*redis.DurationCmd, len(keys))
	_, err = h.w.Raw.Pipelined(h.w.Ctx, func(p redis.Pipeliner) error {
		for i, key := range keys {
			lives[i] = p.PTTL(h.w.Ctx, key)
		}
		return nil
	})
	kit.OK(h.t, err)
	ends := map[string]int{}
	for i, key := range keys {
		if lives[i].Val() > 0 {
			ends[strings.Split(key, ":")[2]]++
		}
	}
	return fmt.Sprintf("keys that end: %v", ends)
}

func arguments(words []string) (args []any) {
	for _, word := range words {
		args = append(args, word)
	}
	return args
}

// answer is a reply as text. An error of Lua names the script that Redis ran, which is another one.
func answer(reply any, err error) string {
	if err != nil && err != redis.Nil {
		text, _, _ := strings.Cut(err.Error(), " script: ")
		return "error " + text
	}
	sortRecords(reply)
	return fmt.Sprintf("%v", reply)
}

var fieldName = regexp.MustCompile(`^[a-z][A-Za-z_]*$`)

// sortRecords sorts what has names in a reply by the names. They come in any order.
func sortRecords(reply any) {
	list, _ := reply.([]any)
	named := len(list)%2 == 0
	for i, value := range list {
		sortRecords(value)
		name, ok := value.(string)
		named = named && (i%2 == 1 || ok && fieldName.MatchString(name))
	}
	if named {
		pairs := slices.Collect(slices.Chunk(slices.Clone(list), 2))
		slices.SortFunc(pairs, func(a, b []any) int { return strings.Compare(a[0].(string), b[0].(string)) })
		copy(list, slices.Concat(pairs...))
	}
}

// difference is the first line that only one of two texts has.
func difference(a, b string) string {
	in := strings.Split(b, "\n")
	for line := range strings.Lines(a) {
		if line = strings.TrimSuffix(line, "\n"); !slices.Contains(in, line) {
			return "only one by one: " + line
		}
	}
	in = strings.Split(a, "\n")
	for line := range strings.Lines(b) {
		if line = strings.TrimSuffix(line, "\n"); !slices.Contains(in, line) {
			return "only together: " + line
		}
	}
	return "order"
}
