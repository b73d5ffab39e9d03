package kit

import (
	"fmt"
	"testing"

	"github.com/picket-dev/picket"
)

// CheckStopMark stops a store under a mark and starts it again, and reports the first
// promise that does not hold. Planted bugs have to break one.
func CheckStopMark(t *testing.T, f *Fixture) error {
	t.Helper()
	f.MustSubmit(t, picket.TaskSpec{})
	l := f.AcquireOne(t, picket.AcquireRequest{})
	before, err := f.Stats(f.Ctx)
	OK(t, err)
	floor := before.Floor
	if MarkStop(f.Ctx, f.Engine, floor+1, 1, "m0") == nil {
		return fmt.Errorf("a process that knows another floor marks the stop")
	}
	if MarkStop(f.Ctx, f.Engine, floor, 2, "m0") == nil {
		return fmt.Errorf("an older state that was put back is marked")
	}
	if err := MarkStop(f.Ctx, f.Engine, floor, 1, "m1"); err != nil {
		return err
	}
	if _, err := f.Records().RunUnchecked(f.Ctx, "tick"); err == nil {
		return fmt.Errorf("a store that was stopped serves")
	}
	if TakeMark(f.Ctx, f.Engine, floor, "m0") == nil || TakeMark(f.Ctx, f.Engine, floor+1, "m1") == nil {
		return fmt.Errorf("another mark or floor is taken")
	}
	if err := TakeMark(f.Ctx, f.Engine, floor, "m1"); err != nil {
		return err
	}
	if TakeMark(f.Ctx, f.Engine, floor, "m1") == nil {
		return fmt.Errorf("a mark is taken twice")
	}
	renewed, err := f.Renew(f.Ctx, f.OpenLease(t, l))
	if err != nil || renewed.FencingToken != l.FencingToken {
		return fmt.Errorf("lease %d goes on as %d: %w", l.FencingToken, renewed.FencingToken, err)
	}
	after, err := f.Stats(f.Ctx)
	if err != nil || after.Floor != floor {
		return fmt.Errorf("floor %d after %d: %w", after.Floor, floor, err)
	}
	return nil
}
