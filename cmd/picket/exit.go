package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/picket-dev/picket"
)

// Exit codes. They are an interface: scripts branch on them.
const (
	exitOK          = 0
	exitError       = 1
	exitUsage       = 2
	exitNotFound    = 3
	exitConflict    = 4
	exitBudget      = 5
	exitUnavailable = 6
	exitTimeout     = 124
)

// codeUsage is a mistake on the command line; it never travels over the wire.
const codeUsage picket.Code = "usage"

func usageError(format string, args ...any) *picket.Error {
	return picket.Refuse(codeUsage, "", format, args...)
}

// notAvailable refuses a command or flag of something that is not built yet, and says
// what to do instead.
func notAvailable(what, subject, instead string) *picket.Error {
	e := picket.NotAvailable(what, subject)
	e.Remedy = instead
	return e
}

// exitStatus carries an exit code out of a command that has already said all there
// is to say.
type exitStatus int

func (e exitStatus) Error() string { return fmt.Sprintf("exit %d", int(e)) }

func exitCode(err error) int {
	var quiet exitStatus
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, &quiet):
		return int(quiet)
	case isCobraUsage(err):
		return exitUsage
	}
	switch code := picket.CodeOf(err); code {
	case codeUsage, picket.CodeValidation, picket.CodeNotAvailable:
		return exitUsage
	default:
		return exitForHTTP(code.Status())
	}
}

func exitForHTTP(status int) int {
	switch status {
	case 400, 413, 415:
		return exitUsage
	case 402:
		return exitBudget
	case 404, 405:
		return exitNotFound
	case 409, 410, 412, 422, 428:
		return exitConflict
	case 429, 503:
		return exitUnavailable
	}
	return exitError
}

// isCobraUsage recognizes cobra's own errors, which have no type.
func isCobraUsage(err error) bool {
	for _, prefix := range []string{"unknown command", "unknown flag", "unknown shorthand", "flag needs",
		"invalid argument", "required flag", "if any flags in the group", "at least one of the flags"} {
		if strings.HasPrefix(err.Error(), prefix) {
			return true
		}
	}
	return false
}

// printError prints an error for a person: what happened, then what to do.
func printError(w io.Writer, root *cobra.Command, err error) {
	var quiet exitStatus
	if errors.As(err, &quiet) || errors.Is(err, context.Canceled) && picket.CodeOf(err) == picket.CodeInternal {
		return
	}
	paint := painter(root.ErrOrStderr())
	fmt.Fprintf(w, "%s %s\n", paint.bad("picket:"), printable(errorText(err)))
	if remedy := remedyOf(err); remedy != "" {
		fmt.Fprintf(w, "%s %s\n", paint.dim("  fix:"), printable(remedy))
	}
}

// errorText is the message with the server's code, so that a script's log and
// the documentation can be matched.
func errorText(err error) string {
	var e *picket.Error
	if !errors.As(err, &e) {
		return err.Error()
	}
	text := err.Error()
	if field, ok := e.Facts["field"].(string); ok && !strings.Contains(text, strings.TrimPrefix(field, "/")) {
		text = field + ": " + text
	}
	if e.Code != codeUsage && e.Code != picket.CodeInternal {
		text += " [" + string(e.Code) + "]"
	}
	if id, ok := e.Facts["requestId"].(string); ok && e.Code == picket.CodeInternal {
		text += " (request " + id + ")"
	}
	return text
}

func remedyOf(err error) string {
	var e *picket.Error
	if errors.As(err, &e) {
		return e.Remedy
	}
	if isCobraUsage(err) {
		return "Add --help for usage."
	}
	return ""
}
