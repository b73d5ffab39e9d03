// Package tools holds the tools of the tool proxy that cost money and act outside:
// exec starts a process in the agent's workspace, http_request makes an HTTP request,
// and sql runs a statement on a Postgres database. Each is a part of the proxy.
package tools

import (
	_ "embed"
	"slices"

	"github.com/picket-dev/picket/toolproxy"
)

//go:embed tools.json
var listingsJSON []byte

var listings = toolproxy.ParseTools(listingsJSON)

// listing is how a tool of this package is listed, without its price.
func listing(name string) toolproxy.Tool {
	i := slices.IndexFunc(listings, func(t toolproxy.Tool) bool { return t.Name == name })
	return listings[i]
}
