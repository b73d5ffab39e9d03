package model

import (
	"time"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/orchestrator/proof/kit"
)

// crossThreshold lets exactly as much time go by as an agent may be silent for, and then
// a millisecond more. Only the virtual clock stands still meanwhile.
func (x *machine) crossThreshold() {
	if !x.virtual {
		return
	}
	id := x.member(isActive)
	by, caller := modelCaller{"key_a", true}, picket.Caller{Actor: "key_a", Operator: true}
	hb := picket.Heartbeat{Status: picket.AgentActive, ClientTimestamp: picket.InstantOf(time.Now())}
	_, err := x.e.Heartbeat(x.ctx, caller, id, hb)
	a, code := x.m.heartbeat(by, id, hb)
	if !x.agree(err, code, "heartbeat of %s", id) || a.status != picket.AgentActive {
		return
	}
	// On two halves of a minute that the model knows of, and two more.
	const alive, sick = unhealthyAfter, deadAfter
	x.skip(alive)
	x.wantStatus(caller, a, picket.AgentActive)
	x.skip(1)
	x.m.now += 2 * kit.HalfMinute
	x.m.judge(a)
	x.wantStatus(caller, a, picket.AgentUnhealthy)
	x.skip(2*(kit.HalfMinute+1) - alive - 1)
	x.skip(sick - 2*(kit.HalfMinute+1))
	x.wantStatus(caller, a, picket.AgentUnhealthy)
	x.skip(4*(kit.HalfMinute+1) - sick)
	x.m.now += 2 * kit.HalfMinute
}

func (x *machine) skip(ms int64) {
	x.ok(x.raw.HIncrBy(x.ctx, x.prefix+"meta", "now", ms).Err())
}

// wantStatus asks for the status that the agent has to have: that changes nothing, and
// any other is refused.
func (x *machine) wantStatus(by picket.Caller, a *modelAgent, status picket.AgentStatus) {
	x.Helper()
	got, err := x.e.ChangeAgent(x.ctx, by, a.id, nil, picket.AgentStatusChange{Status: status})
	x.ok(err)
	x.checkAgent("threshold", got, a)
}
