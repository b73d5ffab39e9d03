package orchestrator

import (
	"cmp"
	"context"
	"strings"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/budget"
	"github.com/picket-dev/picket/orchestrator/store"
)

// What the process of an agent session may do: it has a session capability, and no lease.

// SessionCapability says whose a session capability is. One that is not valid, or not any more, is refused with
// CodeSessionCapability. Of a process it also says which prompt is open now. The tool proxy sets the
// PromptID of the credential to it before any other call, so that a call belongs to one prompt from its beginning to
// its end.
func (e *Engine) SessionCapability(ctx context.Context, held picket.LeaseCredential) (picket.SessionGrant, error) {
	var v struct {
		Agent     string `reply:"agent"`
		Session   string `reply:"session"`
		Prompt    string `reply:"prompt"`
		Actor     string `reply:"actor"`
		Left      int64  `reply:"left"`      // ms
		Available int64  `reply:"available"` // nano-dollars
	}
	r := e.runCapability(ctx, held, "session_capability")
	r.Decode(&v)
	return picket.SessionGrant{AgentID: v.Agent, SessionID: v.Session, PromptID: v.Prompt, Actor: v.Actor,
		RemainingMs: v.Left, Available: budget.Money(v.Available)}, r.Err
}

// runCapability runs a script that begins with a session capability.
func (e *Engine) runCapability(ctx context.Context, held picket.LeaseCredential, script string, args ...any) *reply {
	if !held.OfSession() || held.Secret == "" {
		return e.newReply(script, nil, picket.Refuse(picket.CodeUnauthenticated,
			"Send the session capability as a bearer.", "no session capability was presented"))
	}
	return e.run(ctx, script, append([]any{cmp.Or(held.PromptID, held.SessionID), held.Secret}, args...)...)
}

// sendAsSession sends a message of a session to another agent.
func (e *Engine) sendAsSession(ctx context.Context, held picket.LeaseCredential, requestKey string,
	m picket.AgentMessage) (picket.MessageSent, error) {
	if m.To == "" || strings.HasPrefix(m.To, "task_") {
		refused := picket.LeaseRequired()
		refused.Message = "a session sends messages to agents only"
		refused.Remedy = "Name the id of an agent as /to. Only the agent of a run writes to tasks."
		return picket.MessageSent{}, refused
	}
	seed := ""
	if requestKey != "" {
		seed = held.PromptID + " " + requestKey
	}
	args := append([]any{m.To}, messageArgs(m.MessageRequest, seed)...)
	return e.runCapability(ctx, held, "session_send", append(args, e.quotas().MessagesBytes)...).messageSent()
}

// readAsSession answers a session the messages of its agent, as ReadMessages does.
func (e *Engine) readAsSession(ctx context.Context, held picket.LeaseCredential, requestID string,
	req picket.ReadMessages, wait time.Duration) (got picket.MessagesRead, err error) {
	look := func() (done bool, again time.Duration, err error) {
		var v struct {
			Rows   []messageRow `reply:"rows"`
			Unread int          `reply:"unread"`
		}
		r := e.runCapability(ctx, held, "session_read", requestID, cmp.Or(req.Max, defaultMessagesRead),
			boolArg(req.Peek))
		r.Decode(&v)
		got = picket.MessagesRead{Messages: messages(v.Rows), Unread: v.Unread}
		return len(got.Messages) > 0, 0, r.Err
	}
	if wait <= 0 {
		_, _, err = look()
		return got, err
	}
	grant, err := e.SessionCapability(ctx, held)
	if err != nil {
		return got, err
	}
	wait = min(wait, time.Duration(grant.RemainingMs)*time.Millisecond)
	topics := e.records.Subscribe(inboxTopic(grant.AgentID), promptTopic(held.PromptID))
	_, err = e.records.WaitUntil(ctx, topics, wait, look)
	return got, err
}

func inboxTopic(agentID string) store.Topic { return store.Topic("inbox " + agentID) }

// AgentContext shows the holder of a lease or of a session capability what it needs to know before it acts. It
// changes nothing.
func (e *Engine) AgentContext(ctx context.Context, held picket.LeaseCredential) (picket.AgentContext, error) {
	var r *reply
	if held.OfSession() {
		r = e.run(ctx, "agent_context", "", held.PromptID, held.Secret, 0)
	} else {
		r = e.runHeld(ctx, held, "agent_context")
	}
	v, err := r.agentContext()
	if err != nil {
		return picket.AgentContext{}, err
	}
	c := v.context(e.store.cfg.Wake.SessionHealthStaleAfter)
	if v.Session != nil && v.Session.Name != "" {
		f, err := e.storedWakeFacts(ctx, v.Session.Name, v.Session.ID, false)
		if err != nil {
			return picket.AgentContext{}, err
		}
		c.NextAllowedWake = f.nextAllowed()
	}
	return c, nil
}

// sessionContext is what AgentContext would show to the holder of a capability of a session, without the next
// allowed wake.
func (e *Engine) sessionContext(ctx context.Context, sessionID string) (picket.AgentContext, error) {
	r := e.run(ctx, "agent_context", "", "", "", "", sessionID)
	v, err := r.agentContext()
	return v.context(e.store.cfg.Wake.SessionHealthStaleAfter), err
}

// NextTask reserves the next turn of a session, which holds a capability: when the prompt is answered, the adapter
// acquires a task for it. If there is no task that the agent would get now, it reserves nothing and says why.
func (e *Engine) NextTask(ctx context.Context, held picket.LeaseCredential) (picket.NextTask, error) {
	var v struct {
		Reserved bool          `reply:"reserved"`
		Reason   string        `reply:"reason"`
		Lanes    []contextLane `reply:"lanes"`
		More     bool          `reply:"more"`
		Unread   int           `reply:"unread"`
	}
	r := e.runCapability(ctx, held, "next_task")
	r.Decode(&v)
	next := picket.NextTask{Reserved: v.Reserved, Reason: picket.NextTaskReason(v.Reason), MoreClaimable: v.More,
		Claimable: claimableTasks(v.Lanes), Unread: v.Unread}
	return next, r.Err
}

func claimableTasks(lanes []contextLane) []picket.ClaimableTasks {
	rows := []picket.ClaimableTasks{}
	for _, l := range lanes {
		rows = append(rows, picket.ClaimableTasks{TaskLane: taskLane(l.Lane), Tasks: l.Tasks})
	}
	return rows
}

func (r *reply) agentContext() (v agentContext, err error) {
	r.Decode(&v)
	return v, r.Err
}

// agentContext is what the script of this name answers.
type agentContext struct {
	Now       int64            `reply:"now"`   // store time, ms
	Known     int64            `reply:"known"` // from when reports count; store time, ms
	Agent     string           `reply:"agent"`
	Metadata  string           `reply:"metadata"`
	Name      string           `reply:"name"`
	Role      string           `reply:"role"`
	Caps      string           `reply:"caps"`
	Max       string           `reply:"max"`
	Status    string           `reply:"status"`
	Session   *sessionRow      `reply:"session"`
	Prompt    string           `reply:"prompt"`
	Left      int64            `reply:"left"` // ms
	Held      int              `reply:"held"`
	Tasks     []contextTask    `reply:"tasks"`
	Unread    int              `reply:"unread"`
	Senders   []contextSender  `reply:"senders"`
	Lanes     []contextLane    `reply:"lanes"`
	More      bool             `reply:"more"`
	Available *budget.Envelope `reply:"available"`
	USD       *int64           `reply:"usd"` // nano-dollars that a prompt has left
}

type contextTask struct {
	ID      string     `reply:"id"`
	Spec    specRecord `reply:"spec,json"`
	Lane    string     `reply:"lane"`
	Left    int64      `reply:"left"` // ms
	Answers int        `reply:"answers"`
}

type contextSender struct {
	Kind   string `reply:"kind"`
	ID     string `reply:"id"`
	Name   string `reply:"name"`
	Unread int    `reply:"unread"`
}

type contextLane struct {
	Lane  string `reply:"lane"`
	Tasks int    `reply:"tasks"`
}

func (v agentContext) context(staleAfter time.Duration) picket.AgentContext {
	c := picket.AgentContext{
		Self: picket.ContextSelf{AgentID: v.Agent, AgentName: agentNameIn(v.Metadata), Name: v.Name, Role: v.Role,
			Status: picket.AgentStatus(v.Status), Capabilities: splitTags(v.Caps),
			Limits: picket.ContextLimits{MaxSendsPerMinute: picket.MaxSendsPerMinute}},
		Tasks:         []picket.ContextTask{},
		TasksHeld:     v.Held,
		Unread:        picket.ContextUnread{Messages: v.Unread, Senders: []picket.UnreadSender{}},
		Claimable:     claimableTasks(v.Lanes),
		MoreClaimable: v.More,
	}
	switch {
	case v.Available != nil:
		c.Budget = &picket.ContextBudget{Tokens: &v.Available.Tokens, USD: v.Available.USD}
	case v.USD != nil:
		c.Budget = &picket.ContextBudget{USD: budget.Money(*v.USD)}
	}
	if v.Max != "" {
		most := int(store.ParseInt(v.Max))
		c.Self.Limits.MaxConcurrentTasks = &most
	}
	if v.Session != nil {
		s := v.Session.session(picket.Instant(v.Now), picket.Instant(v.Known), staleAfter, v.Session.Prompt != "")
		c.Session = &picket.ContextSession{SessionID: s.SessionID, Health: s.Health, PromptID: v.Prompt,
			RemainingMs: v.Left}
	}
	for _, t := range v.Tasks {
		c.Tasks = append(c.Tasks, picket.ContextTask{TaskID: t.ID, Title: t.Spec.Title, TaskLane: taskLane(t.Lane),
			RemainingMs: t.Left, AnsweredHandoffs: t.Answers})
	}
	for _, s := range v.Senders {
		c.Unread.Senders = append(c.Unread.Senders, picket.UnreadSender{Kind: s.Kind, ID: s.ID, Name: s.Name,
			Messages: s.Unread})
	}
	return c
}

// agentNameIn is the agent name in the metadata of an agent; empty: none.
func agentNameIn(metadata string) string {
	var v struct {
		AgentName any `json:"agent_name"`
	}
	_ = json.Unmarshal([]byte(metadata), &v)
	name, _ := v.AgentName.(string)
	if picket.CheckName("", name) != nil {
		return ""
	}
	return name
}

// taskLane says who takes the tasks of a lane.
func taskLane(lane string) picket.TaskLane {
	if agent, ok := strings.CutPrefix(lane, "agent:"); ok {
		return picket.TaskLane{Agent: agent, Needs: []string{}}
	}
	agent, open := store.SplitLane(lane)
	role, needs, _ := strings.Cut(open, "|")
	return picket.TaskLane{Role: role, Needs: splitTags(needs), Agent: agent}
}
