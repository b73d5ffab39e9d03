// Picket runs AI agents that cannot trample each other: one binary with the
// server, the adapter and the tools of operators, reviewers and agents.
package main

import (
	"os"
	"slices"

	"github.com/picket-dev/picket/cmd/picket/attach"
	"github.com/picket-dev/picket/cmd/picket/cli"
)

func main() {
	if slices.Contains(os.Args, "--handover") { // before it reads its arguments
		_ = attach.HideProcess()
	}
	os.Exit(cli.Execute(newRoot(), os.Args[1:]))
}
