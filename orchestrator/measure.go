package orchestrator

import (
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/picket-dev/picket"
)

// measurePause is the time between two passes of [Engine.Measure] over the keys
// of a namespace.
const measurePause = 30 * time.Second

// MeasureMemory adds up the memory of the next keys of the namespace, among about
// limit keys of the store, and returns how many it measured. Where it goes on is
// kept in the store, so all processes make one pass together.
func (e *Engine) MeasureMemory(ctx context.Context, limit int) (int, error) {
	return e.runCount(ctx, "measure", limit, measurePause.Milliseconds())
}

// memoryStats reads the memory of the server and the size of the namespace.
func (r *reply) memoryStats(l []any) picket.MemoryStats {
	used, most := parseMemoryInfo(r.text(r.at(l, 0)))
	m := picket.MemoryStats{StoreUsed: used, StoreMax: most}
	if bytes := r.at(l, 1); bytes != nil {
		m.Bytes, m.MeasuredAt = r.int(bytes), picket.Instant(r.int(r.at(l, 2)))
	}
	return m
}

// parseMemoryInfo finds how many bytes a Redis uses and how many it may use in what
// INFO memory says; most is 0 where there is no bound.
func parseMemoryInfo(info string) (used, most int64) {
	for line := range strings.Lines(info) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		n, _ := strconv.ParseInt(value, 10, 64)
		switch name {
		case "used_memory":
			used = n
		case "maxmemory":
			most = n
		}
	}
	return used, most
}
