package attacks

import (
	"fmt"
	"time"

	"github.com/picket-dev/picket"
)

// olderRecords meets records of agents that were made before they were counted.
func olderRecords(h *Attacker) {
	by := picket.Caller{Actor: "key_older"}
	counters := h.Prefix + "kept-by:key_older"
	again := func(metadata int, want string) {
		h.Helper()
		_, err := h.Deregister(h.Ctx, by, "older", nil)
		h.OK(err)
		h.OK(h.register(by, "older", metadata))
		got, err := h.Raw.HGetAll(h.Ctx, counters).Result()
		h.OK(err)
		if kept := fmt.Sprint(got); kept != want {
			h.Fatalf("the counters are %s, want %s", kept, want)
		}
	}
	h.OK(h.register(by, "older", 40))
	h.OK(h.Raw.Del(h.Ctx, counters).Err())
	again(60, "map[agents:0 bytes:20]")
	again(80, "map[agents:0 bytes:40]")
	again(20, "map[]") // fewer bytes than were counted
	h.OK(h.register(by, "newer", 30))
	again(10, "map[agents:1 bytes:20]")
	gone := func(ids ...string) {
		h.Helper()
		for _, id := range ids {
			_, err := h.Deregister(h.Ctx, by, id, nil)
			h.OK(err)
		}
		_, err := h.ApplyRetention(h.Ctx, picket.Retention{Tasks: -time.Second, Events: time.Hour, MaxEvents: 1e6}, 100)
		h.OK(err)
	}
	gone("older", "newer")
	if n, err := h.Raw.Exists(h.Ctx, counters).Result(); err != nil || n != 0 {
		h.Fatalf("the counters of a key without agents: %d, %v", n, err)
	}
	h.OK(h.register(by, "older", 10))
	h.OK(h.register(by, "oldest", 10))
	h.OK(h.Raw.Del(h.Ctx, counters).Err())
	h.OK(h.register(by, "newer", 60))
	gone("older", "oldest") // one more than was counted
	if got, err := h.Raw.HGetAll(h.Ctx, counters).Result(); err != nil || fmt.Sprint(got) != "map[agents:0 bytes:40]" {
		h.Fatalf("the counters are %v, %v", got, err)
	}
	gone("newer")
}
