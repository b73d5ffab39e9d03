package process_test

import (
	"testing"

	"github.com/picket-dev/picket/adapter/process"
	"github.com/picket-dev/picket/internal/rig/proctest"
)

// TestMain runs the tests, the shim, or one of the agents that the tests launch.
func TestMain(m *testing.M) {
	process.RunShim()
	proctest.Main(m, "pk-process-")
}
