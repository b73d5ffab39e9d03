package branches

import (
	"testing"

	"github.com/oklog/ulid/v2"
	"github.com/redis/go-redis/v9"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/orchestrator/proof/kit"
)

// noSessionMoney are limits under which no session may spend anything.
const noSessionMoney = `{"namespace":0,"names":{},"others":{"wake":0,"prompt":0,"each":0}}`

// coverSessionMoney takes the ways of the money of agent sessions.
func coverSessionMoney(t *testing.T, f *fixture) {
	a := &capableAgent{f: f, id: "ses-m", name: "payer", by: kit.AgentOwner}
	a.register(t)
	prompt := func(limits, day string) error {
		_, err := f.Records().Run(f.Ctx, "prompt_session", a.session, kit.Operator.Actor, "", "",
			"prompt_"+ulid.Make().String(), "x", 600_000, 16, 200, limits, day)
		return err
	}
	kit.Refused(t, prompt(noSessionMoney, ""), picket.CodeBudgetExceeded)
	held := a.prompt(t)
	call := kit.PaidCall("0.03")
	call.Tool, call.Reserve.Tokens = "llm_anthropic", 10
	settled := f.MustReserve(t, held, call)
	f.MustReserve(t, held, call)
	other := call
	other.Nonce = "other"
	_, err := f.Reserve(f.Ctx, held, other)
	kit.Refused(t, err, picket.CodeCallRunning)
	f.Fixture.MustSettle(t, kit.DoneSettlement(settled, "0.01"))
	_, err = f.Reserve(f.Ctx, held, call)
	kit.Refused(t, err, picket.CodeStateConflict)
	_, err = f.Reserve(f.Ctx, held, kit.PaidCall("1"))
	kit.Refused(t, err, picket.CodeBudgetExceeded)
	_, err = f.Pause(f.Ctx, kit.Operator, false, "")
	kit.OK(t, err)
	_, err = f.Reserve(f.Ctx, held, kit.PaidCall("0.01"))
	kit.Refused(t, err, picket.CodePaused)
	_, err = f.Resume(f.Ctx, kit.Operator, "")
	kit.OK(t, err)

	f.Store.SetBudgets(kit.Worth(10_000, "5"), nil) // of a day on which sessions have spent already
	defer f.Store.SetBudgets(nil, nil)
	_, err = f.PromptSession(f.Ctx, kit.Operator, a.session, picket.PromptRequest{Text: "y"})
	kit.OK(t, err)
	call = kit.PaidCall("0.01")
	call.Reserve.Tokens = 100_000
	_, err = f.Reserve(f.Ctx, held, call)
	kit.Refused(t, err, picket.CodeBudgetExceeded)
	call.Reserve.Tokens = 50
	f.Fixture.MustSettle(t, kit.DoneSettlement(f.MustReserve(t, held, call), "0.02")) // more than was reserved
	kit.OK(t, a.result(held, picket.PromptAnswered, ""))
	old := "prompt_" + ulid.Make().String() // from before prompts had envelopes
	kit.OK(t, f.Raw.HSet(f.Ctx, "pk:{default}:prompt:"+old, "session", a.session, "agent", a.id, "state", "queued",
		"due", "1", "number", "1", "text", "x", "by", "", "created", "1").Err())
	kit.OK(t, f.Raw.ZAdd(f.Ctx, "pk:{default}:open-prompts:"+a.session, redis.Z{Score: 1, Member: old}).Err())
	a.report(t)
}
