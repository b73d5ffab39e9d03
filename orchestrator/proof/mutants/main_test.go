package mutants

import (
	"os"
	"testing"

	"github.com/picket-dev/picket/internal/rig/remains"
)

func TestMain(m *testing.M) { os.Exit(remains.WithTempDir(m, "pk-mutants-").Run()) }
