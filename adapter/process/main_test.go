package process_test

import (
	"testing"

	"github.com/picket-dev/picket/internal/rig/proctest"
)

// TestMain runs the tests, or one of the agents that the tests launch.
func TestMain(m *testing.M) {
	proctest.Main(m, "pk-process-")
}
