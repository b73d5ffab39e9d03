package heartbeat

import (
	"slices"
	"strings"
	"time"
	_ "time/tzdata" // the same names on every machine

	"github.com/picket-dev/picket/internal/lazyregexp"
)

// areas begin the names of time zones of places. Etc is not one of them: its names are fixed offsets.
var areas = []string{"Africa", "America", "Antarctica", "Arctic", "Asia", "Atlantic", "Australia", "Brazil",
	"Canada", "Chile", "Europe", "Indian", "Mexico", "Pacific", "US"}

var zoneName = lazyregexp.New(`^[A-Za-z]+(/[A-Za-z0-9_+-]+){1,2}$`)

// location returns the time zone of an IANA name of an area and a place, or UTC. Every other name is
// unknown: Local, fixed offsets, abbreviations such as EST, and Etc/GMT+3.
func location(name string) (*time.Location, bool) {
	if name == "UTC" {
		return time.UTC, true
	}
	area, _, _ := strings.Cut(name, "/")
	if !zoneName().MatchString(name) || !slices.Contains(areas, area) {
		return nil, false
	}
	zone, err := time.LoadLocation(name)
	return zone, err == nil
}
