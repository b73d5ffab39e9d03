package main

import (
	"slices"
	"testing"

	"github.com/spf13/cobra"
)

// notWatched show what lies on this machine or belongs to one run, and no event
// is about it.
var notWatched = []string{"picket config show", "picket tool list"}

// Every list and every view of one thing can be watched.
func TestEveryViewCanBeWatched(t *testing.T) {
	views := 0
	var walk func(*cobra.Command)
	walk = func(c *cobra.Command) {
		for _, sub := range c.Commands() {
			walk(sub)
		}
		if !slices.Contains([]string{"list", "get", "show", "runs", "reports", "explain", "ledger"}, c.Name()) ||
			slices.Contains(notWatched, c.CommandPath()) {
			return
		}
		views++
		if c.Flags().ShorthandLookup("w") == nil || c.Flags().Lookup("watch") == nil {
			t.Errorf("%s has no --watch", c.CommandPath())
		}
	}
	walk(newRoot())
	if views < 18 {
		t.Errorf("only %d views were found", views)
	}
}
