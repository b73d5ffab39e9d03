package rig

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The command that each alert names exists, with its flags.
func TestCommandsOfAlertsExist(t *testing.T) {
	SkipShort(t)
	text, err := os.ReadFile(filepath.Join(repoRoot(t), "docs", "operations", "monitoring.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, block, _ := strings.Cut(string(text), "\n```yaml alerts\n")
	block, _, _ = strings.Cut(block, "\n```\n")
	binary, checked := buildPicket(t), map[string]bool{}
	for line := range strings.Lines(block) {
		command, found := strings.CutPrefix(strings.TrimSpace(line), "command: picket ")
		if found && !checked[command] {
			checked[command] = true
			checkCommand(t, binary, "monitoring.md, alerts", command)
		}
	}
	if len(checked) < 8 {
		t.Errorf("found %d commands only", len(checked))
	}
}
