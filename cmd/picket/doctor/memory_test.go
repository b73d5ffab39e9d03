package doctor

import (
	"strings"
	"testing"

	"github.com/picket-dev/picket"
)

func TestMemoryIsJudged(t *testing.T) {
	measured := picket.MemoryStats{Bytes: 3 << 20, MeasuredAt: 1_000_000}
	redis := func(used, most int64) picket.MemoryStats {
		m := measured
		m.StoreUsed, m.StoreMax = used<<20, most<<20
		return m
	}
	for _, c := range []struct {
		memory picket.MemoryStats
		grade  string
		detail string
	}{
		{picket.MemoryStats{}, "ok",
			"namespace team was not measured yet; the store is kept in the memory of the server"},
		{measured, "ok",
			"namespace team takes about 3.0 MiB (measured 12s ago); the store is kept in the memory of the server"},
		{redis(9, 0), "ok",
			"namespace team takes about 3.0 MiB (measured 12s ago); its Redis uses 9.0 MiB and has no maxmemory"},
		{redis(100, 512), "ok", "its Redis uses 100.0 MiB of 512.0 MiB (19 %)"},
		{redis(383, 512), "ok", "(74 %)"},
		{redis(384, 512), "warn",
			"its Redis uses 384.0 MiB of 512.0 MiB (75 %): the store counts as full at 480.0 MiB"},
		{redis(479, 512), "warn", "(93 %): the store counts as full at 480.0 MiB"},
		{redis(480, 512), "fail", "(93 %): the store is full, and requests that store more are refused"},
		{redis(64, 96), "fail", "(66 %): the store is full"},
	} {
		f := memoryFinding(picket.Stats{Namespace: "team", Memory: c.memory, LastTick: 1_011_500, SinceTickMs: 500})
		if f.Grade != c.grade || !strings.Contains(f.Detail, c.detail) || (f.Remedy == "") != (c.grade == "ok") {
			t.Errorf("%+v: %s, %q, fix: %q", c.memory, f.Grade, f.Detail, f.Remedy)
		}
	}
}
