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
// there twice or is malformed is refused by name.
type query struct{ values url.Values }

// query parses the parameters a route knows.
func (r request) query(known ...string) (query, error) {
	values, err := web.Query(r.Request(), known)
	return query{values}, err
}

func (r request) noQuery() error {
	_, err := r.query()
	return err
}

// text is a parameter that may be there once; "" when it is absent or empty.
func (q query) text(name string) (string, error) {
	switch v := q.values[name]; len(v) {
	case 0:
		return "", nil
	case 1:
		return v[0], nil
	default:
		return "", web.RepeatedParameter(name, len(v))
	}
}

// list is a parameter that takes several values, by commas or by repetition.
func (q query) list(name string) []string {
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
func (q query) number(name string, def, lo, hi int64) (int64, error) {
	s, err := q.text(name)
	if err != nil || s == "" {
		return def, err
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil || n < lo || n > hi {
		return 0, web.BadParameter(name,
			"Send a whole number from "+strconv.FormatInt(lo, 10)+" to "+strconv.FormatInt(hi, 10)+".",
			"%s is not a number in range", name)
	}
	return n, nil
}

// page reads where a page begins and how many rows it may have.
func (q query) page() (limit int, cursor string, err error) {
	n, err := q.number("limit", 50, 1, 200)
	if err != nil {
		return 0, "", err
	}
	if cursor, err = q.text("cursor"); err == nil && len(cursor) > 64 {
		err = web.BadParameter("cursor", "Send nextCursor of the page before, or leave it out.",
			"cursor is not one of ours")
	}
	return int(n), cursor, err
}

// instant is an RFC 3339 time; zero when the parameter is absent.
func (q query) instant(name string) (picket.Instant, error) {
	s, err := q.text(name)
	if err != nil || s == "" {
		return 0, err
	}
	var at picket.Instant
	if err := at.UnmarshalJSON([]byte(strconv.Quote(s))); err != nil {
		return 0, web.BadParameter(name, `Send a time such as 2026-04-11T10:42:17Z.`, "%s is not an RFC 3339 time",
			name)
	}
	return at, nil
}

// oneOf refuses a value that is not one of the allowed ones.
func oneOf[T ~string](name, value string, allowed []T) (T, error) {
	if slices.Contains(allowed, T(value)) {
		return T(value), nil
	}
	names := make([]string, len(allowed))
	for i, a := range allowed {
		names[i] = string(a)
	}
	return "", web.BadParameter(name, "Send one of: "+strings.Join(names, ", ")+".", "%.64q is not a value of %s",
		value, name)
}

// name is an agent or role id, or "" if the parameter is absent. An empty
// parameter is refused.
func (q query) name(name string) (string, error) {
	s, err := q.text(name)
	if err != nil || !q.values.Has(name) {
		return "", err
	}
	return s, picket.CheckName("?"+name, s)
}

// id is an id made by the server, or "" if the parameter is absent. An empty
// parameter is refused.
func (q query) id(name, kind string) (string, error) {
	s, err := q.text(name)
	if err != nil || !q.values.Has(name) {
		return "", err
	}
	return s, picket.CheckID("?"+name, kind, s)
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
