package orchestrator_test

import (
	"testing"

	"github.com/picket-dev/picket"
)

// coverLateCharge charges unverified usage after a person has topped up.
func coverLateCharge(t *testing.T, f *fixture) {
	short, late := f.submitAndLease(t, picket.TaskSpec{BudgetEnvelope: worth(1000, "1")})
	for range 2 { // the second time there is money for what was beyond the grant
		_, err := f.ReportUsage(f.ctx, late, picket.UsageReport{Source: "claude", Session: "s1", USD: usd("1.5")})
		ok(t, err)
		_, err = f.TopUp(f.ctx, operator, short.TaskID, picket.TopUp{USD: usd("1")})
		ok(t, err)
	}
	f.cancelAll(t)
}
