package format

import (
	"os"
	"testing"

	"github.com/picket-dev/picket/internal/rig/cleanup"
)

func TestMain(m *testing.M) { os.Exit(cleanup.WithTempDir(m, "pk-format-").Run()) }
