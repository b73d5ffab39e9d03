package heartbeat_test

import (
	"fmt"
	"time"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/orchestrator/heartbeat"
)

// A file is read, and a wake at night is skipped until the window ends.
func ExampleDecide() {
	settings := heartbeat.Defaults()
	policy, _ := heartbeat.Parse([]byte(`---
preferences:
  quiet_windows:
    - {timezone: Europe/Berlin, start: "22:00", end: "08:00"}
---
Look at your inbox first.
`), heartbeat.Options{Settings: settings, SourcePath: "HEARTBEAT.md"})
	now := picket.InstantOf(time.Date(2026, time.May, 1, 3, 0, 0, 0, time.UTC))
	decision := heartbeat.Decide(heartbeat.WakeFacts{
		Now: now, Source: picket.WakeSourceManual, Settings: settings, Agent: "reviewer", Policy: policy,
	})
	fmt.Println(decision.Result, decision.Reason, decision.NextAllowedAt)
	// Output: skipped quiet_window 2026-05-01T06:00:00.000Z
}

// A diagnostic says what is wrong, where, and where it belongs.
func ExampleParse() {
	_, diagnostics := heartbeat.Parse([]byte("---\nversion: 1\nlease_duration: 5m\n---\n"),
		heartbeat.Options{Settings: heartbeat.Defaults(), SourcePath: "HEARTBEAT.md"})
	for _, d := range diagnostics {
		fmt.Printf("%s:%d:%d: %s (belongs to %s)\n", d.SourcePath, d.Line, d.Column, d.Code, d.OwnerSurface)
	}
	// Output: HEARTBEAT.md:3:1: heartbeat_forbidden_field (belongs to the lease API)
}
