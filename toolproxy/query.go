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
	signalPattern = regexp.MustCompile(`^SIG[A-Z0-9+-]{1,16}$`)
)

// query reads the query parameters, as strictly as a body: unknown and
// repeated ones are refused.
func query(c echo.Context, known ...string) (url.Values, error) {
	q, err := url.ParseQuery(c.Request().URL.RawQuery)
	if err != nil {
		return nil, picket.Invalid("", "Escape the query as a URL asks for.", "the query string cannot be read")
	}
	for name, values := range q {
		if !slices.Contains(known, name) {
			return nil, picket.Invalid("?"+clip(name), "Leave it out. Known here: "+strings.Join(known, ", ")+".", "?%s is not a known parameter", clip(name))
		}
		if len(values) > 1 {
			return nil, picket.Invalid("?"+name, "Send it once.", "?%s is there twice", name)
		}
	}
	return q, nil
}

// number reads a whole number from 0 to most; def when the parameter is absent.
func number(q url.Values, name string, def, most int64) (int64, error) {
	if !q.Has(name) {
		return def, nil
	}
	n, err := strconv.ParseInt(q.Get(name), 10, 64)
	if err != nil || n > most || !digitsPattern.MatchString(q.Get(name)) {
		return 0, picket.Invalid("?"+name, "Send a whole number from 0 to "+strconv.FormatInt(most, 10)+".", "?%s is not a whole number in range", name)
	}
	return n, nil
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
