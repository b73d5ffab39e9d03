package sessions

import (
	"testing"

	"github.com/picket-dev/picket/internal/rig/proctest"
)

// TestMain runs the tests or one of the programs that the tests start.
func TestMain(m *testing.M) {
	proctest.Main(m, "pk-sessions-")
}
