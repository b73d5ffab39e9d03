package api

import (
	"errors"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/internal/web"
)

// query reads the query string strictly: a parameter that is not known, is
// there twice or is malformed is refused by name. The first error is kept in err,
// and after it every value is empty.
type query struct {
	values url.Values
	err    error
}

// query parses the parameters a route knows.
func (r request) query(known ...string) *query {
	values, err := web.Query(r.Request(), known)
	return &query{values, err}
}

func (r request) noQuery() error { return r.query().err }

// fail keeps an error, unless there is one.
func (q *query) fail(err error) {
	if q.err == nil {
		q.err = err
	}
}

// text is a parameter that may be there once; "" when it is absent or empty.
func (q *query) text(name string) string {
	v := q.values[name]
	if len(v) > 1 {
		q.fail(web.RepeatedParameter(name, len(v)))
	}
	if q.err != nil || len(v) == 0 {
		return ""
	}
	return v[0]
}

// list is a parameter that takes several values, by commas or by repetition.
func (q *query) list(name string) []string {
	var all []string
	for _, v := range q.values[name] {
		for item := range strings.SplitSeq(v, ",") {
			if item = strings.TrimSpace(item); item != "" {
				all = append(all, item)
			}
		}
	}
	return all
}

// number is an integer from lo to hi; def when the parameter is absent.
func (q *query) number(name string, def, lo, hi int64) int64 {
	s := q.text(name)
	if s == "" {
		return def
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil || n < lo || n > hi {
		q.fail(web.BadParameter(name,
			"Send a whole number from "+strconv.FormatInt(lo, 10)+" to "+strconv.FormatInt(hi, 10)+".",
			"%s is not a number in range", name))
	}
	return n
}

// page reads where a page begins and how many rows it may have.
func (q *query) page() (limit int, cursor string) {
	return int(q.number("limit", 50, 1, 200)), q.cursor(64, "nextCursor")
}

// cursor reads a cursor of at most so many bytes. next is the member in which the page
// before has it.
func (q *query) cursor(most int, next string) string {
	s := q.text("cursor")
	if len(s) > most {
		q.fail(web.BadParameter("cursor", "Send "+next+" of the page before, or leave it out.",
			"cursor is not one of ours"))
	}
	return s
}

// instant is an RFC 3339 time; zero when the parameter is absent.
func (q *query) instant(name string) (at picket.Instant) {
	if s := q.text(name); s != "" && at.UnmarshalJSON([]byte(strconv.Quote(s))) != nil {
		q.fail(web.BadParameter(name, `Send a time such as 2026-04-11T10:42:17Z.`, "%s is not an RFC 3339 time", name))
	}
	return at
}

// choice is one of some words; otherwise when the parameter is absent.
func choice[T ~string](q *query, name string, otherwise T, words ...T) T {
	s := q.text(name)
	if s == "" {
		return otherwise
	}
	return oneOf(q, name, s, words)
}

// boolean is true or false; false when the parameter is absent.
func (q *query) boolean(name string) bool { return choice(q, name, "false", "true", "false") == "true" }

// oneOf refuses a value that is not one of the allowed ones.
func oneOf[T ~string](q *query, name, value string, allowed []T) T {
	if slices.Contains(allowed, T(value)) {
		return T(value)
	}
	names := make([]string, len(allowed))
	for i, a := range allowed {
		names[i] = string(a)
	}
	q.fail(web.BadParameter(name, "Send one of: "+strings.Join(names, ", ")+".", "%.64q is not a value of %s", value,
		name))
	return ""
}

// name is an agent or role id, or "" if the parameter is absent. An empty
// parameter is refused.
func (q *query) name(name string) string {
	s := q.text(name)
	if q.values.Has(name) {
		q.fail(picket.CheckName("?"+name, s))
	}
	return s
}

// person is the name of an assignee, or "" if the parameter is absent. An empty parameter
// is refused.
func (q *query) person(name string) string {
	s := q.text(name)
	if q.values.Has(name) {
		q.fail(picket.CheckAssignee("?"+name, s))
		if s == "" {
			q.fail(web.BadParameter(name, "Send the name of a person, or leave it out.", "%s is empty", name))
		}
	}
	return s
}

// id is an id made by the server, or "" if the parameter is absent. An empty
// parameter is refused.
func (q *query) id(name, kind string) string {
	s := q.text(name)
	if q.values.Has(name) {
		q.fail(picket.CheckID("?"+name, kind, s))
	}
	return s
}

// asParameter marks the field of a refusal as a parameter: the engine cannot know
// where a value of a query came from.
func asParameter(err error) error {
	var refusal *picket.Error
	if errors.As(err, &refusal) {
		if field, ok := refusal.Facts["field"].(string); ok && !strings.HasPrefix(field, "?") {
			refusal.With("field", "?"+field)
		}
	}
	return err
}
