package api

import "github.com/picket-dev/picket"

// RouteInfo is a route as the tests see it.
type RouteInfo struct {
	Method string
	Path   string
	Scopes []picket.Scope
}

// RouteList is the route list, for the tests that are generated from it.
func (a *API) RouteList() []RouteInfo {
	var all []RouteInfo
	for _, r := range a.routes() {
		all = append(all, RouteInfo{r.method, r.path, r.scopes})
	}
	return all
}

// IfMatch and ETag are the two directions of a version on the wire.
var (
	IfMatch = ifMatch
	ETag    = etag
)

// StatsMaxAge is how old the figures of a scrape may be.
const StatsMaxAge = statsMaxAge
