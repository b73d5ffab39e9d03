package model

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/orchestrator"
)

// The model's clients: what they submit at endpoints, what they see of it, and what agents tell them while they work.

// modelClient is what is special about a task that a client has submitted.
type modelClient struct {
	key      string // whose task it is, "" for a task of an operator
	context  string
	taskID   string // the id that the client chose
	request  string // the body of the request that made it
	maxOpen  int    // 0 for no limit, like the next
	maxQueue int
	message  bool // it takes a message as the answer
	closed   bool // the instance takes no new tasks
	push     *picket.PushConfig
	// The instance that the task is for, "" and 0 for none.
	agent       string
	incarnation int64
}

// modelEmissions is what the agents of a task have told its client.
type modelEmissions struct {
	emitted   []string
	artifacts map[string]bool // by id: may be appended to
}

// clientLimits refuses a task of a client that has too many open ones, or whose queue is full.
func (m *model) clientLimits(s modelSpec) picket.Code {
	open, queued := 0, 0
	for _, t := range m.tasks {
		if t.client.key == s.client.key && !t.state.Terminal() {
			open++
		}
		// What is kept for an instance is in its queue.
		if t.state == picket.TaskQueued && cmp.Or(t.where, t.lane) == s.lane {
			queued++
		}
	}
	if c := s.client; c.maxOpen > 0 && open >= c.maxOpen || c.maxQueue > 0 && queued >= c.maxQueue {
		return picket.CodeQuota
	}
	return ""
}

// clientTask is the task that a client has submitted under an id of its own.
func (m *model) clientTask(c modelClient) *modelTask {
	if c.taskID == "" {
		return nil
	}
	return m.tasks[orchestrator.ClientTaskID(c.key, c.taskID)]
}

// clientTasks are the tasks that a query asks for.
func (m *model) clientTasks(q picket.ClientTaskQuery) (ids []string) {
	for _, id := range m.ids {
		t := m.tasks[id]
		if c := t.client; c.key == "" || q.Client != "" && q.Client != c.key || q.Role != "" && q.Role != t.role ||
			q.ContextID != "" && q.ContextID != c.context {
			continue
		}
		if m.matches(q, t) {
			ids = append(ids, id)
		}
	}
	return ids
}

func (m *model) matches(q picket.ClientTaskQuery, t *modelTask) bool {
	switch {
	case len(q.States)+len(q.Handoffs) == 0 && !q.Rejected:
		return true
	case t.state == picket.TaskHandoff:
		return slices.Contains(q.Handoffs, m.helps[t.help].kind)
	case t.state == picket.TaskFailed && t.run != "" && m.runs[t.run].class == picket.ExitRejected:
		return q.Rejected
	}
	return slices.Contains(q.States, t.state)
}

// emission keeps what an agent tells its client. artifact is "" for a status message.
func (m *model) emission(h modelCredential, request, content, artifact string, adds, last bool) (seq, nudge int64,
	code picket.Code) {
	t, r, code := m.admits(h)
	if code != "" {
		return 0, 0, code
	}
	isAnswer := func(s modelReport) bool { return s.request == request }
	if i := slices.IndexFunc(r.seen, isAnswer); request != "" && i >= 0 {
		if r.seen[i].content != content {
			return 0, 0, picket.CodeIdempotencyConflict
		}
		return r.seen[i].seq, r.toldWith(request), ""
	}
	if open, made := t.artifacts[artifact]; adds && !made {
		return 0, 0, picket.CodeNotFound
	} else if adds && !open {
		return 0, 0, picket.CodeStateConflict
	}
	m.confirm(t, r)
	if nudge, code = m.acted(t, r, "emission "+content, request, request, 0); code != "" {
		return 0, 0, code
	}
	t.emitted = append(t.emitted, content)
	seq = int64(len(t.emitted))
	r.remember(modelReport{request, content, seq})
	kind := picket.EventTaskStatus
	if artifact != "" {
		kind = picket.EventTaskArtifact
		if t.artifacts == nil {
			t.artifacts = map[string]bool{}
		}
		t.artifacts[artifact] = !last
	}
	m.emit(kind, t.id)
	return seq, nudge, ""
}

// anyTakesTasks reports whether there is an agent that takes tasks.
func (m *model) anyTakesTasks() bool {
	for id := range m.agents {
		if m.takesTasks(id) {
			return true
		}
	}
	return false
}

// instances are the agents that a client can choose: those that take tasks, or in a few cases all.
func (x *machine) instances() []string {
	all := slices.Sorted(maps.Keys(x.m.agents))
	taking := slices.DeleteFunc(slices.Clone(all), func(id string) bool { return !x.m.takesTasks(id) })
	if len(taking) == 0 || x.chance("any agent", 20) {
		return all
	}
	return taking
}

// instanceLives reports whether the agent that a client has chosen still takes tasks, in the same incarnation.
func (m *model) instanceLives(t *modelTask) bool {
	c := t.client
	return c.agent != "" && m.takesTasks(c.agent) && m.agents[c.agent].incarnation == c.incarnation
}

// submitToAgent submits a task of a client for one agent of a pool, mostly one that takes tasks.
func (x *machine) submitToAgent() {
	o, by := x.once("submit")
	s, ms, ready := x.spec()
	x.asClient(by.Actor, &s, &ms, 100)
	x.submitBy(o, by, s, ms, ready)
}

// asClient makes a drawn task one that a client submits. In so many of a hundred cases it is for one agent.
func (x *machine) asClient(key string, s *picket.TaskSpec, ms *modelSpec, forAgent int) {
	c := modelClient{
		key:      key,
		context:  oneOf(x, "context", "c1", "c2"),
		taskID:   oneOf(x, "client's id", "", "", "mine"),
		maxOpen:  oneOf(x, "most open", 0, 0, 1, 3),
		maxQueue: oneOf(x, "most queued", 0, 0, 1, 3),
	}
	c.message = x.chance("takes a message", 50)
	if x.chance("push", 50) {
		push := x.drawnPush("")
		c.push = &push
	}
	if ids := x.instances(); len(ids) > 0 && x.chance("instance", forAgent) {
		c.agent = oneOf(x, "instance", ids...)
		c.incarnation = x.m.agents[c.agent].incarnation
		if x.chance("earlier incarnation", 10) {
			c.incarnation--
		}
		c.closed = x.chance("closed", 10)
	}
	ms.client = c
	s.Client = &picket.ClientTask{Role: s.Role, AgentID: c.agent, Incarnation: c.incarnation, ContextID: c.context,
		MessageID: "m1", TaskID: c.taskID, TakesMessage: c.message, MaxOpen: c.maxOpen, MaxQueue: c.maxQueue,
		Closed: c.closed, Push: c.push}
}

// listAsClient asks for tasks of clients.
func (x *machine) listAsClient() {
	q := picket.ClientTaskQuery{
		Client:    oneOf(x, "client", "", "key_a", "key_b"),
		Role:      oneOf(x, "role", "", "", "coder"),
		ContextID: oneOf(x, "context", "", "", "c1"),
		Emitted:   true,
		Limit:     100,
	}
	for _, s := range picket.TaskStates {
		if s != picket.TaskHandoff && x.chance(string(s), 20) {
			q.States = append(q.States, s)
		}
	}
	q.Rejected = x.chance("rejected", 20)
	if x.chance("questions", 20) {
		q.Handoffs = []picket.HandoffKind{picket.HandoffQuestion, picket.HandoffEscalation}
	}
	page, err := x.e.ClientTasks(x.ctx, q)
	x.ok(err)
	var ids []string
	for _, t := range page.Tasks {
		ids = append(ids, t.TaskID)
		x.same("client tasks: emissions of "+t.TaskID, len(t.Emitted), len(x.m.tasks[t.TaskID].emitted))
	}
	want := x.m.clientTasks(q)
	slices.Sort(ids)
	slices.Sort(want)
	x.same(fmt.Sprintf("client tasks %+v", q), strings.Join(ids, " "), strings.Join(want, " "))
	x.same("client tasks: total", page.Total, int64(len(want)))
}

// emission tells the client something, or an artifact in pieces.
func (x *machine) emission() {
	request := oneOf(x, "request", "", "r1", "r2")
	text := oneOf(x, "text", "half way", "there")
	chunk := picket.ArtifactChunk{ArtifactID: oneOf(x, "artifact", "a", "b"), Parts: []picket.Part{{Text: &text}},
		Append: x.chance("append", 50), Last: x.chance("last", 20)}
	status := x.chance("status", 30)
	x.calls(func(h picket.LeaseCredential, mh modelCredential) {
		if status {
			got, err := x.e.EmitStatus(x.ctx, h, request, picket.StatusMessage{Message: text})
			seq, nudge, code := x.m.emission(mh, request, "status "+text, "", false, false)
			x.checkEmission(h, got, seq, nudge, err, code)
			return
		}
		got, err := x.e.Emit(x.ctx, h, request, chunk)
		seq, nudge, code := x.m.emission(mh, request, fmt.Sprint(chunk.ArtifactID, text, chunk.Append, chunk.Last),
			chunk.ArtifactID, chunk.Append, chunk.Last)
		x.checkEmission(h, got, seq, nudge, err, code)
	})
}

func (x *machine) checkEmission(h picket.LeaseCredential, got picket.Emitted, seq, nudge int64, err error,
	code picket.Code) {
	x.Helper()
	if x.agree(err, code, "emission by %s", h.RunID) {
		x.same("emission", got.Seq, seq)
		x.nudged("emission", got.Nudge, nudge)
	}
	x.refused(h, err, "emission")
}

// reply completes a task with a message that answers the client.
func (m *model) reply(h modelCredential, content string, how picket.Children) (string, picket.Code) {
	if _, again := m.closedBefore(h, "complete", content); !again {
		t, _, code := m.admits(h)
		if code == "" && (!t.client.message || t.reviewer() != string(picket.ReviewByNone) || len(t.emitted) > 0) {
			return "", picket.CodeStateConflict
		}
	}
	return m.complete(h, content, how)
}

func (x *machine) reply() {
	text, how := oneOf(x, "message", "yes", "no"), oneOf(x, "children", "", picket.ChildrenDetach)
	h, mh := x.holderOf(func(r *modelRun) bool { return isRunning(r) && x.m.tasks[r.task].client.message })
	x.callsAs(h, mh, func(h picket.LeaseCredential, mh modelCredential) {
		got, err := x.e.Reply(x.ctx, h, picket.Reply{Parts: []picket.Part{{Text: &text}}, Children: how})
		want, code := x.m.reply(mh, "message "+text+string(how), how)
		x.checkClosing(h, string(got), want, err, code, "reply")
	})
}

// decline ends a run whose agent will not do the task.
func (x *machine) decline() {
	x.calls(func(h picket.LeaseCredential, mh modelCredential) {
		got, err := x.e.Decline(x.ctx, h, "not mine")
		want, code := x.m.decline(mh, "not mine")
		x.checkClosing(h, string(got), want, err, code, "fail")
	})
}
