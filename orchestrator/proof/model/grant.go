package model

import (
	stdjson "encoding/json"
	"slices"
	"strings"

	"github.com/picket-dev/picket"
)

// The verbs that grant leases: what the model makes of them, and the moves.

// acquirer is who asks for leases.
type acquirer struct {
	id          string
	role        string
	caps        []string
	by          modelCaller
	incarnation int64 // it says it has
	workspace   bool  // its runs have directories of their own
	attached    bool  // its registration is of the role attached: it takes only its own
}

func (a acquirer) covers(lane string) bool {
	if pinned, ok := strings.CutPrefix(lane, "agent:"); ok {
		return pinned == a.id
	}
	if home, open, of := strings.Cut(strings.TrimPrefix(lane, "for:"), "|"); of && strings.HasPrefix(lane, "for:") {
		if home == a.id {
			return true
		}
		lane = open
	}
	role, needs, _ := strings.Cut(lane, "|")
	if a.attached || role != "" && role != a.role {
		return false
	}
	for need := range strings.SplitSeq(needs, ",") {
		if need != "" && !slices.Contains(a.caps, need) {
			return false
		}
	}
	return true
}

// grant leases up to n tasks, one to each of the runs given, and returns the
// runs that got one.
func (m *model) grant(o requestID, a acquirer, runs []string, n int) ([]string, picket.Code) {
	was, code, again := m.once(o)
	if code != "" {
		return nil, code
	}
	// What was granted to an agent that drains by now is still its own.
	incarnation, no := m.admit(a)
	if rec := m.agents[a.id]; no != "" && !(again && rec.status == picket.AgentDraining) {
		return nil, no
	}
	if again {
		if slices.ContainsFunc(was, m.over) {
			return nil, picket.CodeLeaseExpired
		}
		return was, ""
	}
	return m.give(o, a, incarnation, runs, n), ""
}

// over tells whether a lease that was granted does not hold any more.
func (m *model) over(rid string) bool {
	r := m.runs[rid]
	return r.state != picket.RunRunning || m.now >= m.tasks[r.task].deadline || !m.serves(r)
}

// give leases what there is to an agent that may have it.
func (m *model) give(o requestID, a acquirer, incarnation int64, runs []string, n int) []string {
	a.attached = incarnation > 0 && m.agents[a.id].role == picket.RoleAttached
	if m.paused {
		return nil
	}
	m.promote(10)
	var got []string
	for len(got) < n {
		var best *modelTask
		for lane, tasks := range m.lanes() {
			if a.covers(lane) && (best == nil || higherPriority(tasks[0], best) < 0) {
				best = tasks[0]
			}
		}
		if best == nil {
			break
		}
		if best.pin != "" && best.pinRetry && best.where != best.lane && !a.covers(best.lane) {
			best.unpin()
			continue
		}
		if m.cancelledAbove(best) {
			m.dropCancelled(best)
			continue
		}
		rid := "run_missing" // the engine gave fewer: the comparison shows it
		if len(got) < len(runs) {
			rid = runs[len(got)]
		}
		m.lease(best, rid, a.id, incarnation)
		m.runs[rid].workspace = a.workspace
		got = append(got, rid)
	}
	if len(got) > 0 {
		m.remember(o, m.runs[got[0]].window, got...)
	}
	return got
}

// advance is complete and grant in one step. Leases of a replay that have ended
// are left out, for the state of the completed task has to be told.
func (m *model) advance(h modelCredential, content string, o requestID, a acquirer, runs []string,
	n int) (string, []string, picket.Code) {
	was, code, again := m.once(o)
	if code != "" {
		return "", nil, code
	}
	// Anyone who may be given nothing can end a lease all the same.
	incarnation, no := m.admit(a)
	state, code := m.complete(h, content, "")
	switch {
	case code != "":
		return "", nil, code
	case again:
		return state, slices.DeleteFunc(slices.Clone(was), m.over), ""
	case no != "":
		return state, nil, ""
	}
	return state, m.give(o, a, incarnation, runs, n), ""
}

// unpin lets anyone take a task that was kept for an agent.
func (t *modelTask) unpin() { t.pin, t.where, t.due = "", t.lane, 0 }

func (m *model) lease(t *modelTask, rid, agent string, incarnation int64) {
	t.token = max(t.token, m.floor) + 1
	t.attempt++
	t.lastRun = t.attempt-t.runsFrom >= runQuota
	t.state, t.run, t.where, t.due, t.pin = picket.TaskLeased, rid, "", 0, ""
	t.deadline = m.now + min(t.window, 30_000)
	m.granted++
	m.runs[rid] = &modelRun{
		id:          rid,
		task:        t.id,
		agent:       agent,
		incarnation: incarnation,
		number:      m.granted,
		token:       t.token,
		tokens:      []int64{t.token},
		window:      t.window,
		state:       picket.RunRunning,
	}
	m.rids = append(m.rids, rid)
	m.emit(picket.EventTaskLeased, t.id)
}

func (x *machine) agent(caller *picket.Caller) (acquirer, picket.AcquireRequest) {
	a := acquirer{id: oneOf(x, "agent", "a1", "a2", ""), by: modelCaller{caller.Actor, x.chance("operator", 50)}}
	caller.Operator = a.by.operator
	if rec := x.m.agents[a.id]; rec != nil {
		a.incarnation = oneOf(x, "incarnation", 0, rec.incarnation, rec.incarnation+1, max(0, rec.incarnation-1))
	}
	if x.chance("role", 60) {
		a.role = "coder"
	}
	a.caps = oneOf(x, "capabilities", []string{"go", "py"}, []string{"go"}, nil)
	n, root := oneOf(x, "max", 1, 1, 2, 5), ""
	if a.workspace = x.chance("workspace", 60); a.workspace {
		root = "/work"
	}
	return a, picket.AcquireRequest{
		WorkspaceRoot: root,
		AgentID:       a.id,
		Incarnation:   a.incarnation,
		Role:          a.role,
		Capabilities:  a.caps,
		Max:           &n,
	}
}

func runsOf(leases []picket.Lease) []string {
	var rids []string
	for _, l := range leases {
		rids = append(rids, l.RunID)
	}
	return rids
}

func (x *machine) acquire() {
	o, by := x.once("acquire")
	a, req := x.agent(&by)
	got, err := x.e.Acquire(x.ctx, by, req)
	want, code := x.m.grant(o, a, runsOf(got), *req.Max)
	if x.agree(err, code, "acquire by %+v", a) {
		x.granted(a, got, want)
	}
}

// advance completes a lease and acquires the next.
func (x *machine) advance() {
	o, by := x.once("advance")
	a, req := x.agent(&by)
	output := oneOf(x, "output", `"done"`, `{"n":1}`)
	x.calls(func(h picket.LeaseCredential, mh modelCredential) {
		got, err := x.e.Advance(x.ctx, h, by, picket.AdvanceRequest{Output: stdjson.RawMessage(output), Acquire: req})
		state, want, code := x.m.advance(mh, output, o, a, runsOf(got.Leases), *req.Max)
		if x.agree(err, code, "advance %+v by %+v", mh, a) {
			x.same("advance", string(got.State), state)
			x.granted(a, got.Leases, want)
		}
		x.refused(h, err, "advance")
	})
}

func (x *machine) granted(a acquirer, got []picket.Lease, want []string) {
	x.Helper()
	x.counted = true
	rids := runsOf(got)
	if !slices.Equal(rids, want) {
		x.Fatalf("acquire by %+v granted %v, want %v", a, rids, want)
	}
	for _, l := range got {
		r := x.m.runs[l.RunID]
		t := x.m.tasks[r.task]
		x.same("acquire: task", l.TaskID, r.task)
		x.same("acquire: token", l.FencingToken, r.token)
		x.same("acquire: window", l.WindowMs, r.window)
		x.same("acquire: input", string(l.Task.Input), t.edited)
		x.checkRemaining("acquire: ttl", l.LeaseTTLMs, t.deadline-x.m.now)
		h, err := x.sealer.OpenLeaseToken(l.LeaseToken.Reveal())
		x.ok(err)
		x.held[l.RunID] = h
	}
}
