package branches

import (
	"errors"
	"strconv"
	"testing"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/orchestrator/proof/kit"
)

// coverWrites counts beyond what Lua's numbers hold exactly, and meets a write that Redis refuses.
func coverWrites(t *testing.T, f *fixture) {
	const sums, pulse, kept = "pk:{default}:sums", "pk:{default}:pulse", "pk:{default}:kept"
	_, run := f.SubmitAndLease(t, picket.TaskSpec{BudgetEnvelope: kit.Worth(1000, "1")})
	was, err := f.Raw.HGet(f.Ctx, sums, "spent_u").Int64()
	kit.OK(t, err)
	kit.OK(t, f.Raw.HSet(f.Ctx, sums, "spent_u", 1<<53+1).Err())
	_, err = f.ReportUsage(f.Ctx, run, picket.UsageReport{Source: "claude", Session: "s1", USD: 1})
	kit.OK(t, err)
	if got := f.Raw.HGet(f.Ctx, sums, "spent_u").Val(); got != strconv.Itoa(1<<53+2) {
		t.Errorf("2^53 + 1 and 1 are %s", got)
	}
	kit.OK(t, f.Raw.HSet(f.Ctx, sums, "spent_u", was).Err())

	kit.OK(t, f.Raw.Rename(f.Ctx, pulse, kept).Err())
	kit.OK(t, f.Raw.Set(f.Ctx, pulse, "x", 0).Err())
	_, err = f.Complete(f.Ctx, run, picket.Completion{Output: picket.RawJSON(`1`)})
	if !errors.Is(err, picket.ErrUnknown) {
		t.Errorf("a call with a refused write is answered with %v", err)
	}
	kit.OK(t, f.Raw.Rename(f.Ctx, kept, pulse).Err())
	f.CancelAll(t)
}
