package orchestrator_test

import (
	"fmt"
	"strings"
	"sync"

	"github.com/picket-dev/picket/orchestrator"
)

// scriptPatch is a change of the scripts that many stores get, a planted bug for
// one. It is made once, however many they are.
type scriptPatch struct {
	name string
	of   func(source string) string // nil: none
	was  sync.Map                   // by strides: *orchestrator.Rewritten
}

var noPatch scriptPatch

// batchSizes are how many leases one step ends, and how many tasks it cancels.
type batchSizes struct {
	leases int
	tasks  int
}

var defaultBatches = batchSizes{100, 100}

// apply changes the scripts of a store.
func (p *scriptPatch) apply(s *orchestrator.Store, by batchSizes) {
	was, _ := p.was.LoadOrStore(by, new(orchestrator.RewriteCache))
	orchestrator.RewriteAs(s, was.(*orchestrator.RewriteCache), func(source string) string {
		if p.of != nil {
			source = p.of(source)
		}
		source = strings.Replace(source, "local BATCH = 100", fmt.Sprint("local BATCH = ", by.leases), 1)
		return strings.Replace(source, "local STEP = 100", fmt.Sprint("local STEP = ", by.tasks), 1)
	})
}
