package toolproxy

import (
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/internal/lazyregexp"
	"github.com/picket-dev/picket/internal/web"
)

// Bounds of what several routes and tools take, in bytes.
const (
	smallBody = 64 << 10 // of a body without large members
	maxReason = 8 << 10  // it goes into the event
)

var (
	digitsPattern     = lazyregexp.New(`^[0-9]{1,16}$`)
	callIDListPattern = lazyregexp.New(`^[A-Za-z0-9_.,-]+$`)
	signalPattern     = lazyregexp.New(`^SIG[A-Z0-9+-]{1,16}$`)
)

// checkQuery refuses parameters that are unknown or repeated.
func checkQuery(c echo.Context, known []string) error {
	q, err := web.Query(c.Request(), known)
	if err != nil {
		return err
	}
	for name, values := range q {
		if len(values) > 1 {
			return web.RepeatedParameter(name, len(values))
		}
	}
	return nil
}

// queryNumber reads a whole number from 0 to most; def when the parameter is absent.
func queryNumber(q url.Values, name string, def, most int64) (int64, error) {
	if !q.Has(name) {
		return def, nil
	}
	n, err := strconv.ParseInt(q.Get(name), 10, 64)
	if err != nil || n > most || !digitsPattern().MatchString(q.Get(name)) {
		return 0, web.BadParameter(name, "Send a whole number from 0 to "+strconv.FormatInt(most, 10)+".",
			"%s is not a number in range", name)
	}
	return n, nil
}

// toolWait is how long a tool is to wait; without a number the longest.
func toolWait(seconds *int) (time.Duration, error) {
	if seconds == nil {
		return maxWait, nil
	}
	if *seconds < 0 || *seconds > int(maxWait/time.Second) {
		return 0, picket.Invalid("/waitSeconds", "Send a number from 0 to 50, and call again when the wait ran out.",
			"waitSeconds is %d, allowed are 0 to 50", *seconds)
	}
	return time.Duration(*seconds) * time.Second, nil
}

func validEventID(id string) bool {
	return len(id) <= picket.MaxEventID && !strings.ContainsFunc(id, func(r rune) bool { return r <= ' ' || r > '~' })
}

func commaList[T ~string](words []T) string {
	out := make([]string, len(words))
	for i, w := range words {
		out[i] = string(w)
	}
	return strings.Join(out, ", ")
}
