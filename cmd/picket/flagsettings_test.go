package main

import (
	"os"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/picket-dev/picket/cmd/picket/cli"
	"github.com/picket-dev/picket/cmd/picket/settings"
)

// loadTestSettings parses a command line and resolves its settings.
func loadTestSettings(t *testing.T, file string, line ...string) (settings.Settings, error) {
	t.Helper()
	t.Chdir(t.TempDir())
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
	if file != "" {
		if err := os.WriteFile("picket.yaml", []byte(file), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	c := newUp()
	c.Flags().String("config", "", "")
	c.Flags().String("url", "", "")
	if file != "" {
		line = append([]string{"--config", "picket.yaml"}, line...)
	}
	if err := c.ParseFlags(line); err != nil {
		t.Fatal(err)
	}
	return settings.LoadSettings(c)
}

// TestEverySettingIsHonoured: a command has each flag that the settings name.
func TestEverySettingIsHonoured(t *testing.T) {
	flags := map[string]bool{}
	var visit func(*cobra.Command)
	visit = func(c *cobra.Command) {
		for _, s := range settings.KnownSettings() {
			if c.Flags().Lookup(s.Flag) != nil || c.PersistentFlags().Lookup(s.Flag) != nil {
				flags[s.Flag] = true
			}
		}
		for _, sub := range c.Commands() {
			visit(sub)
		}
	}
	visit(newRoot())
	for _, s := range settings.KnownSettings() {
		if s.Flag != "" && !flags[s.Flag] {
			t.Errorf("%s names the flag --%s, which no command has", s.Name, s.Flag)
		}
	}
}

// Flag and environment stand above an entry, the file's general keys below it.
func TestOrderOfARolesSettings(t *testing.T) {
	t.Setenv("PICKET_STALL_AFTER", "1m")
	got, err := loadTestSettings(t, `
stall_after: 9m
agents:
  coder:
    stall_after: 3m
    workspace: {source: worktree}
    timeout: 10m
    retry: {max_attempts: 5, on: [timeout, crash]}
    escalate: fail
`)
	if err != nil {
		t.Fatal(err)
	}
	own := got.ForRole("coder")
	if own.StallAfter != time.Minute || own.Workspace.Source != "worktree" {
		t.Errorf("stall_after = %s, workspace.source = %q", own.StallAfter, own.Workspace.Source)
	}
	c, _, err := newRoot().Find([]string{"task", "create"})
	if err != nil {
		t.Fatal(err)
	}
	c.InheritedFlags() // so that --config is among its own
	if err := c.Flags().Set("config", "picket.yaml"); err != nil {
		t.Fatal(err)
	}
	for _, line := range [][]string{
		{"--role", "coder", "--stall-after", "30s", "--retries", "1", "--review", "human", "--budget", "2"},
		{"--role", "tester"},
	} {
		if err := c.ParseFlags(line); err != nil {
			t.Fatal(err)
		}
		cfg, err := settings.LoadSettings(c)
		if err != nil {
			t.Fatal(err)
		}
		spec, err := cli.SpecOf(c, cfg, "x")
		if err != nil {
			t.Fatal(err)
		}
		if *spec.StallAfterSeconds != 30 || *spec.Retry.MaxAttempts != 2 || spec.Review != "human" ||
			spec.BudgetEnvelope.USD.String() != "2" {
			t.Errorf("a flag does not stand above the entry: %+v", spec)
		}
		fromEntry := spec.Role == "coder"
		if retries := len(spec.Retry.On) == 2 && spec.Retry.On[0] == "timeout"; retries != fromEntry ||
			(spec.Escalate == "fail") != fromEntry || (spec.TimeoutSeconds != nil) != fromEntry {
			t.Errorf("role %s: %+v", spec.Role, spec)
		}
	}
}
