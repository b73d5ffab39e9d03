package orchestrator_test

import (
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/budget"
	"github.com/picket-dev/picket/internal/rig"
	"github.com/picket-dev/picket/orchestrator"
	"github.com/picket-dev/picket/orchestrator/proof/kit"
)

// Money moves for nobody whose lease does not hold, and for nobody while all is
// paused; a refusal takes nothing.
func TestReserveIsRefused(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		task, h := f.SubmitAndLease(t, picket.TaskSpec{})
		kept := f.MustReserve(t, h, kit.SameCall("1", "a", "0.1"))
		f.MustSettle(t, kit.DoneSettlement(kept, "0.1"))
		deny := func(h picket.LeaseCredential, code picket.Code) {
			t.Helper()
			for _, c := range []picket.CallRequest{kit.PaidCall("0"), kit.SameCall("1", "a", "0.1")} {
				_, err := f.Reserve(f.Ctx, h, c)
				kit.Refused(t, err, code)
			}
		}
		other := h
		other.Secret = strings.Repeat("0", 64)
		deny(other, picket.CodeLeaseExpired)
		other = h
		other.Fence = 9
		deny(other, picket.CodeUnknownFence)
		other = h
		other.TaskID = kit.NoTask
		deny(other, picket.CodeTaskMismatch)
		_, err := f.Pause(f.Ctx, kit.Operator, false, "r")
		kit.OK(t, err)
		_, err = f.Reserve(f.Ctx, h, kit.PaidCall("0"))
		kit.Refused(t, err, picket.CodePaused)
		if f.MustReserve(t, h, kit.SameCall("1", "a", "0.1")).Replay == nil { // costs nothing
			t.Error("no replay while paused")
		}
		_, err = f.Resume(f.Ctx, kit.Operator, "r")
		kit.OK(t, err)
		_, err = f.Expire(f.Ctx, kit.Operator, task.TaskID, "r")
		kit.OK(t, err)
		deny(h, picket.CodeLeaseExpired)
		next := f.OpenLease(t, f.AcquireOne(t, picket.AcquireRequest{AgentID: "a1"}))
		deny(h, picket.CodeStaleFence)
		f.wantEnvelope(t, task.TaskID, "1", "0.9", "0", "0.1")
		f.CancelAll(t)
		deny(next, picket.CodeTaskCancelled)
	})
}

// What no call can be is refused before the store is asked.
func TestCallsAreChecked(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		task, h := f.SubmitAndLease(t, picket.TaskSpec{})
		for i, change := range []func(c *picket.CallRequest){
			func(c *picket.CallRequest) { c.CallID = "" }, func(c *picket.CallRequest) { c.CallID = "a:b" },
			func(c *picket.CallRequest) { c.Nonce = "" }, func(c *picket.CallRequest) { c.Nonce = "a b" },
			func(c *picket.CallRequest) { c.Tool = "" }, func(c *picket.CallRequest) { c.Tool = "a b" },
			func(c *picket.CallRequest) { c.Effects = "" }, func(c *picket.CallRequest) { c.TimeoutMs = 0 },
			func(c *picket.CallRequest) { c.TimeoutMs = 3_600_001 },
			func(c *picket.CallRequest) { c.Effects, c.TimeoutMs = picket.EffectsExternal, 120_001 },
			func(c *picket.CallRequest) { c.Reserve.USD = -1 }, func(c *picket.CallRequest) { c.Reserve.Tokens = -1 },
			func(c *picket.CallRequest) { c.Reserve.Tokens = 1 << 60 },
			func(c *picket.CallRequest) { c.Reserve.USD = 1 << 60 },
			func(c *picket.CallRequest) { c.Hash = "\n" },
			func(c *picket.CallRequest) { c.PriceVersion = strings.Repeat("v", 200) },
		} {
			c := kit.PaidCall("0.1")
			change(&c)
			if _, err := f.Reserve(f.Ctx, h, c); picket.CodeOf(err) != picket.CodeValidation {
				t.Errorf("change %d: %v", i, err)
			}
		}
		r := f.MustReserve(t, h, kit.PaidCall("0.1"))
		for i, change := range []func(s *picket.Settlement){
			func(s *picket.Settlement) { s.Outcome = "lost" }, func(s *picket.Settlement) { s.TaskID = "x" },
			func(s *picket.Settlement) { s.Cost.USD = -1 }, func(s *picket.Settlement) { s.Cost.USD = 1 << 60 },
		} {
			s := kit.DoneSettlement(r, "0.1")
			change(&s)
			if _, err := f.Settle(f.Ctx, s); picket.CodeOf(err) != picket.CodeValidation {
				t.Errorf("change %d: %v", i, err)
			}
		}
		_, err := f.Settle(f.Ctx,
			picket.Settlement{CallID: "none", TaskID: task.TaskID, Nonce: "n", Outcome: picket.CallDone})
		kit.Refused(t, err, picket.CodeNotFound)
		f.wantEnvelope(t, task.TaskID, "1", "0.9", "0.1", "0")
	})
}

// An agent that asks again and again does not flood the log.
func TestRefusalsAreToldTwentyTimesAMinute(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		_, h := f.SubmitAndLease(t, picket.TaskSpec{BudgetEnvelope: kit.Worth(0, "0")})
		for range 30 {
			_, err := f.Reserve(f.Ctx, h, kit.PaidCall("0.1"))
			kit.Refused(t, err, picket.CodeBudgetExceeded)
		}
		if got := f.countEvents(t, picket.EventBudgetExceeded); got != 20 {
			t.Errorf("%d events of 30 refusals", got)
		}
	})
}

// A nudge goes with what an agent reads, not with what an LLM answers.
func TestAPaidCallTellsTheNudge(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		_, h := f.SubmitAndLease(t, picket.TaskSpec{})
		kit.OK(t, f.RunEvents(f.Ctx, h, []picket.RunEvent{{Type: picket.EventRunStalled, IdleSeconds: kit.Ptr(9.0)}}))
		c := kit.PaidCall("0")
		c.Tool = "llm_anthropic"
		if got := f.MustReserve(t, h, c); got.Nudge != nil {
			t.Errorf("the LLM got %+v", got.Nudge)
		}
		c = kit.PaidCall("0")
		for range 2 { // the answer was lost
			if got := f.MustReserve(t, h, c); got.Nudge == nil || got.Nudge.Cause != "silent" {
				t.Errorf("nudge %+v", got.Nudge)
			}
		}
		if got := f.MustReserve(t, h, kit.PaidCall("0")); got.Nudge != nil {
			t.Errorf("told again: %+v", got.Nudge)
		}
		renewal, err := f.Renew(f.Ctx, h)
		kit.OK(t, err)
		if renewal.IdleMs == nil || *renewal.IdleMs > time.Second.Milliseconds() {
			t.Errorf("a paid call is a sign of life, idle for %v ms", renewal.IdleMs)
		}
	})
}

// A paid call is two calls of the store, and each does as many commands however
// many calls, tasks and rows there are already.
func TestAPaidCallCostsTheSameReal(t *testing.T) {
	s := rig.Real(t)
	wire := &rig.CommandCounter{}
	watched := s.Redis
	watched.Dialer = wire.Dialer(s.Redis.Dialer)
	store, err := orchestrator.Open(t.Context(),
		orchestrator.Config{
			Redis:      watched,
			Sealer:     rig.Sealer(),
			Witness:    t.TempDir(),
			Found:      true,
			DailyLimit: &budget.Envelope{Tokens: budget.MaxTokens, USD: kit.USD("1000000")},
			Log:        slog.New(slog.DiscardHandler),
		})
	kit.OK(t, err)
	defer store.Close()
	raw := rig.Hashes(redis.NewUniversalClient(&s.Redis))
	defer raw.Close()
	f := &fixture{&kit.Fixture{
		Engine:   store.Engine("default"),
		Store:    store,
		Sealer:   rig.Sealer(),
		Ctx:      t.Context(),
		Raw:      raw,
		RigStore: s,
	}}
	_, h := f.SubmitAndLease(t, picket.TaskSpec{BudgetEnvelope: kit.Worth(0, "1000"),
		LeaseWindowSeconds: kit.Ptr(3600)})
	measure := func() (commands, sent int) {
		f.MustSettle(t, kit.DoneSettlement(f.MustReserve(t, h, externalCall()), "0.0001")) // loads the scripts
		before := commandCalls(t, raw)
		wire.Take()
		f.MustSettle(t, kit.DoneSettlement(f.MustReserve(t, h, externalCall()), "0.0001"))
		for name, n := range commandCalls(t, raw) {
			// Store time is written when 100 ms have passed; the sum of what is held is cleared when nothing is.
			if name != "info" && name != "hset" && name != "hdel" {
				commands += n - before[name]
			}
		}
		for name, n := range wire.Take() {
			if name == "fcall" {
				sent += n
			} else {
				t.Errorf("%d of %s were sent", n, name)
			}
		}
		return commands, sent
	}
	few, sent := measure()
	for range 200 {
		f.MustReserve(t, h, kit.PaidCall("0.0001"))
		f.MustSettle(t, kit.DoneSettlement(f.MustReserve(t, h, kit.PaidCall("0.0001")), "0.0001"))
		f.MustSubmit(t, picket.TaskSpec{})
	}
	many, again := measure()
	if few != many || sent != 2 || again != 2 {
		t.Errorf("%d commands in %d calls at first, %d in %d later; want the same in 2", few, sent, many, again)
	}
	t.Logf("a paid call is %d calls of the store, %d commands", sent, few)
}

// A caller that tries again with less gets what is available, and its refusal writes no event. A
// refusal after which it does not ask for less writes one.
func TestAProbeIsNoEvent(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		task, h := f.SubmitAndLease(t, picket.TaskSpec{BudgetEnvelope: kit.Worth(100, "0.50")})
		for i, probe := range []bool{true, true, false} {
			c := kit.PaidCall("0.60")
			c.Probe = probe
			_, err := f.Reserve(f.Ctx, h, c)
			kit.Refused(t, err, picket.CodeBudgetExceeded)
			var refusal *picket.Error
			if !errors.As(err, &refusal) || refusal.Facts["available"] != kit.USD("0.50") {
				t.Errorf("refused with %v", refusal)
			}
			if got, want := f.countEvents(t, picket.EventBudgetExceeded), i/2; got != want {
				t.Errorf("%d events after %d refusals, want %d", got, i+1, want)
			}
		}
		tokens := kit.PaidCall("0.10")
		tokens.Reserve.Tokens, tokens.Probe = 101, true
		_, err := f.Reserve(f.Ctx, h, tokens)
		var refusal *picket.Error
		if !errors.As(err, &refusal) || refusal.Facts["available"] != int64(100) {
			t.Errorf("refused with %v", err)
		}
		part := kit.PaidCall("0.50")
		part.Probe = true
		f.MustSettle(t, kit.DoneSettlement(f.MustReserve(t, h, part), "0.50"))
		f.wantEnvelope(t, task.TaskID, "0.50", "0", "0", "0.50")
		f.wantNoViolations(t)
	})
}
