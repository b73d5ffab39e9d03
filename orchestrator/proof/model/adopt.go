package model

import (
	"maps"
	"slices"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/orchestrator/proof/kit"
)

// The model when the store turns out to be another one: it is adopted, every
// lease is void until its holder reclaims it.

func (m *model) adopt(floor int64) {
	m.floor, m.adopted, m.chores = floor, m.now, true
	m.emit(picket.EventStoreAdopted, "")
}

// raiseToken gives a void lease a token above the floor and a full window.
func (m *model) raiseToken(t *modelTask, r *modelRun) {
	t.token = m.floor + 1
	r.token, r.tokens, r.confirmed = t.token, append(r.tokens, t.token), true
	t.deadline = max(t.deadline, m.now+r.window)
	m.emit(picket.EventLeaseReclaimed, t.id)
}

func (m *model) reclaim(h modelCredential) (ttl int64, code picket.Code) {
	t, _, code := m.admits(h)
	if code != "" {
		return 0, code
	}
	return t.deadline - m.now, ""
}

// chore ends what nobody reclaimed within the grace, looking at every lease;
// else what agents that are gone have left.
func (m *model) chore() int {
	if !m.chores || m.now < m.adopted+kit.HalfMinute {
		n := 0
		for _, chore := range slices.Sorted(maps.Keys(m.pendingChores)) {
			end := m.pendingChores[chore]
			delete(m.pendingChores, chore)
			n += max(end(), 1)
		}
		return n
	}
	live := m.live()
	m.chores = false
	for _, r := range live {
		if r.token <= m.floor {
			m.expire(r, picket.ExitStoreAdopted)
		}
	}
	return len(live)
}

// changeStore lets some time pass, makes the store another one and goes on at once
// with what an adoption matters for.
func (x *machine) changeStore() {
	for range x.below(3, "half minutes before") {
		x.passOne(false, false)
	}
	x.swaps++
	x.adopted()
	switch x.below(4, "then") {
	case 1:
		x.expireDue()
	case 2:
		x.passOne(false, false)
		x.chore()
	case 3:
		x.passOne(false, false)
		x.expireDue()
	}
}

// stopAndStart stops the store cleanly and starts it again: for the model nothing happens,
// except that nobody is served in between.
func (x *machine) stopAndStart() {
	x.tick() // store time goes on from where it was written last
	x.ok(kit.MarkStop(x.ctx, x.e, x.m.floor, 0, "m1"))
	_, err := x.e.Records().RunUnchecked(x.ctx, "tick")
	if code := picket.CodeOf(err); code != picket.CodeUnavailable {
		x.Fatalf("a store out of service answered %q (%v)", code, err)
	}
	x.ok(kit.TakeMark(x.ctx, x.e, x.m.floor, "m1"))
}

// adopted makes the store look like one that nobody has adopted yet. The next
// grant, or a new connection, adopts it.
func (x *machine) adopted() {
	// an adoption goes on from the store time written last
	x.tick()
	granted, _ := x.raw.HGet(x.ctx, x.prefix+"meta", "granted").Int64() // 0 before the first
	// the same server, with fewer grants than were seen
	if x.counted && granted > 0 && x.chance("put back", 50) {
		x.ok(x.raw.HIncrBy(x.ctx, x.prefix+"meta", "granted", -1).Err())
		x.m.granted--
	} else {
		x.ok(x.raw.HSet(x.ctx, x.prefix+"meta", "identity", "another server").Err())
	}
	granting := x.chance("granting", 50)
	if granting {
		_, err := x.e.Acquire(x.ctx, picket.Caller{Actor: "key_a"},
			picket.AcquireRequest{AgentID: "nobody", PinnedOnly: true})
		x.ok(err)
		x.m.adoptedBy(x)
		x.counted = true
		if !x.m.paused {
			x.m.promote(10)
		}
		return
	}
	x.ok(kit.EnsureAdopted(x.ctx, x.e))
	x.m.adoptedBy(x)
	x.counted = false
}

// adoptedBy takes the new floor from the store: it has to be above everything
// that was ever granted, and so has the number of the first event after it.
func (m *model) adoptedBy(x *machine) {
	x.Helper()
	floor, err := x.raw.HGet(x.ctx, x.prefix+"meta", "floor").Int64()
	x.ok(err)
	seq, err := x.raw.HGet(x.ctx, x.prefix+"meta", "seq").Int64()
	x.ok(err)
	highest := m.floor
	for _, r := range m.runs {
		highest = max(highest, slices.Max(r.tokens))
	}
	if floor <= highest || seq <= floor {
		x.Fatalf("adopted with floor %d and event %d, but token or floor %d was known", floor, seq, highest)
	}
	m.adopt(floor)
}

func (x *machine) reclaim() {
	h, mh := x.holder()
	got, err := x.e.Reclaim(x.ctx, h)
	ttl, code := x.m.reclaim(mh)
	if x.agree(err, code, "reclaim %+v", mh) {
		x.checkRemaining("reclaim: ttl", got.LeaseTTLMs, ttl)
		x.same("reclaim: token", got.FencingToken, x.m.runs[h.RunID].token)
	}
}

func (x *machine) chore() {
	n, err := x.e.RunChores(x.ctx, 100)
	x.ok(err)
	x.same("chore", n, x.m.chore())
}
