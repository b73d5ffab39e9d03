package main

import (
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// Every command that can print JSON takes --json for -o json.
func TestJSONFlagIsEverywhere(t *testing.T) {
	printing := 0
	var walk func(*cobra.Command)
	walk = func(c *cobra.Command) {
		for _, sub := range c.Commands() {
			walk(sub)
		}
		output := c.Flags().Lookup("output")
		if output == nil || !slices.Contains(strings.Split(output.Usage, ", "), "json") {
			return
		}
		printing++
		if err := c.ParseFlags([]string{"--json"}); err != nil || output.Value.String() != "json" {
			t.Errorf("%s --json: the format is %s, error %v", c.CommandPath(), output.Value, err)
		}
	}
	walk(newRoot())
	if printing < 60 {
		t.Errorf("only %d commands were found", printing)
	}
}
