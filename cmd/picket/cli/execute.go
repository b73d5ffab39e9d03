package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime/debug"
	"strings"

	"charm.land/fang/v2"
	"github.com/spf13/cobra"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/cmd/picket/cli/exit"
	"github.com/picket-dev/picket/cmd/picket/cli/term"
	"github.com/picket-dev/picket/internal/lazyregexp"
	"github.com/picket-dev/picket/internal/text"
)

// PrintError prints an error for a person: what happened, then what to do.
func PrintError(w io.Writer, root *cobra.Command, err error) {
	var quiet exit.Status
	if errors.As(err, &quiet) || errors.Is(err, context.Canceled) && picket.CodeOf(err) == picket.CodeInternal {
		return
	}
	paint := term.Painter(root.ErrOrStderr())
	fmt.Fprintf(w, "%s %s\n", paint.Bad("picket:"), text.Printable(exit.Text(err)))
	if remedy := exit.Remedy(err); remedy != "" {
		fmt.Fprintf(w, "%s %s\n", paint.Dim("  fix:"), text.Printable(remedy))
	}
}

// Execute runs one command line of root, prints its error, and returns the
// exit code of the process.
func Execute(root *cobra.Command, args []string) int {
	root.SetArgs(args)
	var failure error
	captureErrors(root, &failure)
	err := fang.Execute(context.Background(), root,
		fang.WithVersion(Version()),
		fang.WithoutManpage(),
		fang.WithErrorHandler(func(w io.Writer, _ fang.Styles, err error) { PrintError(w, root, err) }))
	if err == nil && failure != nil {
		PrintError(root.ErrOrStderr(), root, failure)
		err = failure
	}
	return exit.Code(err)
}

// captureErrors keeps a command's error away from fang, which asks the terminal for its colours
// before it prints an error. That costs time, and the terminal's answer may end up in the next line
// of the shell.
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

// Version is the revision that the binary was built from, or "devel".
func Version() string {
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

// UnwrapHelp leaves the line breaks of the help to the terminal it is read on.
func UnwrapHelp(c *cobra.Command) {
	c.Long = strings.ReplaceAll(c.Long, "\n", " ")
	for _, sub := range c.Commands() {
		UnwrapHelp(sub)
	}
}

// plannedFlags are flags of the design that wait for something unbuilt.
var plannedFlags = map[string]string{
	"--public-url": "public agent addresses",
}

// badValue is what is said of a flag whose value is not a number, a truth value or
// no duration.
var badValue = lazyregexp.New(`^invalid argument "(.*)" for "(?:-., )?(--[a-z-]+)" flag: (strconv\.ParseInt|strconv\.ParseBool|time): `)

// flagValueKinds says what those flags take.
var flagValueKinds = map[string]string{
	"strconv.ParseInt": "a whole number that can be counted", "strconv.ParseBool": "true or false",
	"time": "a duration: write a number and its unit, such as 90s, 10m or 2h",
}

// FlagError explains a flag that could not be read.
func FlagError(err error) error {
	if name, ok := strings.CutPrefix(err.Error(), "unknown flag: "); ok {
		if subject, later := plannedFlags[name]; later {
			return exit.NotAvailable("the flag "+name, subject, "Leave it out; --help shows the flags there are.")
		}
	}
	e := exit.Usagef("%v", err)
	e.Remedy = "Add --help for the flags there are."
	if found := badValue().FindStringSubmatch(err.Error()); found != nil {
		e = exit.Usagef("%s %s is not %s", found[2], term.ShellQuote(found[1]), flagValueKinds[found[3]])
	}
	return e
}
