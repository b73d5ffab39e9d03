package llm

import (
	"net/http"
	"slices"
	"strings"

	"github.com/picket-dev/picket/toolproxy"
)

// sdkHeaders are headers that the vendors' libraries, and agents built on them, send and
// need. No other header goes to a vendor or a gateway, because it could name another
// model, account or address than the one that was checked. A name that ends in - covers
// what begins with it. Idempotency-Key is not in the list: each admitted call is charged,
// so the vendor must not take one for the repetition of another.
var sdkHeaders = []string{"Accept", "Content-Type", "User-Agent", "X-Stainless-", "X-Client-Request-Id", "Originator",
	"Version", "Session-Id", "Session_id", "Thread-Id", "Conversation_id", "X-Session-Id", "X-Session-Affinity"}

// forwardedHeaders are the headers of an agent's request that go to its vendor.
func (v *vendor) forwardedHeaders(from http.Header) http.Header {
	to := http.Header{}
	for name, values := range endToEndHeaders(from) {
		if matchesAny(sdkHeaders, name) || matchesAny(v.headers, name) {
			to[name] = values
		}
	}
	return to
}

func matchesAny(list []string, name string) bool {
	return slices.ContainsFunc(list, func(entry string) bool {
		return entry == name || strings.HasSuffix(entry, "-") && strings.HasPrefix(name, entry)
	})
}

// checkPriceableHeaders refuses what would make a call dearer by its headers.
func checkPriceableHeaders(h http.Header) error {
	return refuseLongContext(strings.Join(h.Values("Anthropic-Beta"), ","))
}

// neverForwarded are headers of either direction that concern one connection, or one
// side of this proxy only.
var neverForwarded = map[string]bool{
	"Connection":          true,
	"Keep-Alive":          true,
	"Proxy-Authenticate":  true,
	"Proxy-Authorization": true,
	"Proxy-Connection":    true,
	"Te":                  true,
	"Trailer":             true,
	"Transfer-Encoding":   true,
	"Upgrade":             true,
	"Content-Length":      true,
	"Accept-Encoding":     true,
	"Content-Encoding":    true,
	"Expect":              true,
	"Authorization":       true,
	"X-Api-Key":           true,
	"Cookie":              true,
	"Set-Cookie":          true,
	"Host":                true,
	toolproxy.FenceHeader: true,
}

// endToEndHeaders is a header without what stays on its side.
func endToEndHeaders(from http.Header) http.Header {
	to := http.Header{}
	var named []string // by Connection: of this hop as well
	for _, list := range from.Values("Connection") {
		for name := range strings.SplitSeq(list, ",") {
			named = append(named, http.CanonicalHeaderKey(strings.TrimSpace(name)))
		}
	}
	for name, values := range from {
		if !neverForwarded[name] {
			to[name] = append([]string(nil), values...)
		}
	}
	for _, name := range named {
		delete(to, name)
	}
	return to
}
