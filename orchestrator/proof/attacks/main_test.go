package attacks

import (
	"os"
	"testing"

	"github.com/picket-dev/picket/internal/rig/remains"
)

func TestMain(m *testing.M) { os.Exit(remains.WithTempDir(m, "pk-attacks-").Run()) }
