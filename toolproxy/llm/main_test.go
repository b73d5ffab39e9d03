package llm_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/picket-dev/picket/internal/rig/cleanup"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(cleanup.WithTempDir(m, "pk-llm-")) }
