package client

import (
	"iter"
	"net/url"
	"strconv"
	"strings"

	"github.com/picket-dev/picket"
)

// parameters makes a query of names and values, which alternate. It leaves out what is
// zero.
func parameters(pairs ...any) url.Values {
	q := url.Values{}
	for i := 0; i < len(pairs); i += 2 {
		name, text := pairs[i].(string), ""
		switch v := pairs[i+1].(type) {
		case string:
			text = v
		case int:
			text = number(int64(v))
		case int64:
			text = number(v)
		case bool:
			text = map[bool]string{true: "true"}[v]
		case picket.Instant:
			text = map[bool]string{false: v.String()}[v.IsZero()]
		case map[string]string:
			for key, value := range v {
				q.Add(name, key+"="+value)
			}
		}
		if text != "" {
			q.Set(name, text)
		}
	}
	return q
}

func number(n int64) string {
	if n == 0 {
		return ""
	}
	return strconv.FormatInt(n, 10)
}

// joined writes values as one parameter.
func joined[T ~string](values []T) string {
	var b strings.Builder
	for i, v := range values {
		b.WriteString(","[:min(i, 1)] + string(v))
	}
	return b.String()
}

// all reads page after page. A page names the cursor of the next one, nil at the end.
func all[T any](cursor string, page func(cursor string) ([]T, *string, error)) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		for {
			items, next, err := page(cursor)
			for _, item := range items {
				if !yield(item, nil) {
					return
				}
			}
			if err != nil {
				var none T
				yield(none, err)
				return
			}
			if next == nil || *next == "" {
				return
			}
			cursor = *next
		}
	}
}
