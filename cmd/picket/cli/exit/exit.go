// Package exit holds the exit codes of the picket commands and the usage error.
package exit

import (
	"errors"
	"fmt"
	"strings"

	"github.com/picket-dev/picket"
)

// Exit codes. They are an interface: scripts branch on them.
const (
	OK          = 0
	Error       = 1
	Usage       = 2
	NotFound    = 3
	Conflict    = 4
	Budget      = 5
	Unavailable = 6
	Timeout     = 124
	Interrupted = 130 // as a shell reports Ctrl-C
)

// CodeUsage is a mistake on the command line; it never travels over the wire.
const CodeUsage picket.Code = "usage"

// CodeUnanswered is a prompt that the agent has not answered; it never travels over the wire.
const CodeUnanswered picket.Code = "prompt_unanswered"

// Usagef is a mistake on the command line or in picket.yaml; the exit code is 2.
func Usagef(format string, args ...any) *picket.Error {
	return picket.Refuse(CodeUsage, "", format, args...)
}

// NotAvailable refuses a command or flag of something that is not built yet, and says
// what to do instead.
func NotAvailable(what, subject, instead string) *picket.Error {
	e := picket.NotAvailable(what, subject)
	e.Remedy = instead
	return e
}

// Status carries an exit code out of a command that has already said all there
// is to say.
type Status int

// Error names the exit code.
func (e Status) Error() string { return fmt.Sprintf("exit %d", int(e)) }

// Code is the exit code for the error that a command returned; 0 for nil.
func Code(err error) int {
	var quiet Status
	switch {
	case err == nil:
		return OK
	case errors.As(err, &quiet):
		return int(quiet)
	case isCobraUsage(err):
		return Usage
	}
	switch code := picket.CodeOf(err); code {
	case CodeUsage, picket.CodeValidation, picket.CodeNotAvailable, picket.CodePolicyInvalid:
		return Usage
	default:
		return ForHTTP(code.Status())
	}
}

// ForHTTP is the exit code for the status of a server's answer.
func ForHTTP(status int) int {
	switch status {
	case 400, 413, 415:
		return Usage
	case 402:
		return Budget
	case 404, 405:
		return NotFound
	case 409, 410, 412, 422, 428:
		return Conflict
	case 429, 503:
		return Unavailable
	}
	return Error
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

// Text is the message with the server's code, so that a script's log and
// the documentation can be matched.
func Text(err error) string {
	var e *picket.Error
	if !errors.As(err, &e) {
		return err.Error()
	}
	text := err.Error()
	if field, ok := e.Facts["field"].(string); ok && !strings.Contains(text, strings.TrimPrefix(field, "/")) {
		text = field + ": " + text
	}
	if e.Code != CodeUsage && e.Code != picket.CodeInternal {
		text += " [" + string(e.Code) + "]"
	}
	if id, ok := e.Facts["requestId"].(string); ok && e.Code == picket.CodeInternal {
		text += " (request " + id + ")"
	}
	return text
}

// Remedy is what a person can do about an error, or "" where nothing is known.
func Remedy(err error) string {
	var e *picket.Error
	if errors.As(err, &e) {
		return e.Remedy
	}
	if isCobraUsage(err) {
		if group, ok := strings.CutPrefix(err.Error(), "at least one of the flags in the group ["); ok {
			group, _, _ = strings.Cut(group, "]")
			return "Give one of --" + strings.ReplaceAll(group, " ", ", --") + "."
		}
		return "Add --help for usage."
	}
	return ""
}
