package workspace

import (
	"testing"

	"github.com/picket-dev/picket/adapter/process"
	"github.com/picket-dev/picket/internal/rig/proctest"
)

// TestMain runs the tests or the shim of the git commands that they start.
func TestMain(m *testing.M) {
	process.RunShim()
	proctest.Main(m, "pk-workspace-")
}
