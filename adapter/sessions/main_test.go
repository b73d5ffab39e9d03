package sessions

import (
	"testing"

	"github.com/picket-dev/picket/adapter/process"
	"github.com/picket-dev/picket/internal/rig/proctest"
)

// TestMain runs the tests, the shim, or one of the programs that the tests start.
func TestMain(m *testing.M) {
	process.RunShim()
	proctest.Main(m, "pk-sessions-")
}
