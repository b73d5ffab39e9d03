package doctor

import (
	"fmt"
	"time"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/cmd/picket/cli"
	"github.com/picket-dev/picket/cmd/picket/cli/term"
)

// memoryFinding tells how much memory the store uses, and about how much of it
// the namespace takes.
func memoryFinding(stats picket.Stats) Finding {
	m := stats.Memory
	detail := "namespace " + stats.Namespace + " was not measured yet"
	if !m.MeasuredAt.IsZero() {
		since := int64(stats.LastTick) + stats.SinceTickMs - int64(m.MeasuredAt) // by the store's own clock
		age := time.Duration(max(0, since)) * time.Millisecond
		detail = fmt.Sprintf("namespace %s takes about %s (measured %s ago)", stats.Namespace, cli.SizeText(m.Bytes),
			term.ShortDuration(age))
	}
	switch {
	case m.StoreUsed == 0:
		return Finding{"memory", "ok", detail + "; the store is kept in the memory of the server", ""}
	case m.StoreMax == 0:
		return Finding{"memory", "ok",
			fmt.Sprintf("%s; its Redis uses %s and has no maxmemory", detail, cli.SizeText(m.StoreUsed)), ""}
	}
	detail += fmt.Sprintf("; its Redis uses %s of %s (%d %%)", cli.SizeText(m.StoreUsed), cli.SizeText(m.StoreMax),
		100*m.StoreUsed/m.StoreMax)
	const remedy = "Raise maxmemory of the Redis server (store.max_memory for that of `picket up`), or lower retention.tasks and retention.events."
	switch most := m.StoreMax - picket.MemoryHeadroom(m.StoreMax); {
	case m.StoreUsed >= most:
		return Finding{"memory", "fail", detail + ": the store is full, and requests that store more are refused",
			remedy}
	case m.StoreUsed >= most/5*4:
		return Finding{"memory", "warn", fmt.Sprintf("%s: the store counts as full at %s", detail, cli.SizeText(most)),
			remedy}
	}
	return Finding{"memory", "ok", detail, ""}
}
