package workspace

import (
	"testing"

	"github.com/picket-dev/picket/internal/rig/proctest"
)

// TestMain runs the tests.
func TestMain(m *testing.M) {
	proctest.Main(m, "pk-workspace-")
}
