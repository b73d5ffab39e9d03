package adapter

import (
	"log/slog"
	"testing"
	"time"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/adapter/agents"
)

func TestLimitsOfATaskThatSetsNone(t *testing.T) {
	own := 7
	for name, c := range map[string]struct {
		cfg            Config
		task           picket.LeaseTask
		timeout, stall int // 0: none
	}{
		"claude":          {cfg: Config{Preset: agents.PresetClaude}, timeout: 7200, stall: 900},
		"codex":           {cfg: Config{Preset: agents.PresetCodex}, timeout: 7200, stall: 900},
		"gemini":          {cfg: Config{Preset: agents.PresetGemini}, timeout: 7200, stall: 900},
		"opencode":        {cfg: Config{Preset: agents.PresetOpenCode}, timeout: 7200, stall: 900},
		"exec":            {cfg: Config{Preset: agents.PresetExec}},
		"a command":       {},
		"a task's own":    {Config{Preset: agents.PresetClaude}, picket.LeaseTask{TimeoutSeconds: &own}, 7, 900},
		"its own silence": {Config{Preset: agents.PresetClaude}, picket.LeaseTask{StallAfterSeconds: &own}, 7200, 7},
		"the worker's own": {
			cfg: Config{Timeout: time.Minute, StallAfter: 2500 * time.Millisecond}, timeout: 60, stall: 3,
		},
		"switched off": {cfg: Config{Preset: agents.PresetClaude, Timeout: -1, StallAfter: -1}},
	} {
		c.cfg.Log = slog.New(slog.DiscardHandler)
		if err := c.cfg.fillTaskLimits(); err != nil {
			t.Fatal(name, err)
		}
		task := newRunScope(&c.cfg, picket.Lease{Task: c.task}).lease.Task
		for what, n := range map[string][2]int{
			"timeout": {secondsOr0(task.TimeoutSeconds), c.timeout},
			"silence": {secondsOr0(task.StallAfterSeconds), c.stall},
		} {
			if n[0] != n[1] {
				t.Errorf("%s: the %s is %d s, want %d", name, what, n[0], n[1])
			}
		}
	}
}

func secondsOr0(n *int) int {
	if n == nil {
		return 0
	}
	return *n
}

func TestBadTaskLimits(t *testing.T) {
	for field, cfg := range map[string]Config{
		"Timeout":    {Timeout: 8 * 24 * time.Hour},
		"StallAfter": {StallAfter: time.Second},
	} {
		cfg.BaseURL, cfg.Command, cfg.StateDir = "http://127.0.0.1:1", []string{"true"}, t.TempDir()
		_, err := New(cfg)
		if refusal, ok := err.(*picket.Error); !ok || refusal.Facts["field"] != field {
			t.Errorf("%s: %v", field, err)
		}
	}
}

// ScalePresetLimits makes the defaults of the presets shorter by a factor until the test ends.
func ScalePresetLimits(t *testing.T, factor time.Duration) {
	timeout, stallAfter := presetTimeout, presetStallAfter
	t.Cleanup(func() { presetTimeout, presetStallAfter = timeout, stallAfter })
	presetTimeout = func(p agents.Preset) time.Duration { return timeout(p) / factor }
	presetStallAfter = func(p agents.Preset) time.Duration { return stallAfter(p) / factor }
}
