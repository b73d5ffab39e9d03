// Picket runs AI agents that cannot trample each other: one binary with the
// server, the adapter and the tools of operators, reviewers and agents.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"slices"

	"charm.land/fang/v2"
	"github.com/spf13/cobra"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/adapter/process"
	"github.com/picket-dev/picket/cmd/picket/attach"
	"github.com/picket-dev/picket/cmd/picket/cli/exit"
	"github.com/picket-dev/picket/cmd/picket/cli/term"
)

// printError prints an error for a person: what happened, then what to do.
func printError(w io.Writer, root *cobra.Command, err error) {
	var quiet exit.Status
	if errors.As(err, &quiet) || errors.Is(err, context.Canceled) && picket.CodeOf(err) == picket.CodeInternal {
		return
	}
	paint := term.Painter(root.ErrOrStderr())
	fmt.Fprintf(w, "%s %s\n", paint.Bad("picket:"), term.Printable(exit.Text(err)))
	if remedy := exit.Remedy(err); remedy != "" {
		fmt.Fprintf(w, "%s %s\n", paint.Dim("  fix:"), term.Printable(remedy))
	}
}

func main() {
	process.RunShim()
	if slices.Contains(os.Args, "--handover") { // before it reads its arguments
		_ = attach.HideProcess()
	}
	os.Exit(execute(os.Args[1:]))
}

// execute runs one command line and answers the process's exit code.
func execute(args []string) int {
	root := newRoot()
	root.SetArgs(args)
	var failure error
	captureErrors(root, &failure)
	err := fang.Execute(context.Background(), root,
		fang.WithVersion(version()),
		fang.WithoutManpage(),
		fang.WithErrorHandler(func(w io.Writer, _ fang.Styles, err error) { printError(w, root, err) }))
	if err == nil && failure != nil {
		printError(root.ErrOrStderr(), root, failure)
		err = failure
	}
	return exit.Code(err)
}

// captureErrors lets a command's error pass beside fang, which asks the terminal
// for its colours before it prints one: that costs time, and the terminal's
// answer may end up in the shell's next line.
func captureErrors(c *cobra.Command, failure *error) {
	if run := c.RunE; run != nil {
		c.RunE = func(cmd *cobra.Command, args []string) error {
			*failure = inFlagTerms(cmd, run(cmd, args))
			return nil
		}
	}
	for _, sub := range c.Commands() {
		captureErrors(sub, failure)
	}
}

// version is the revision the binary was built from.
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
