package kit

import (
	"fmt"
	"strconv"

	"github.com/redis/go-redis/v9"

	"github.com/picket-dev/picket/orchestrator/eventlog"
)

// EventEntries splits the entries of a stream that hold packed events: it returns one
// entry for each event, with a field for each value. Other entries stay as they are.
func EventEntries(entries []redis.XMessage) ([]redis.XMessage, error) {
	var split []redis.XMessage
	for _, entry := range entries {
		if _, packed := entry.Values["1"]; !packed {
			split = append(split, entry)
			continue
		}
		records, err := eventlog.Records(entry)
		if err != nil {
			return nil, fmt.Errorf("read the event log: %w", err)
		}
		for _, r := range records {
			fields := map[string]any{}
			for _, name := range eventlog.Names[1:] {
				fields[name] = r.Value(name)
			}
			split = append(split, redis.XMessage{ID: r.Value("seq") + "-0", Values: fields})
		}
	}
	return split, nil
}

// OldEvent is an event of long ago, as an earlier version wrote it.
func OldEvent(seq int) *redis.XAddArgs {
	return &redis.XAddArgs{
		Stream: "pk:{default}:events",
		ID:     fmt.Sprintf("%d-0", seq),
		Values: []any{"type", "task.progress", "at", "1000", "now", "1000", "actor", "x", "data", "{}"},
	}
}

// OldEvents is an entry with the events first to last of long ago.
func OldEvents(first, last int) *redis.XAddArgs {
	entry := &redis.XAddArgs{Stream: "pk:{default}:events", ID: fmt.Sprintf("%d-0", last)}
	var values []any
	for seq := first; seq <= last; seq++ {
		packed := eventlog.Record{strconv.Itoa(seq), "task.progress", "1000", "1000", "x", "{}", "", "", "", "", "", ""}
		values = append(values, strconv.Itoa(seq-first+1), packed.Pack())
	}
	entry.Values = values
	return entry
}
