package branches

import (
	"testing"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/orchestrator/proof/kit"
)

// coverSessionHealth takes the ways of the events about the health of sessions.
func coverSessionHealth(t *testing.T, f *fixture) {
	a := f.MustRegister(t, picket.Registration{AgentID: "hea", Metadata: picket.RawJSON(`{"agent_name":"hea"}`)})
	idle := picket.SessionReport{SessionID: "asession_" + ulid.Make().String(), Kind: picket.SessionResident,
		Preset: "exec", State: picket.SessionIdle}
	report := func(s picket.SessionReport) {
		t.Helper()
		kit.OK(t, f.ReportSessions(f.Ctx, kit.AgentOwner, "hea",
			picket.SessionsReport{Incarnation: a.Incarnation, Sessions: []picket.SessionReport{s}}))
	}
	judge := func() {
		t.Helper()
		_, err := f.JudgeAgents(f.Ctx, 100)
		kit.OK(t, err)
	}
	const meta = "pk:{default}:meta"
	report(idle)
	adopted := f.Raw.HGet(f.Ctx, meta, "adopted").Val()
	f.Raw.HSet(f.Ctx, meta, "adopted", "99999999999999")
	report(idle)
	f.Raw.HSet(f.Ctx, meta, "adopted", adopted)
	report(idle) // too early for another event
	prompting := idle
	prompting.State, prompting.PromptID = picket.SessionPrompting, "prompt_"+ulid.Make().String()
	report(prompting)
	prompting.Silent = true
	report(prompting)
	f.JumpStoreTime(t, 100*time.Second)
	judge()
	_, err := f.Deregister(f.Ctx, kit.AgentOwner, "hea", nil)
	kit.OK(t, err)
	_, err = f.Wake(f.Ctx, kit.OtherOperator, "hea", picket.WakeRequest{}) // its only session is over
	kit.Refused(t, err, picket.CodeSessionRequired)
	f.JumpStoreTime(t, 10*time.Minute)
	f.SetScore(t, "health-due", "asession_"+ulid.Make().String(), 1) // its record is gone
	judge()
	_, err = f.RunChores(f.Ctx, 1000)
	kit.OK(t, err)
}
