// Picket-conformance holds any server that speaks RFC-0016 against the rules of
// the document. `picket conformance` executes it.
package main

import (
	"os"

	"github.com/picket-dev/picket/cmd/picket-conformance/command"
)

func main() { os.Exit(command.Main(os.Args[1:])) }
