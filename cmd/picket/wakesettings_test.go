package main

import (
	"fmt"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/picket-dev/picket/orchestrator/heartbeat"
)

// Without wake: in picket.yaml, policies are read under the defaults of their package.
func TestWakeSettingsHaveOneDefault(t *testing.T) {
	cfg, err := loadTestSettings(t, "")
	if err != nil {
		t.Fatal(err)
	}
	if got := wakeSettings(cfg); got != heartbeat.Defaults() {
		t.Errorf("the settings are %+v, want %+v", got, heartbeat.Defaults())
	}
}

// What picket.yaml accepts is within the bounds of the engine, and each key reaches it.
func TestWakeSettingsReachTheEngine(t *testing.T) {
	for _, extreme := range []string{
		"max_body_bytes: 1024", "max_body_bytes: 262144", "min_interval: 0s", "default_interval: 8760h",
		"min_interval: 8760h, default_interval: 8760h", "min_interval: 0s, default_interval: 1s",
		"wake_cooldown: 0s", "wake_cooldown: 24h", "max_wakes_per_cycle: 1", "max_wakes_per_cycle: 1000",
		"context_projection_bytes: 256", "context_projection_bytes: 262144, max_body_bytes: 262144",
		"wake_event_retention: 1h", "wake_event_retention: 8760h", "session_health_stale_after: 1s",
		"session_health_stale_after: 24h", "session_health_hook_min_interval: 0s",
		"session_health_hook_min_interval: 24h", "when_idle: true",
		"enabled: false", "allow_active_hours_preferences: false", "dir: policies",
	} {
		cfg, err := loadTestSettings(t, fmt.Sprintf("wake: {%s}\n", extreme))
		if err != nil {
			t.Errorf("%s: %v", extreme, err)
			continue
		}
		got := wakeSettings(cfg)
		if err := got.Check(); err != nil {
			t.Errorf("%s: %v", extreme, err)
		}
		if got == heartbeat.Defaults() {
			t.Errorf("%s changes nothing", extreme)
		}
	}
}

// Each setting of the engine is a key of picket.yaml. It is accepted, or refused as planned.
func TestEveryWakeSettingIsAKey(t *testing.T) {
	capital := regexp.MustCompile(`(.)([A-Z])`)
	for f := range reflect.TypeFor[heartbeat.Settings]().Fields() {
		key := strings.ToLower(capital.ReplaceAllString(f.Name, "${1}_$2"))
		_, err := loadTestSettings(t, "wake: {"+key+": [x]}\n")
		if text := fmt.Sprint(err); strings.Contains(text, "there is no key") || !strings.Contains(text, "wake."+key) {
			t.Errorf("wake.%s: %v", key, err)
		}
	}
}
