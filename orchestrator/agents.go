package orchestrator

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/oklog/ulid/v2"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/orchestrator/store"
)

// The registry of RFC-0016: what agents and those who look after them change.

// retryJudged runs a script that does not act while time has changed the status of
// the agent and nobody has written that down: then it is written, and the
// script runs again. So no outcome depends on when a reaper came by.
func (e *Engine) retryJudged(ctx context.Context, agentID string, try func() *reply) *reply {
	for range 3 {
		got := try()
		if !errors.Is(got.Err, store.ErrJudgeDue) {
			return got
		}
		if judged := e.run(ctx, "judge", agentID, 1); judged.Err != nil {
			return judged
		}
	}
	return try()
}

func optionalIntArg(n *int) string {
	if n == nil {
		return ""
	}
	return strconv.Itoa(*n)
}

// Register makes an agent a participant: active, with a new incarnation. An id
// that is dead or deregistered starts again, for the key that registered it; a
// live one is refused with CodeStateConflict. The same by.Once answers the
// record as it is now.
func (e *Engine) Register(ctx context.Context, by picket.Caller, reg picket.Registration) (picket.Agent, error) {
	if err := reg.Normalize(); err != nil {
		return picket.Agent{}, err
	}
	id := reg.AgentID
	if id == "" {
		id = "agent_" + ulid.Make().String()
	}
	most := ""
	if reg.Capacity != nil {
		most = optionalIntArg(reg.Capacity.MaxConcurrentTasks)
	}
	beat := reg.Heartbeat.Config()
	args := []any{id, by.Actor, by.Idempotency.Key, by.Idempotency.Body, reg.RoleID, reg.Name,
		strings.Join(reg.Capabilities, ","),
		most, reg.Endpoint,
		beat.IntervalSeconds, beat.UnhealthyAfterSeconds, beat.DeadAfterSeconds,
		optionalIntArg(reg.DrainTimeoutSeconds),
		string(reg.Metadata),
		e.quotas().Agents, e.quotas().MetadataBytes}
	a, _, err := e.retryJudged(ctx, id, func() *reply { return e.run(ctx, "register", args...) }).agent()
	return a, err
}

// Heartbeat records a heartbeat of the agent and returns the commands that wait for it. Only the
// key that registered it, or an operator, may send one; any other is refused with CodeForbidden and
// changes nothing. An agent that no longer participates, and a process of an earlier registration,
// are refused with CodeAgentGone.
func (e *Engine) Heartbeat(ctx context.Context, by picket.Caller, agentID string,
	hb picket.Heartbeat) (picket.HeartbeatAnswer, error) {
	if err := cmp.Or(picket.CheckName("agent_id", agentID), hb.Check()); err != nil {
		return picket.HeartbeatAnswer{}, err
	}
	args := []any{agentID, by.Actor, boolArg(by.Operator), hb.Incarnation, string(hb.Status),
		optionalIntArg(hb.CurrentLoad),
		int64(hb.ClientTimestamp), len(hb.HandledCommands)}
	for _, id := range hb.HandledCommands {
		args = append(args, id)
	}
	told := map[string]bool{} // of a task that is named twice it is told once to stop
	for _, id := range hb.TasksInProgress {
		if !told[id] {
			told[id] = true
			args = append(args, id)
		}
	}
	r := e.retryJudged(ctx, agentID, func() *reply { return e.run(ctx, "heartbeat", args...) })
	var v struct {
		Raw     int64             `reply:"raw"`
		Status  string            `reply:"status"`
		Drift   string            `reply:"drift"` // "", drifts or began_to_drift
		Stop    []string          `reply:"stop"`  // tasks
		Pending map[string]string `reply:"pending"`
	}
	r.Decode(&v)
	at := picket.Instant(v.Raw)
	e.noteClockDrift(ctx, agentID, v.Drift, at, hb.ClientTimestamp)
	return picket.HeartbeatAnswer{
		Acknowledged:    true,
		ServerTimestamp: at,
		AgentStatus:     picket.AgentStatus(v.Status),
		PendingCommands: r.commands(v.Pending, v.Stop),
	}, r.Err
}

// ChangeAgent makes an agent drain or deregisters it; match holds the versions it may have, none
// means any. An agent that has the status already stays as it is. A status that cannot follow is
// refused with CodeStateConflict. Another version is refused with CodeVersion and the facts
// presented and current, and a change for an earlier registration with CodeAgentGone.
func (e *Engine) ChangeAgent(ctx context.Context, by picket.Caller, agentID string, match []int64,
	change picket.AgentStatusChange) (picket.Agent, error) {
	if err := cmp.Or(picket.CheckName("agent_id", agentID), change.Check()); err != nil {
		return picket.Agent{}, err
	}
	script, args := "deregister",
		[]any{agentID, by.Actor, boolArg(by.Operator), by.Idempotency.Key, by.Idempotency.Body}
	if change.Status != picket.AgentDeregistered {
		script, args = "drain", append(args, string(change.Status), optionalIntArg(change.DrainTimeoutSeconds))
	}
	args = append(args, change.Incarnation)
	for _, version := range match {
		args = append(args, version)
	}
	a, _, err := e.retryJudged(ctx, agentID, func() *reply { return e.run(ctx, script, args...) }).agent()
	return a, err
}

// Deregister removes an agent at once: its leases end, which is not a failure of
// their tasks. One that was deregistered before is left as it is, a dead one is
// refused with CodeStateConflict. match is as for ChangeAgent.
func (e *Engine) Deregister(ctx context.Context, by picket.Caller, agentID string,
	match []int64) (picket.Agent, error) {
	return e.ChangeAgent(ctx, by, agentID, match, picket.AgentStatusChange{Status: picket.AgentDeregistered})
}

// CommandAgent gives an agent something to do. The agent gets it with the answers of its
// heartbeats, at least once, until it acknowledges it. An order to drain takes the place of one
// that is pending, and its id.
func (e *Engine) CommandAgent(ctx context.Context, by picket.Caller, agentID string,
	c picket.AgentCommand) (commandID string, err error) {
	if err := cmp.Or(picket.CheckName("agent_id", agentID), c.Check()); err != nil {
		return "", err
	}
	body, err := json.Marshal(c)
	if err != nil {
		return "", fmt.Errorf("encode command: %w", err)
	}
	args := []any{agentID, by.Actor, boolArg(by.Operator), by.Idempotency.Key, by.Idempotency.Body,
		"cmd_" + ulid.Make().String(),
		c.Command, string(body), c.Reason,
		picket.MaxPendingCommands}
	r := e.retryJudged(ctx, agentID, func() *reply { return e.run(ctx, "command", args...) })
	return r.Text(r.Value), r.Err
}

// noteClockDrift counts a heartbeat whose sender's clock is off, and logs the first one.
func (e *Engine) noteClockDrift(ctx context.Context, agentID, how string, server, client picket.Instant) {
	if how == "" {
		return
	}
	e.clockDrifts.Add(1)
	if how == "began_to_drift" {
		e.log.WarnContext(ctx,
			"the clock of an agent is off by more than twice its heartbeat interval; nothing is judged by it",
			"agent", agentID, "server_time", server, "client_timestamp", client)
	}
}

// ClockDrifts counts the heartbeats that this process took from agents whose clock
// is off by more than twice their interval.
func (e *Engine) ClockDrifts() int64 { return e.clockDrifts.Load() }

// JudgeAgents writes down what time has made of up to limit silent or draining
// agents, and of the health of up to limit sessions. It returns how many agents or sessions
// it looked at, whichever are more.
func (e *Engine) JudgeAgents(ctx context.Context, limit int) (int, error) {
	return e.runCount(ctx, "judge", append([]any{"", limit}, e.healthArgs()...)...)
}

// Agent shows an agent's record as it is stored, and the id of the key that
// registered it.
func (e *Engine) Agent(ctx context.Context, agentID string) (a picket.Agent, owner string, err error) {
	return e.runChecked(ctx, picket.CheckName("agent_id", agentID), "agent", agentID).agent()
}

// agent decodes an agent_view.
func (r *reply) agent() (a picket.Agent, owner string, err error) {
	var view struct {
		ID       string            `reply:"id"`
		Raw      int64             `reply:"raw"` // the server's own clock, ms
		Now      int64             `reply:"now"` // store time, ms
		Record   map[string]string `reply:"record"`
		Metadata string            `reply:"metadata"`
	}
	r.Decode(&view)
	h := view.Record
	a = picket.Agent{
		AgentID:      view.ID,
		RoleID:       h["role"],
		Name:         h["name"],
		Capabilities: splitTags(h["caps"]),
		Capacity:     capacity(h["max"], h["load"]),
		Status:       picket.AgentStatus(h["status"]),
		Endpoint:     h["endpoint"],
		Metadata:     picket.RawJSON(view.Metadata),
		Heartbeat: picket.HeartbeatConfig{
			IntervalSeconds:       int(store.ParseInt(h["interval"])),
			UnhealthyAfterSeconds: int(store.ParseInt(h["unhealthy"])),
			DeadAfterSeconds:      int(store.ParseInt(h["dead"])),
		},
		RegisteredAt:        picket.Instant(store.ParseInt(h["registered"])),
		LastHeartbeatAt:     picket.Instant(store.ParseInt(h["beat"])),
		Version:             store.ParseInt(h["version"]),
		Incarnation:         store.ParseInt(h["incarnation"]),
		DrainTimeoutSeconds: optionalInt(h["drain"]),
	}
	if a.Status == picket.AgentDraining {
		a.DrainDeadlineAt = picket.Instant(view.Raw + store.ParseInt(h["drain_until"]) - view.Now)
	}
	return a, h["owner"], r.Err
}

func capacity(most, load string) picket.Capacity {
	return picket.Capacity{MaxConcurrentTasks: optionalInt(most), CurrentLoad: int(store.ParseInt(load))}
}

func optionalInt(s string) *int {
	if s == "" {
		return nil
	}
	n := int(store.ParseInt(s))
	return &n
}

func splitTags(s string) []string {
	if s == "" {
		return []string{}
	}
	return strings.Split(s, ",")
}

// commands decodes the pending commands of an agent, oldest first, and then
// those that follow from what it reported.
func (r *reply) commands(pending map[string]string, stop []string) []picket.PendingCommand {
	out := []picket.PendingCommand{}
	for id, body := range pending {
		c := picket.PendingCommand{CommandID: id}
		r.JSON(body, &c.AgentCommand)
		out = append(out, c)
	}
	slices.SortFunc(out, func(a, b picket.PendingCommand) int { return cmp.Compare(a.CommandID, b.CommandID) })
	for _, id := range stop {
		out = append(out, picket.PendingCommand{CommandID: "stop_" + id,
			AgentCommand: picket.AgentCommand{Command: picket.CommandStopTask, TaskID: id, Reason: "no_lease"}})
	}
	return out
}

// Agents pages through the registry: by status in the order asked for, then by
// role where the key sees only its own pools, then by id.
func (e *Engine) Agents(ctx context.Context, q picket.AgentQuery) (picket.AgentPage, error) {
	w, err := newAgentWalk(&q)
	if err != nil {
		return picket.AgentPage{}, err
	}
	page := picket.AgentPage{Agents: []picket.AgentRow{}}
	last := "" // cursor of the last row of the page
	for {
		// One row more than the page holds tells whether there is another page.
		rows, _, err := e.nextAgents(ctx, &w, q.Limit+1-len(page.Agents))
		if err != nil {
			return picket.AgentPage{}, err
		}
		for _, row := range rows {
			if len(page.Agents) == q.Limit {
				page.NextCursor = last
				break
			}
			page.Agents = append(page.Agents, row.AgentRow)
			last = row.Roster + ":" + row.AgentID
		}
		if w.done || page.NextCursor != "" {
			break
		}
	}
	if page.Total = len(page.Agents); q.Cursor == "" && page.NextCursor == "" {
		return page, nil
	}
	page.Total, err = e.countAgents(ctx, q)
	return page, err
}

// Pools sums up the agents of each role, by name: of one role, or with role ""
// of all. With an owner, a key id, they are those in which that key has
// registered an agent. What the workflow file says of a pool is not filled in.
func (e *Engine) Pools(ctx context.Context, role, owner string) ([]picket.Pool, error) {
	if err := picket.CheckOptionalName("role_id", role); err != nil {
		return nil, err
	}
	pools := []picket.Pool{}
	for from, after := "", ""; ; {
		r := e.run(ctx, "pools", role, owner, from, after)
		var v struct {
			From  string     `reply:"from"`  // the role to go on with
			After string     `reply:"after"` // the agent to go on after
			Pools []poolView `reply:"pools"`
		}
		r.Decode(&v)
		for _, p := range v.Pools {
			pools = p.addTo(pools)
		}
		if from, after = v.From, v.After; r.Err != nil || from == "" {
			return pools, r.Err
		}
	}
}

// poolView is what the script pools found out about a pool, or about a part of it.
type poolView struct {
	Role    string            `reply:"role"`
	Max     int64             `reply:"max"`
	Load    int64             `reply:"load"`
	Caps    string            `reply:"caps"`
	Members map[string]string `reply:"members"` // by status, in the first part
}

// addTo adds the pool to the last one, or begins with a new one.
func (v poolView) addTo(pools []picket.Pool) []picket.Pool {
	if n := len(pools); n == 0 || pools[n-1].RoleID != v.Role {
		pools = append(pools, picket.Pool{RoleID: v.Role, Members: map[picket.AgentStatus]int{}})
	}
	p := &pools[len(pools)-1]
	p.MaxConcurrentTasks += int(v.Max)
	p.CurrentLoad += int(v.Load)
	p.AvailableCapacity = p.MaxConcurrentTasks - p.CurrentLoad
	p.Capabilities = append(p.Capabilities, splitTags(v.Caps)...)
	slices.Sort(p.Capabilities)
	p.Capabilities = slices.Compact(p.Capabilities)
	for status, n := range v.Members {
		p.Members[picket.AgentStatus(status)] = int(store.ParseInt(n))
	}
	return pools
}

func (e *Engine) countAgents(ctx context.Context, q picket.AgentQuery) (total int, err error) {
	q.Cursor = ""
	w, err := newAgentWalk(&q)
	for err == nil && !w.done {
		var n int
		_, n, err = e.nextAgents(ctx, &w, 0)
		total += n
	}
	return total, err
}

// agentWalk is how far a walk over the registry has come.
type agentWalk struct {
	filter []any // arguments of the script that stay
	roster string
	after  string
	done   bool
}

// agentRow is an agent as the script agents shows it.
type agentRow struct {
	picket.AgentRow
	Roster string `reply:"roster"`
	Tags   string `reply:"tags"` // capabilities
	Max    string `reply:"max"`
	Load   string `reply:"load"`
}

// maxAgentPage is how many agents a page holds at most.
const maxAgentPage = 1000

// newAgentWalk checks a query, fills in its defaults and begins where its cursor says.
func newAgentWalk(q *picket.AgentQuery) (agentWalk, error) {
	var err error
	if q.Limit, err = pageLimit(q.Limit, maxAgentPage, maxAgentPage); err != nil {
		return agentWalk{}, err
	}
	if q.MinAvailable != nil && *q.MinAvailable < 0 {
		return agentWalk{}, picket.Invalid("min_available_capacity", "Send 0 or more.", "min_available_capacity is %d",
			*q.MinAvailable)
	}
	caps, err := picket.NormalizeCapabilities("capabilities", q.Capabilities)
	if err := cmp.Or(picket.CheckOptionalName("role_id", q.Role), err); err != nil {
		return agentWalk{}, err
	}
	any1 := ""
	if len(caps) > 0 {
		any1 = "," + strings.Join(caps, ",") + ","
	}
	if len(q.Statuses) == 0 {
		q.Statuses = []picket.AgentStatus{picket.AgentActive}
	}
	w := agentWalk{filter: []any{q.Role, q.Owner, optionalIntArg(q.MinAvailable), any1, boolArg(q.Attached)}}
	for i, s := range q.Statuses {
		if !s.Valid() {
			return agentWalk{}, picket.Invalid("status",
				"Send active, unhealthy, draining, dead, deregistered, or * for all of them.",
				"%.40q is not a status of an agent", s)
		}
		if !slices.Contains(q.Statuses[:i], s) {
			w.filter = append(w.filter, string(s))
		}
	}
	if q.Cursor == "" {
		return w, nil
	}
	var found bool
	w.roster, w.after, found = strings.Cut(q.Cursor, ":")
	status, _, _ := strings.Cut(w.roster, "|")
	if !found || !picket.AgentStatus(status).Valid() || picket.CheckName("cursor", w.after) != nil {
		return agentWalk{}, badCursor("next_cursor")
	}
	return w, nil
}

// nextAgents takes up to limit agents more, or counts where limit is 0.
func (e *Engine) nextAgents(ctx context.Context, w *agentWalk, limit int) (rows []agentRow, n int, err error) {
	r := e.run(ctx, "agents", append([]any{limit, w.roster, w.after}, w.filter...)...)
	var page struct {
		Roster string     `reply:"roster"` // to go on in
		After  string     `reply:"after"`  // the id to go on after
		Found  int64      `reply:"found"`
		Rows   []agentRow `reply:"rows"`
	}
	r.Decode(&page)
	w.roster, w.after, w.done = page.Roster, page.After, page.Roster == ""
	for i, row := range page.Rows {
		page.Rows[i].Capabilities, page.Rows[i].Capacity = splitTags(row.Tags), capacity(row.Max, row.Load)
	}
	return page.Rows, int(page.Found), r.Err
}
