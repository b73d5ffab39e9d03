package kit

import (
	"flag"
	"fmt"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/picket-dev/picket/internal/rig"
)

// HalfMinute is the unit of all durations of the model and of the histories. A check
// takes less, so that it never matters how fast the machine is.
const HalfMinute = 30_000 // ms

// GivenFlags are those of the command line: asked first before any is set here.
var GivenFlags = sync.OnceValue(func() map[string]bool {
	given := map[string]bool{}
	flag.Visit(func(f *flag.Flag) { given[f.Name] = true })
	return given
})

// RapidFlags says how much is tried.
type RapidFlags struct {
	t      *testing.T
	Checks int
	Seed   uint64
}

// NewRapidFlags decides how much is tried, unless the command line says it.
func NewRapidFlags(t *testing.T) RapidFlags {
	t.Helper()
	f := RapidFlags{t: t}
	usual := map[string]string{
		"rapid.checks":     fmt.Sprint(rig.Rounds(50, 5000)),
		"rapid.steps":      "50",
		"rapid.seed":       fmt.Sprint(time.Now().UnixNano()),
		"rapid.nofailfile": "true",
	} // the seed says it all
	if t.Name() == "TestModelVirtual" {
		usual["rapid.checks"] = fmt.Sprint(rig.Rounds(25, 5000)) // a life takes longer than on a real store
	}
	if rig.Soaking() {
		usual["rapid.steps"] = "100"
	}
	if t.Name() == "TestModelVirtual" {
		usual["rapid.shrinktime"] = "23h" // virtual time: it runs much faster than ours
	}
	for name, value := range usual {
		was := flag.Lookup(name).Value.String()
		t.Cleanup(func() { _ = flag.Set(name, was) })
		if !GivenFlags()[name] {
			f.Set(name, value)
		}
	}
	var err error
	f.Checks, err = strconv.Atoi(f.get("rapid.checks"))
	OK(t, err)
	f.Seed, err = strconv.ParseUint(f.get("rapid.seed"), 10, 64)
	OK(t, err)
	return f
}

func (f RapidFlags) get(name string) string { return flag.Lookup(name).Value.String() }

func (f RapidFlags) Set(name, value string) { OK(f.t, flag.Set(name, value)) }

// Log prints how to repeat what follows.
func (f RapidFlags) Log() {
	f.t.Logf("repeat with: go test ./orchestrator/proof/model -run '^%s$' -rapid.checks=%s -rapid.steps=%s -rapid.seed=%s",
		f.t.Name(), f.get("rapid.checks"), f.get("rapid.steps"), f.get("rapid.seed"))
}
