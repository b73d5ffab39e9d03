package console

import "github.com/picket-dev/picket"

// Line is a route as the tests see it.
type Line struct {
	Name, Method, Path string
	Scopes             []picket.Scope
	As                 []string
}

// Lines is the list of routes, for the tests that are generated from it.
func Lines() []Line {
	var all []Line
	for _, r := range routes() {
		all = append(all, Line{r.name, r.method, r.path, r.scopes, r.as})
	}
	return all
}
