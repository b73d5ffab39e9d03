package web

import (
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/internal/text"
)

// Query reads the parameters of a request as strictly as a body's decoder: one
// that is not among those known is refused by name.
func Query(r *http.Request, known []string) (url.Values, error) {
	values, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return nil, picket.Invalid("", "Percent-encode the parameters.", "the query string is malformed")
	}
	for name := range values {
		if !slices.Contains(known, name) {
			remedy := "This route takes no parameters."
			if len(known) > 0 {
				remedy = "Known here: " + strings.Join(known, ", ") + "."
			}
			name = Shortened(name)
			return nil, BadParameter(name, remedy, "%q is not a parameter of this route", name)
		}
	}
	return values, nil
}

// RepeatedParameter refuses a parameter that is there several times.
func RepeatedParameter(name string, times int) *picket.Error {
	return BadParameter(name, "Send it once.", "%s is there %d times", name, times)
}

// BadParameter names the parameter with a question mark, so that it cannot be
// taken for a member of the body.
func BadParameter(name, remedy, format string, args ...any) *picket.Error {
	return picket.Invalid("?"+name, remedy, format, args...)
}

// Shortened is text of a caller's as it is repeated in an answer, 64 bytes of it.
func Shortened(s string) string { return text.Shorten(s, 64) }
