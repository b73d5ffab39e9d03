package toolproxy

import (
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/labstack/echo/v4"

	"github.com/picket-dev/picket"
)

var (
	digitsPattern = regexp.MustCompile(`^[0-9]{1,16}$`)
	knownPattern  = regexp.MustCompile(`^[A-Za-z0-9_.,-]+$`)
	signalPattern = regexp.MustCompile(`^SIG[A-Z0-9+-]{1,16}$`)
)

// checkQuery is as strict as a body's decoder: unknown and repeated parameters
// are refused.
func checkQuery(c echo.Context, known []string) error {
	q, err := url.ParseQuery(c.Request().URL.RawQuery)
	if err != nil {
		return picket.Invalid("", "Percent-encode the parameters.", "the query string is malformed")
	}
	for name, values := range q {
		if !slices.Contains(known, name) {
			return badParameter(clip(name), knownParameters(known), "%q is not a parameter of this route", clip(name))
		}
		if len(values) > 1 {
			return badParameter(name, "Send it once.", "%s is there %d times", name, len(values))
		}
	}
	return nil
}

// number reads a whole number from 0 to most; def when the parameter is absent.
func number(q url.Values, name string, def, most int64) (int64, error) {
	if !q.Has(name) {
		return def, nil
	}
	n, err := strconv.ParseInt(q.Get(name), 10, 64)
	if err != nil || n > most || !digitsPattern.MatchString(q.Get(name)) {
		return 0, badParameter(name, "Send a whole number from 0 to "+strconv.FormatInt(most, 10)+".", "%s is not a number in range", name)
	}
	return n, nil
}

func knownParameters(known []string) string {
	if len(known) == 0 {
		return "This route takes no parameters."
	}
	return "Known here: " + strings.Join(known, ", ") + "."
}

func badParameter(name, remedy, format string, args ...any) *picket.Error {
	return picket.Invalid("?"+name, remedy, format, args...)
}

// clip shortens text of a caller's that is repeated in an answer.
func clip(s string) string {
	if len(s) > 64 {
		s = s[:64] + "…"
	}
	return strings.ToValidUTF8(s, "")
}

func joined[T ~string](words []T) string {
	out := make([]string, len(words))
	for i, w := range words {
		out[i] = string(w)
	}
	return strings.Join(out, ", ")
}
