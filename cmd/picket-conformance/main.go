// Picket-conformance holds a server against the rules of a document: any server that speaks
// RFC-0016, one with the wake policies of Agent Heartbeat, and the endpoint of any agent that speaks
// A2A. `picket conformance` executes it.
package main

import (
	"os"

	"github.com/picket-dev/picket/cmd/picket-conformance/command"
)

func main() { os.Exit(command.Main(os.Args[1:])) }
