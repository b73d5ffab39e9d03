// Picket runs AI agents that cannot trample each other: one binary with the
// server, the adapter and the tools of operators, reviewers and agents.
package main

import (
	"context"
	"io"
	"os"
	"runtime/debug"

	"charm.land/fang/v2"
)

func main() { os.Exit(execute(os.Args[1:])) }

// execute runs one command line and answers the process's exit code.
func execute(args []string) int {
	root := newRoot()
	root.SetArgs(args)
	// Without a Go-side tag the version is the revision the binary was built from.
	err := fang.Execute(context.Background(), root,
		fang.WithVersion(version()),
		fang.WithoutManpage(),
		fang.WithErrorHandler(func(w io.Writer, styles fang.Styles, err error) { complain(w, root, err) }))
	return exitCode(err)
}

func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	revision, modified := "", ""
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision" && len(s.Value) >= 12:
			revision = s.Value[:12]
		case s.Key == "vcs.modified" && s.Value == "true":
			modified = "+"
		}
	}
	if revision == "" {
		return "devel"
	}
	return revision + modified
}
