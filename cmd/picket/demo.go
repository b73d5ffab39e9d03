package main

import "github.com/spf13/cobra"

func newDemo() *cobra.Command {
	return noun("demo", "See it happen, offline, with real processes")
}
