package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/cmd/picket/cli/exit"
	"github.com/picket-dev/picket/cmd/picket/cli/term"
)

// memoryFinding tells how much memory the store uses, and about how much of it
// the namespace takes.
func memoryFinding(ctx context.Context, cmd *cobra.Command) finding {
	var stats picket.Stats
	s, err := connect(cmd)
	if err == nil {
		err = s.get(ctx, "/api/v1/stats", &stats, nil)
	}
	if err != nil {
		return finding{"memory", "fail", exit.Text(err), exit.Remedy(err)}
	}
	return judgeMemory(stats)
}

func judgeMemory(stats picket.Stats) finding {
	m := stats.Memory
	detail := "namespace " + stats.Namespace + " was not measured yet"
	if !m.MeasuredAt.IsZero() {
		since := int64(stats.LastTick) + stats.SinceTickMs - int64(m.MeasuredAt) // by the store's own clock
		age := time.Duration(max(0, since)) * time.Millisecond
		detail = fmt.Sprintf("namespace %s takes about %s (measured %s ago)", stats.Namespace, sizeText(m.Bytes),
			term.ShortDuration(age))
	}
	switch {
	case m.StoreUsed == 0:
		return finding{"memory", "ok", detail + "; the store is kept in the memory of the server", ""}
	case m.StoreMax == 0:
		return finding{"memory", "ok",
			fmt.Sprintf("%s; its Redis uses %s and has no maxmemory", detail, sizeText(m.StoreUsed)), ""}
	}
	detail += fmt.Sprintf("; its Redis uses %s of %s (%d %%)", sizeText(m.StoreUsed), sizeText(m.StoreMax),
		100*m.StoreUsed/m.StoreMax)
	const remedy = "Raise maxmemory of the Redis server (store.max_memory for that of `picket up`), or lower retention.tasks and retention.events."
	switch most := m.StoreMax - picket.MemoryHeadroom(m.StoreMax); {
	case m.StoreUsed >= most:
		return finding{"memory", "fail", detail + ": the store is full, and requests that store more are refused",
			remedy}
	case m.StoreUsed >= most/5*4:
		return finding{"memory", "warn", fmt.Sprintf("%s: the store counts as full at %s", detail, sizeText(most)),
			remedy}
	}
	return finding{"memory", "ok", detail, ""}
}
