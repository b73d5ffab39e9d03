package branches

import (
	"fmt"
	"strings"
	"testing"

	"github.com/picket-dev/picket/orchestrator/proof/kit"
)

// coverBatches takes the ways of a call of several verbs, which only a library has: one is done, one
// refuses, one breaks, and a batch finds another server.
func coverBatches(t *testing.T, f *fixture) {
	if f.RigStore.Memory {
		return
	}
	_, err := f.Stats(f.Ctx) // the server has the library then
	kit.OK(t, err)
	name := f.Store.Connection().Program().Library().Batch(false)
	batch := func() ([]any, error) {
		return kit.CallBatch(f.Ctx, f.Raw, name, "renew", 5, "task_none", "run_none", "", "0", "",
			"no_such_verb", 0, "tick", 1, "10")
	}
	got, err := batch()
	kit.OK(t, err)
	for i, want := range []string{"lease_expired", "ERR ", ""} {
		refused := got[2*i] == int64(1)
		if refused != (want != "") || refused && !strings.HasPrefix(got[2*i+1].(string), want) {
			t.Errorf("answer %d is %v %v, want %q", i, got[2*i], got[2*i+1], want)
		}
	}
	coverLanes(t, f, name)
	was := f.Raw.HGet(f.Ctx, kit.Meta, "format").Val()
	kit.OK(t, f.Raw.HSet(f.Ctx, kit.Meta, "format", "9").Err())
	if _, err = batch(); err == nil || !strings.HasPrefix(err.Error(), "store_newer") {
		t.Errorf("a batch on a newer store: %v", err)
	}
	kit.OK(t, f.Raw.HSet(f.Ctx, kit.Meta, "format", was).Err())
}

// coverLanes lets one batch submit tasks and grant them: into a lane of which the first tasks are known, before them,
// among them and after them. Another one has a verb that breaks after it has written something, and one that reads it.
func coverLanes(t *testing.T, f *fixture, batch string) {
	meta, err := f.Raw.HMGet(f.Ctx, kit.Meta, "floor", "granted").Result()
	kit.OK(t, err)
	n := 0
	id := func(kind string) string {
		n++
		return fmt.Sprintf("%s_0000000000000000%010d", kind, n)
	}
	var args []any
	var want []int64 // 1 for a verb that breaks
	add := func(broken int64, verb string, with ...any) {
		args, want = append(append(args, verb, len(with)), with...), append(want, broken)
	}
	submit := func(broken int64, priority, notBefore any) {
		add(broken, "submit", "", "", "", id("task"), "batched|", priority, "300000", "3", "10000", ",", "human",
			"none", notBefore, "batched", "", "", "", "key_test", `{"title":"one"}`, "", "1000", "1000000000", "", "",
			"", "", "", "", "0", "0", "", "", "", "", "", "", "0", "0")
	}
	grant := func() {
		add(0, "grant", "key_test", "batcher", "batched", ",,", id("waiter"), "0", "", "", "", meta[0], meta[1], "0",
			"0", "", "1000", id("run"), strings.Repeat("0", 64))
	}
	for range 3 {
		submit(0, "5", "0")
	}
	grant() // knows two tasks of the lane, of which it takes one
	submit(0, "9", "0")
	submit(0, "1", "0")
	grant()
	for range 3 {
		grant()
	}
	submit(0, "5", "0")
	grant()
	run := func() {
		t.Helper()
		got, err := kit.CallBatch(f.Ctx, f.Raw, batch, args...)
		kit.OK(t, err)
		for i, broken := range want {
			if got[2*i] != broken {
				t.Errorf("verb %d of the batch: %v %v", i, got[2*i], got[2*i+1])
			}
		}
		args, want = nil, nil
	}
	submit(0, "5", "0") // the lane is not empty, so that the next one is not refused before
	run()
	const late, kept = "pk:{default}:late", "pk:{default}:late-kept"
	kit.OK(t, f.Raw.HSet(f.Ctx, late, "x", 1).Err())
	kit.OK(t, f.Raw.Rename(f.Ctx, late, kept).Err())
	kit.OK(t, f.Raw.Set(f.Ctx, late, "no hash", 0).Err())
	submit(1, "5", "9000000000000000")
	broken := fmt.Sprintf("task_0000000000000000%010d", n)
	add(0, "tick", "10")
	run()
	for _, kind := range []string{"task:", "spec:", "env:"} {
		if left, err := f.Raw.Exists(f.Ctx, "pk:{default}:"+kind+broken).Result(); err != nil || left != 0 {
			t.Errorf("a verb that broke has left %s (%v)", kind, err)
		}
	}
	kit.OK(t, f.Raw.Rename(f.Ctx, kept, late).Err())
	kit.OK(t, f.Raw.HDel(f.Ctx, late, "x").Err())
}
