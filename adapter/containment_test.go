package adapter

import (
	"errors"
	"strings"
	"testing"

	"github.com/picket-dev/picket"
)

// A level that is not available, and one beside a launcher that would not heed
// it, are refused before anything is leased.
func TestContainmentIsChecked(t *testing.T) {
	for name, tt := range map[string]struct {
		change func(*Config)
		why    string
		remedy string
	}{
		"unknown": {
			func(c *Config) { c.Command, c.Containment = []string{"true"}, "jail" }, "jail",
			"Use cgroup, subreaper, group",
		},
		"a launcher of its own": {
			func(c *Config) { c.Launcher, c.Containment = scriptedLauncher(runForever), picket.ContainmentGroup },
			"a Launcher of your own", "Leave it out",
		},
	} {
		cfg := Config{BaseURL: "http://127.0.0.1:1", StateDir: t.TempDir()}
		tt.change(&cfg)
		_, err := New(cfg)
		var e *picket.Error
		if !errors.As(err, &e) || e.Code != picket.CodeValidation || !strings.Contains(e.Message, tt.why) ||
			!strings.Contains(e.Remedy, tt.remedy) {
			t.Errorf("%s: got %v, want a refusal with %q and the remedy %q", name, err, tt.why, tt.remedy)
		}
	}
}
