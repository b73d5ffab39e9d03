package orchestrator

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/picket-dev/picket"
)

const (
	// roomAsked is how many bytes a process may store before it asks Redis again.
	roomAsked = 8 << 20
	// perScript is what a script stores beside its arguments.
	perScript = 2 << 10
)

// mayUseHeadroom are scripts that are needed on a full store although they store
// more: a server registers its admin key, people sign in and decide, and
// operators top up, retry and command agents.
var mayUseHeadroom = map[string]bool{
	"key_create": true, "login_begin": true, "session_open": true,
	"review": true, "answer": true, "finish": true, "claim": true,
	"top_up": true, "retry": true, "command": true,
}

// room knows how much may still be stored. It asks Redis once for every few MiB
// and counts what this process sends in between. Redis itself enforces maxmemory.
type room struct {
	client redis.UniversalClient
	left   atomic.Int64 // bytes that may be stored before Redis is asked again
	used   atomic.Int64 // as Redis has told it last
	most   atomic.Int64 // maxmemory; 0: no bound

	mu sync.Mutex // held by the goroutine that asks Redis
}

// newRoom returns nil if there is no single Redis to ask.
func newRoom(cfg Config, client redis.UniversalClient) *room {
	if _, cluster := client.(*redis.ClusterClient); cluster || cfg.Memory {
		return nil
	}
	return &room{client: client}
}

// admit refuses a script that would store n more bytes in a full store. If Redis
// does not answer, the script is sent all the same and returns its own error.
func (r *room) admit(ctx context.Context, n int64) error {
	if r == nil || r.left.Add(-n) > 0 {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.left.Load() > 0 { // another goroutine has asked meanwhile
		return nil
	}
	if !r.ask(ctx) {
		return nil
	}
	left := r.free()
	if left <= n {
		return storeFull()
	}
	r.left.Store(min(left/2, roomAsked))
	return nil
}

// ask learns how much memory Redis uses; it reports whether Redis answered.
func (r *room) ask(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	text, err := r.client.Info(ctx, "memory").Result()
	if err != nil {
		r.left.Store(1 << 20)
		return false
	}
	used, most := memoryUse(text)
	r.used.Store(used)
	r.most.Store(most)
	return true
}

// free is how many bytes may still be stored. It is negative if the store is full.
func (r *room) free() int64 {
	most := r.most.Load()
	if most == 0 {
		return 2 * roomAsked
	}
	return most - picket.Reserve(most) - r.used.Load()
}

func storeFull() *picket.Error {
	refusal := picket.Refuse(picket.CodeStoreFull, "Leases can still end. Free memory or raise maxmemory of the Redis server, then repeat the request.",
		"the store is full")
	refusal.RetryAfter = time.Second
	return refusal
}

// sizeOf is about what the arguments of a script add to the store.
func sizeOf(args []any) int64 {
	n := int64(perScript)
	for _, a := range args {
		if s, ok := a.(string); ok {
			n += int64(len(s))
		}
	}
	return n
}
