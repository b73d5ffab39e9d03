package branches

import (
	"testing"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/orchestrator/proof/kit"
)

// coverLateCharge charges unverified usage after a person has topped up.
func coverLateCharge(t *testing.T, f *fixture) {
	short, late := f.SubmitAndLease(t, picket.TaskSpec{BudgetEnvelope: kit.Worth(1000, "1")})
	for range 2 { // the second time there is money for what was beyond the grant
		_, err := f.ReportUsage(f.Ctx, late, picket.UsageReport{Source: "claude", Session: "s1", USD: kit.USD("1.5")})
		kit.OK(t, err)
		_, err = f.TopUp(f.Ctx, kit.Operator, short.TaskID, picket.TopUp{USD: kit.USD("1")})
		kit.OK(t, err)
	}
	f.CancelAll(t)
}
