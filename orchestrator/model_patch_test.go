package orchestrator_test

import (
	"fmt"
	"strings"
	"sync"

	"github.com/picket-dev/picket/orchestrator"
)

// patch is a change of the scripts that many stores get, a planted bug for
// one. It is made once, however many they are.
type patch struct {
	name string
	of   func(source string) string // nil: none
	was  sync.Map                   // by strides: *orchestrator.Rewritten
}

var unpatched patch

// strides are how many leases one step ends, and how many tasks it cancels.
type strides struct {
	leases int
	tasks  int
}

var usual = strides{100, 100}

// to changes the scripts of a store.
func (p *patch) to(s *orchestrator.Store, by strides) {
	was, _ := p.was.LoadOrStore(by, new(orchestrator.Rewritten))
	orchestrator.RewriteAs(s, was.(*orchestrator.Rewritten), func(source string) string {
		if p.of != nil {
			source = p.of(source)
		}
		source = strings.Replace(source, "local BATCH = 100", fmt.Sprint("local BATCH = ", by.leases), 1)
		return strings.Replace(source, "local STEP = 100", fmt.Sprint("local STEP = ", by.tasks), 1)
	})
}
