package store

import (
	"context"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/picket-dev/picket"
)

const (
	// refreshAfter is how many bytes a process may store before it asks Redis again.
	refreshAfter = 8 << 20
	// scriptOverhead is what a script stores beside its arguments.
	scriptOverhead = 2 << 10
)

// headroom knows how much may still be stored. It asks Redis once for every few MiB
// and counts what this process sends in between. Redis itself enforces maxmemory.
type headroom struct {
	client       redis.UniversalClient
	untilRefresh atomic.Int64 // bytes that may be stored before Redis is asked again
	free         atomic.Int64 // bytes that were free by the last answer, less what was sent since
	refreshing   sync.Mutex   // held by the goroutine that asks Redis
}

// newHeadroom returns nil if there is no single Redis to ask.
func newHeadroom(memory bool, client redis.UniversalClient) *headroom {
	if _, cluster := client.(*redis.ClusterClient); cluster || memory {
		return nil
	}
	r := &headroom{client: client}
	r.free.Store(2 * refreshAfter)
	return r
}

// admit refuses a script that would store n more bytes in a full store. One
// request at a time asks Redis. The others use the last answer, so a slow Redis
// does not make them wait for it here. If Redis does not answer, the script is
// sent all the same and returns its own error.
func (r *headroom) admit(ctx context.Context, n int64) error {
	if r == nil {
		return nil
	}
	free := r.free.Add(-n)
	if r.untilRefresh.Add(-n) > 0 {
		return nil
	}
	if r.refreshing.TryLock() {
		defer r.refreshing.Unlock()
		if !r.refresh(ctx) {
			return nil
		}
		free = r.free.Add(-n)
	}
	if free <= 0 {
		return storeFull()
	}
	return nil
}

// refresh learns how much may be stored; it reports whether Redis answered.
func (r *headroom) refresh(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	text, err := r.client.Info(ctx, "memory").Result()
	if err != nil {
		r.untilRefresh.Store(1 << 20)
		r.free.Store(2 << 20)
		return false
	}
	free := freeBytes(ParseMemoryInfo(text))
	r.free.Store(free)
	r.untilRefresh.Store(min(free/2, refreshAfter))
	return true
}

// freeBytes is how many bytes may be stored; negative when there is no room.
func freeBytes(used, most int64) int64 {
	if most == 0 {
		return 2 * refreshAfter
	}
	return most - picket.MemoryHeadroom(most) - used
}

func storeFull() *picket.Error {
	refusal := picket.Refuse(picket.CodeStoreFull,
		"Leases can still end. Free memory or raise maxmemory of the Redis server, then repeat the request.",
		"the store is full")
	refusal.RetryAfter = time.Second
	return refusal
}

// argumentBytes is about what the arguments of a script add to the store.
func argumentBytes(args []any) int64 {
	n := int64(scriptOverhead)
	for _, a := range args {
		if s, ok := a.(string); ok {
			n += int64(len(s))
		}
	}
	return n
}

// parseInfo reads what INFO says.
func parseInfo(text string) map[string]string {
	info := map[string]string{}
	for line := range strings.Lines(text) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			info[name] = value
		}
	}
	return info
}

// ParseMemoryInfo finds how many bytes a Redis uses and how many it may use in what
// INFO memory says; most is 0 where there is no bound.
func ParseMemoryInfo(text string) (used, most int64) {
	info := parseInfo(text)
	return ParseInt(info["used_memory"]), ParseInt(info["maxmemory"])
}
