package api

import "github.com/picket-dev/picket"

// Line is a route as the tests see it.
type Line struct {
	Method string
	Path   string
	Scopes []picket.Scope
}

// Lines is the route list, for the tests that are generated from it.
func (a *API) Lines() []Line {
	var all []Line
	for _, r := range a.routes() {
		all = append(all, Line{r.method, r.path, r.scopes})
	}
	return all
}

// IfMatch and ETag are the two directions of a version on the wire.
var (
	IfMatch = ifMatch
	ETag    = etag
)

// ScrapeAge is how old the figures of a scrape may be.
const ScrapeAge = scrapeAge
