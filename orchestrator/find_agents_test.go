package orchestrator_test

import (
	"fmt"
	"testing"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/orchestrator/proof/kit"
)

// An agent is told which roles have workers, what these can do and how many more tasks they take. It
// is told no name of any, and of no worker that takes none.
func TestFindAgents(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		register := func(id, role string, most *int, caps ...string) {
			t.Helper()
			reg := shortThresholds(id)
			reg.RoleID, reg.Capabilities = role, caps
			reg.Capacity = &picket.DeclaredCapacity{MaxConcurrentTasks: most}
			f.MustRegister(t, reg)
		}
		_, h := f.SubmitAndLease(t, picket.TaskSpec{})
		find := func(want string, role string, needs ...string) {
			t.Helper()
			found, err := f.FindAgents(f.Ctx, h, "", picket.AgentSearch{Role: role, Needs: needs})
			kit.OK(t, err)
			if got := fmt.Sprintf("%+v", found.Pools); got != want || found.More {
				t.Errorf("role %q with %q: %s, more %v, want %s", role, needs, got, found.More, want)
			}
		}
		find("[]", "")
		register("one", "coder", kit.Ptr(3), "go", "sql")
		register("two", "coder", kit.Ptr(2), "go", "rust")
		register("three", "tester", nil)
		register("four", "attached", kit.Ptr(1), "go")
		register("five", "coder", kit.Ptr(9), "go")
		_, err := f.Deregister(f.Ctx, kit.AgentOwner, "five", nil)
		kit.OK(t, err)
		coder := "{Role:coder Members:2 Capabilities:[go rust sql] FreeSlots:5 Unlimited:false}"
		tester := "{Role:tester Members:1 Capabilities:[] FreeSlots:0 Unlimited:true}"
		find("["+coder+" "+tester+"]", "")
		find("["+coder+"]", "coder", "go")
		find("[{Role:coder Members:1 Capabilities:[go sql] FreeSlots:3 Unlimited:false}]", "", "sql", "go")
		find("[]", "", "o", "go")
		find("[]", "attached")
		find("[]", "nobody")
		for _, bad := range []picket.AgentSearch{{Role: "a b"}, {Needs: []string{"a b"}}} {
			_, err := f.FindAgents(f.Ctx, h, "", bad)
			kit.Refused(t, err, picket.CodeValidation)
		}
	})
}
