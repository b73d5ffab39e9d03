package kit

import (
	"fmt"
	"strings"
	"sync"

	"github.com/picket-dev/picket/orchestrator"
)

// ScriptPatch is a change of the scripts that many stores get, a planted bug for
// one. It is made once, however many they are.
type ScriptPatch struct {
	Name string
	Of   func(source string) string // nil: none
	Was  sync.Map                   // by batch sizes: *RewriteCache
}

var NoPatch ScriptPatch

// BatchSizes are how many leases one step ends, and how many tasks it cancels.
type BatchSizes struct {
	Leases int
	Tasks  int
}

var DefaultBatches = BatchSizes{100, 100}

// Apply changes the scripts of a store.
func (p *ScriptPatch) Apply(s *orchestrator.Store, by BatchSizes) {
	was, _ := p.Was.LoadOrStore(by, new(RewriteCache))
	RewriteAs(s, was.(*RewriteCache), func(source string) string {
		if p.Of != nil {
			source = p.Of(source)
		}
		source = strings.Replace(source, "local BATCH = 100", fmt.Sprint("local BATCH = ", by.Leases), 1)
		return strings.Replace(source, "local STEP = 100 ", fmt.Sprintf("local STEP = %d ", by.Tasks), 1)
	})
}
