package orchestrator_test

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/internal/rig"
	"github.com/picket-dev/picket/orchestrator"
	"github.com/picket-dev/picket/orchestrator/proof/kit"
)

// measured makes whole passes over the keys of two namespaces, in small steps.
func measured(t *testing.T, store *orchestrator.Store, raw redis.UniversalClient) (a, b picket.MemoryStats) {
	t.Helper()
	pass := func(name string) picket.MemoryStats {
		t.Helper()
		e := store.Engine(name)
		before, err := e.Stats(t.Context())
		kit.OK(t, err)
		size := "pk:{" + name + "}:size"
		kit.OK(t, raw.HDel(t.Context(), size, "ended").Err()) // the pause after the pass before is over
		steps, keys := 0, 0
		for cursor := ""; cursor != "0"; steps++ {
			if steps == 10_000 {
				t.Fatal("the pass never ends")
			}
			n, err := e.MeasureMemory(t.Context(), 50)
			kit.OK(t, err)
			keys += n
			cursor, err = raw.HGet(t.Context(), size, "cursor").Result()
			kit.OK(t, err)
		}
		s, err := e.Stats(t.Context())
		kit.OK(t, err)
		if s.Memory.MeasuredAt <= before.Memory.MeasuredAt || s.Memory.Bytes < int64(keys)*40 {
			t.Errorf("%s: %d keys in %d steps: %+v after %+v", name, keys, steps, s.Memory, before.Memory)
		}
		if n, err := e.MeasureMemory(t.Context(), 50); err != nil || n != 0 {
			t.Errorf("%s: %d keys are measured at once after a pass, %v", name, n, err)
		}
		return s.Memory
	}
	return pass("one"), pass("other")
}

// What one namespace stores makes its number grow by about as much, and not that
// of another namespace on the same server.
func TestBytesOfEachNamespaceReal(t *testing.T) {
	s := rig.Real(t)
	store, err := orchestrator.Open(t.Context(),
		orchestrator.Config{Redis: s.Redis, Namespaces: []string{"one", "other"}, Sealer: rig.Sealer(),
			Witness: t.TempDir(), Found: true, Log: slog.New(slog.DiscardHandler)})
	kit.OK(t, err)
	defer store.Close()
	raw := redis.NewUniversalClient(&s.Redis)
	defer raw.Close()
	kit.OK(t, raw.ConfigSet(t.Context(), "maxmemory", "1gb").Err())
	fresh, err := store.Engine("one").Stats(t.Context())
	kit.OK(t, err)
	if fresh.Memory.Bytes != 0 || fresh.Memory.MeasuredAt != 0 || fresh.Memory.StoreUsed == 0 ||
		fresh.Memory.StoreMax != 1<<30 {
		t.Errorf("before it was measured: %+v", fresh.Memory)
	}
	one, other := measured(t, store, raw)
	const tasks, each = 300, 20_000
	for i := range tasks {
		input := picket.RawJSON(`"` + strings.Repeat("x", each) + `"`)
		_, err := store.Engine("one").
			Submit(t.Context(), kit.Operator, picket.TaskSpec{Title: fmt.Sprint("task ", i), Input: input})
		kit.OK(t, err)
	}
	laterOne, laterOther := measured(t, store, raw)
	stored := int64(tasks * each)
	if grown := laterOne.Bytes - one.Bytes; grown < stored || grown > 2*stored {
		t.Errorf("%d bytes were stored, and the namespace has grown by %d", stored, grown)
	}
	if used := laterOne.StoreUsed - one.StoreUsed; used < stored {
		t.Errorf("%d bytes were stored, and the server uses %d more", stored, used)
	}
	if grown := laterOther.Bytes - other.Bytes; grown < 0 || grown > 1000 {
		t.Errorf("the other namespace has grown by %d", grown)
	}
	whole := kit.UsedMemory(t, raw)
	if sum := laterOne.Bytes + laterOther.Bytes; sum > whole {
		t.Errorf("both namespaces have %d bytes, the server uses %d", sum, whole)
	}
}

// A step of measuring looks at so many keys only, so nobody waits for it.
func BenchmarkMeasure(b *testing.B) {
	s := rig.Real(b)
	store, err := orchestrator.Open(b.Context(),
		orchestrator.Config{Redis: s.Redis, Sealer: rig.Sealer(), Witness: b.TempDir(), Found: true})
	if err != nil {
		b.Fatal(err)
	}
	defer store.Close()
	raw := redis.NewUniversalClient(&s.Redis)
	defer raw.Close()
	e := store.Engine("default")
	for range 5000 {
		if _, err := e.Submit(b.Context(), kit.Operator, picket.TaskSpec{Title: "a task"}); err != nil {
			b.Fatal(err)
		}
	}
	for b.Loop() {
		if err := raw.HDel(b.Context(), "pk:{default}:size", "ended").Err(); err != nil {
			b.Fatal(err)
		}
		if _, err := e.MeasureMemory(b.Context(), 500); err != nil {
			b.Fatal(err)
		}
	}
}
