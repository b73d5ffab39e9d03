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
	of  func(source string) string // nil: none
	was sync.Map                   // by the size of a batch: *orchestrator.Rewritten
}

var unpatched patch

// to changes the scripts of a store, also how many leases one step ends.
func (p *patch) to(s *orchestrator.Store, batch int) {
	was, _ := p.was.LoadOrStore(batch, new(orchestrator.Rewritten))
	orchestrator.RewriteAs(s, was.(*orchestrator.Rewritten), func(source string) string {
		if p.of != nil {
			source = p.of(source)
		}
		return strings.Replace(source, "local BATCH = 100", fmt.Sprint("local BATCH = ", batch), 1)
	})
}
