package llm_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/picket-dev/picket/internal/rig/remains"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(remains.WithTempDir(m, "pk-llm-")) }
