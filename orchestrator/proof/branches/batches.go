package branches

import (
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
		return f.Raw.FCall(f.Ctx, name, []string{kit.Meta}, "renew", 5, "task_none", "run_none", "", "0", "",
			"no_such_verb", 0, "tick", 1, "10").Slice()
	}
	got, err := batch()
	kit.OK(t, err)
	for i, want := range []string{"lease_expired", "ERR ", ""} {
		refused := got[2*i] == int64(1)
		if refused != (want != "") || refused && !strings.HasPrefix(got[2*i+1].(string), want) {
			t.Errorf("answer %d is %v %v, want %q", i, got[2*i], got[2*i+1], want)
		}
	}
	was := f.Raw.HGet(f.Ctx, kit.Meta, "format").Val()
	kit.OK(t, f.Raw.HSet(f.Ctx, kit.Meta, "format", "9").Err())
	if _, err = batch(); err == nil || !strings.HasPrefix(err.Error(), "store_newer") {
		t.Errorf("a batch on a newer store: %v", err)
	}
	kit.OK(t, f.Raw.HSet(f.Ctx, kit.Meta, "format", was).Err())
}
