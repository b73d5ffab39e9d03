package branches

import (
	"testing"

	"github.com/picket-dev/picket/orchestrator/proof/kit"
)

// fixture is that of the kit, with methods that lead to branches.
type fixture struct{ *kit.Fixture }

// Cover takes every branch of every script.
func Cover(t *testing.T, f *kit.Fixture) { coverAll(t, &fixture{f}) }
