package model

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/orchestrator/proof/kit"
)

// The model's push configurations: what each of them is still to be told, in order, and who may tell it.

// modelPushes are the configurations of a task. The updates are kept while there is one.
type modelPushes struct {
	updates []string
	pushes  map[string]*modelPush // by id
	shown   int64                 // emissions
}

type modelPush struct {
	order    int64 // of the creation
	url      string
	cursor   int64 // updates that were delivered before
	failures int
	claim    string
	due      int64 // when a deliverer may take it, neverDue if it has been told everything
	step     string
	said     picket.PushState
}

const neverDue = -1

// modelPushTurn is a turn that a deliverer has had. It may be over.
type modelPushTurn struct {
	task, id, claim string
	cursor          int64
}

// note appends an update of a task. A configuration that was told everything before becomes due.
func (m *model) note(t *modelTask, update string) {
	if len(t.pushes) == 0 {
		return
	}
	t.updates = append(t.updates, update)
	for _, p := range t.pushes {
		if p.due == neverDue {
			p.due = m.now
		}
	}
}

// noteEvent notes what an event tells the client of its task: an emission, or a move. The result comes before the end.
func (x *machine) noteEvent(ev picket.Event, from picket.TaskState) {
	t := x.m.tasks[ev.TaskID]
	if t == nil {
		return
	}
	if ev.Type == picket.EventTaskArtifact || ev.Type == picket.EventTaskStatus {
		t.shown++
		x.m.note(t, fmt.Sprint("emission ", t.shown))
		return
	}
	to := x.stateInLog(ev.TaskID)
	if from == "" || from == to {
		return
	}
	if to == picket.TaskCompleted {
		x.m.note(t, "result")
	}
	x.m.note(t, fmt.Sprint(from, " ", to))
}

func (x *machine) stateInLog(taskID string) picket.TaskState {
	if t := x.j.Tasks[taskID]; t != nil {
		return t.State
	}
	return ""
}

// pushTask is the task of a client, for the client or an operator.
func (m *model) pushTask(id string, by picket.Caller) (*modelTask, picket.Code) {
	t := m.tasks[id]
	if t == nil || t.client.key == "" || t.client.key != by.Key && !by.Operator {
		return nil, picket.CodeNotFound
	}
	return t, ""
}

// putPush creates a configuration, which is told what happens from now on, or replaces one, which goes on where it was.
func (m *model) putPush(t *modelTask, id, url string) picket.Code {
	p := t.pushes[id]
	if p == nil {
		if len(t.pushes) >= picket.MaxTaskPushes {
			return picket.CodeQuota
		}
		m.orders++
		p = &modelPush{order: m.orders, cursor: int64(len(t.updates)), due: neverDue}
		if t.pushes == nil {
			t.pushes = map[string]*modelPush{}
		}
		t.pushes[id] = p
	}
	p.url, p.failures, p.claim, p.step = url, 0, "", ""
	if p.cursor < int64(len(t.updates)) {
		p.due = min(p.due, m.now)
	}
	return ""
}

func (t *modelTask) dropPush(id string) {
	delete(t.pushes, id)
	if len(t.pushes) == 0 {
		t.updates = nil
	}
}

// duePushes are the configurations that a deliverer may take now. Those whose client has no key any more are ended.
func (m *model) duePushes() (live, ended []modelPushTurn) {
	for _, id := range m.ids {
		t := m.tasks[id]
		for cid, p := range t.pushes {
			if p.due == neverDue || p.due > m.now {
				continue
			}
			due := modelPushTurn{task: id, id: cid, cursor: p.cursor}
			if m.ended[t.client.key] {
				ended = append(ended, due)
			} else {
				live = append(live, due)
			}
		}
	}
	return live, ended
}

// advancePush records a step of a deliverer by compare-and-set on its claim and the cursor.
func (m *model) advancePush(turn modelPushTurn, to int64, outcome picket.PushOutcome,
	delay int64) (picket.PushState, picket.Code) {
	t := m.tasks[turn.task]
	p := t.pushes[turn.id]
	if p == nil {
		return "", picket.CodeNotFound
	}
	step := fmt.Sprint(turn.claim, turn.cursor, to, outcome)
	switch {
	case p.step == step:
		return p.said, ""
	case p.claim != turn.claim || p.cursor != turn.cursor:
		return "", picket.CodeStateConflict
	case outcome == picket.PushGone || m.ended[t.client.key]:
		t.dropPush(turn.id)
		return picket.PushGivenUp, ""
	case outcome == picket.PushFailed:
		p.failures++
		p.claim, p.due, p.step, p.said = "", m.now+delay, step, picket.PushIdle
		return p.said, ""
	}
	more := to < int64(len(t.updates))
	if !more && t.state.Terminal() {
		t.dropPush(turn.id)
		return picket.PushDone, ""
	}
	p.cursor, p.step, p.said, p.due = to, step, picket.PushIdle, neverDue
	if outcome == picket.PushTaken {
		p.failures = 0
	}
	switch {
	case more && outcome == picket.PushTaken:
		p.said, p.due = picket.PushMore, m.now+picket.PushTurnTTL.Milliseconds()
		return p.said, ""
	case more:
		p.due = m.now + delay
	}
	p.claim = ""
	return p.said, ""
}

// The moves.

// pushCaller draws who is concerned with push configurations: often the client of the task.
func (x *machine) pushCaller(taskID string) picket.Caller {
	if t := x.m.tasks[taskID]; t != nil && t.client.key != "" && x.chance("client", 70) {
		return kit.WithKey(t.client.key)
	}
	if x.chance("operator", 30) {
		return kit.Operator
	}
	return kit.WithKey(oneOf(x, "caller", "key_a", "key_b"))
}

// clientTaskID draws a task: mostly one of a client.
func (x *machine) clientTaskID() string {
	var ids []string
	for _, id := range x.m.ids {
		if x.m.tasks[id].client.key != "" {
			ids = append(ids, id)
		}
	}
	if len(ids) == 0 || x.chance("any task", 5) {
		ids = x.m.ids
	}
	return x.pick("task", ids, kit.NoTask)
}

func (x *machine) anyClientTask() bool {
	return slices.ContainsFunc(x.m.ids, func(id string) bool { return x.m.tasks[id].client.key != "" })
}

func (x *machine) anyPush() bool {
	return slices.ContainsFunc(x.m.ids, func(id string) bool { return len(x.m.tasks[id].pushes) > 0 })
}

// drawnPush is a configuration whose URL tells one request from another.
func (x *machine) drawnPush(taskID string) picket.PushConfig {
	return picket.PushConfig{TaskID: taskID, ID: oneOf(x, "push", "p1", "p2", "p3", "p4", "p5", "p6", "p7"),
		URL: picket.Secret(fmt.Sprint("https://hooks.test/", x.below(1000, "path"))), Token: "token"}
}

func (x *machine) putPush() {
	id := x.clientTaskID()
	by, c := x.pushCaller(id), x.drawnPush(id)
	for range 1 + x.below(2, "puts") { // a repeated request changes nothing
		_, err := x.e.PutPushConfig(x.ctx, by, c)
		t, code := x.m.pushTask(id, by)
		if code == "" {
			code = x.m.putPush(t, c.ID, c.URL.Reveal())
		}
		x.agree(err, code, "push_put %s of %s", c.ID, id)
	}
}

func (x *machine) deletePush() {
	id := x.clientTaskID()
	by, cid := x.pushCaller(id), x.drawnPush(id).ID
	err := x.e.DeletePushConfig(x.ctx, by, id, cid)
	t, code := x.m.pushTask(id, by)
	if x.agree(err, code, "push_delete %s of %s", cid, id) && t.pushes[cid] != nil {
		t.dropPush(cid)
	}
}

// listPushes holds the list of a task against the model, in the order of the creation.
func (x *machine) listPushes() {
	id := x.clientTaskID()
	by := x.pushCaller(id)
	list, err := x.e.PushConfigs(x.ctx, by, id)
	t, code := x.m.pushTask(id, by)
	if !x.agree(err, code, "push_list of %s", id) {
		return
	}
	var got, want []string
	for _, c := range list {
		got = append(got, c.ID+" "+c.URL.Reveal()+c.Token.Reveal())
	}
	ids := slices.SortedFunc(maps.Keys(t.pushes), func(a, b string) int {
		return cmp.Compare(t.pushes[a].order, t.pushes[b].order)
	})
	for _, cid := range ids {
		want = append(want, cid+" "+t.pushes[cid].url)
	}
	x.same("push_list", strings.Join(got, ","), strings.Join(want, ","))
}

// takePushTurn claims a configuration, sometimes twice as after a lost reply, and goes on as a deliverer does.
func (x *machine) takePushTurn() {
	x.claims++
	claim := fmt.Sprint("claim_", x.claims)
	live, ended := x.m.duePushes()
	got, err := x.e.TakePushTurn(x.ctx, claim, 0)
	x.ok(err)
	if got.ID == "" {
		x.checkNoTurn(live, ended)
		return
	}
	was := modelPushTurn{task: got.TaskID, id: got.ID, cursor: got.Cursor}
	if !slices.Contains(live, was) {
		x.Fatalf("push_claim gave %+v, of %+v", was, live)
	}
	p := x.m.tasks[was.task].pushes[was.id]
	p.claim, p.due = claim, x.m.now+picket.PushTurnTTL.Milliseconds()
	x.checkTurn(got, p)
	if x.chance("claim again", 30) {
		again, err := x.e.TakePushTurn(x.ctx, claim, 0)
		x.ok(err)
		x.same("push_claim again", again.ID, got.ID)
		x.checkTurn(again, p)
	}
	was.claim = claim
	x.serveTurn(was)
}

// checkNoTurn expects that nothing was due. A claim that meets a configuration of an ended key deletes that one.
func (x *machine) checkNoTurn(live, ended []modelPushTurn) {
	gone := 0
	for _, e := range ended {
		n, err := x.raw.Exists(x.ctx, x.prefix+"push:"+e.task+":"+e.id).Result()
		x.ok(err)
		if n == 0 {
			gone++
			x.m.tasks[e.task].dropPush(e.id)
		}
	}
	if len(ended) > 0 && gone != 1 || len(ended) == 0 && len(live) > 0 {
		x.Fatalf("push_claim gave nothing and deleted %d; due: %+v, of ended keys: %+v", gone, live, ended)
	}
}

// checkTurn holds what a turn has against the updates that were noted.
func (x *machine) checkTurn(got picket.PushTurn, p *modelPush) {
	x.Helper()
	t := x.m.tasks[got.TaskID]
	want := t.updates[p.cursor:min(len(t.updates), int(p.cursor)+100)]
	x.same("push_claim: updates", strings.Join(x.updateWords(got), ","), strings.Join(want, ","))
	x.same("push_claim: URL", got.URL.Reveal(), p.url)
	x.same("push_claim: failures", got.Failures, p.failures)
	x.same("push_claim: client", got.Client, t.client.key)
	for i, u := range got.Updates {
		x.same("push_claim: number of an update", u.Seq, p.cursor+int64(i)+1)
	}
}

// updateWords are the updates of a turn in words. A hand-off is one of the task.
func (x *machine) updateWords(turn picket.PushTurn) (words []string) {
	for _, u := range turn.Updates {
		switch {
		case u.Emission > 0:
			words = append(words, fmt.Sprint("emission ", u.Emission))
		case u.Result:
			words = append(words, "result")
		default:
			words = append(words, fmt.Sprint(u.From, " ", u.To))
		}
		if (u.Handoff != nil) != (u.From == picket.TaskHandoff || u.To == picket.TaskHandoff) {
			x.Fatalf("the update %+v has the hand-off %+v", u, u.Handoff)
		}
		if u.Handoff == nil {
			continue
		}
		h := x.m.helps[u.Handoff.HandoffID]
		if h == nil || h.task != turn.TaskID || h.kind != u.Handoff.Kind {
			x.Fatalf("the hand-off of an update is %+v, want %+v", u.Handoff, h)
		}
	}
	return words
}

// serveTurn delivers up to three updates. Sometimes it leaves the claim, as a killed deliverer does.
func (x *machine) serveTurn(turn modelPushTurn) {
	for range x.below(4, "deliveries") {
		if x.stepPush(turn, turn.cursor+1, picket.PushTaken, 0) != picket.PushMore {
			return
		}
		turn.cursor++
	}
	x.turns = append(x.turns, turn)
	x.turns = x.turns[max(0, len(x.turns)-4):]
	delay := int64(x.below(3, "delay")) * kit.HalfMinute
	switch x.below(6, "then") {
	case 1, 2:
		x.stepPush(turn, turn.cursor, picket.PushReleased, delay)
	case 3, 4:
		x.stepPush(turn, turn.cursor, picket.PushFailed, delay)
	case 5:
		x.stepPush(turn, turn.cursor, picket.PushGone, 0)
	}
}

// latePushStep is a step of a deliverer that was away: its claim may be over, or another one may have moved the cursor.
func (x *machine) latePushStep() {
	if len(x.turns) == 0 {
		return
	}
	turn := x.turns[x.below(len(x.turns), "turn")]
	outcome := oneOf(x, "outcome", picket.PushTaken, picket.PushReleased, picket.PushFailed)
	to := turn.cursor
	if outcome == picket.PushTaken {
		to++
	}
	x.stepPush(turn, to, outcome, 0)
}

// stepPush takes a step, sometimes twice. It returns what the step leaves, or nothing if it was refused.
func (x *machine) stepPush(turn modelPushTurn, to int64, outcome picket.PushOutcome, delay int64) picket.PushState {
	var said picket.PushState
	for range 1 + x.below(2, "steps") {
		got, err := x.e.AdvancePush(x.ctx, picket.PushStep{TaskID: turn.task, ID: turn.id, TurnID: turn.claim,
			From: turn.cursor, To: to, Outcome: outcome, Delay: time.Duration(delay) * time.Millisecond})
		want, code := x.m.advancePush(turn, to, outcome, delay)
		if !x.agree(err, code, "push_advance %+v %s", turn, outcome) {
			return ""
		}
		x.same("push_advance", got, want)
		said = got
	}
	return said
}

// comparePushes expects that the store has the configurations of the model, and no others.
func (x *machine) comparePushes() {
	x.Helper()
	due, kept, updates := x.readPushes()
	waits := 0
	for id := range kept {
		t := x.m.tasks[id]
		x.same("push configurations of "+id, strings.Join(slices.Sorted(slices.Values(kept[id].Val())), ","),
			strings.Join(slices.Sorted(maps.Keys(t.pushes)), ","))
		x.same("updates of "+id, updates[id].Val(), int64(len(t.updates)))
		for cid, p := range t.pushes {
			at, has := due[id+":"+cid]
			if has != (p.due != neverDue) || has && p.due > x.m.now && x.inHalves(at) != p.due {
				x.Fatalf("push %s of %s is due at %.0f (%v), want %d", cid, id, at-float64(x.base), has, p.due)
			}
			if has {
				waits++
			}
		}
	}
	x.same("push configurations that are due", len(due), waits)
}

// readPushes reads when configurations are due, and of each task of a client which there are and how many updates.
func (x *machine) readPushes() (due map[string]float64, kept map[string]*redis.StringSliceCmd,
	updates map[string]*redis.IntCmd) {
	x.Helper()
	p := x.raw.Pipeline()
	kept, updates = map[string]*redis.StringSliceCmd{}, map[string]*redis.IntCmd{}
	dues := p.ZRangeWithScores(x.ctx, x.prefix+"push-due", 0, -1)
	for _, id := range x.m.ids {
		if x.m.tasks[id].client.key == "" {
			continue
		}
		if p.Len() >= 20 { // what the pipe to the store in memory holds
			_, err := p.Exec(x.ctx)
			x.ok(err)
		}
		kept[id] = p.ZRange(x.ctx, x.prefix+"pushes:"+id, 0, -1)
		updates[id] = p.LLen(x.ctx, x.prefix+"updates:"+id)
	}
	_, err := p.Exec(x.ctx)
	x.ok(err)
	return scores(dues), kept, updates
}

// clientKey is the key of a client that can be revoked. It is made when it is first needed.
func (x *machine) clientKey() string {
	if x.client != "" {
		return x.client
	}
	k, err := x.e.CreateKey(x.ctx, picket.Caller{Actor: "key_a"}, picket.KeyRequest{Name: "client",
		Scopes: []picket.Scope{picket.ScopeClient}, Client: &picket.ClientLimits{Roles: []string{"coder"}}})
	x.ok(err)
	x.m.emit(picket.EventKeyCreated, "")
	x.client = k.KeyID
	return k.KeyID
}

// revokeClient revokes the key of the client. Its configurations are told nothing more.
func (x *machine) revokeClient() {
	if x.client == "" {
		return
	}
	_, err := x.e.RevokeKey(x.ctx, picket.Caller{Actor: "key_a"}, x.client)
	x.ok(err)
	x.m.emit(picket.EventKeyRevoked, "")
	x.m.ended[x.client] = true
	x.client = ""
}
