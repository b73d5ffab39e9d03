package orchestrator

import (
	"cmp"
	"context"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/budget"
	"github.com/picket-dev/picket/orchestrator/store"
)

// PromptSession leaves a prompt for a session. Its prompts are delivered one after the other. The same
// by.Idempotency is the same prompt.
func (e *Engine) PromptSession(ctx context.Context, by picket.Caller, sessionID string,
	req picket.PromptRequest) (picket.SessionPrompt, error) {
	if err := cmp.Or(picket.CheckID("sessionId", "asession", sessionID), req.Check()); err != nil {
		return picket.SessionPrompt{}, err
	}
	seconds := picket.DefaultPromptSeconds
	if req.TimeoutSeconds != nil {
		seconds = *req.TimeoutSeconds
	}
	p, err := e.run(ctx, "prompt_session", sessionID, cmp.Or(by.Key, by.Actor), by.Idempotency.Key, by.Idempotency.Body,
		"prompt_"+ulid.Make().String(), req.Text, 1000*seconds, picket.MaxOpenPrompts,
		picket.MaxPromptsListed, e.store.limits, e.dailyLimitArg()).prompt()
	return p, e.explainZeroLimit(err)
}

// SessionPrompt reads a prompt of a session, with its answer from the byte offset on. It waits until there
// is more of the answer, or the prompt has ended.
func (e *Engine) SessionPrompt(ctx context.Context, sessionID, promptID string, offset int,
	wait time.Duration) (p picket.SessionPrompt, err error) {
	if err := cmp.Or(picket.CheckID("sessionId", "asession", sessionID),
		picket.CheckID("promptId", "prompt", promptID)); err != nil {
		return p, err
	}
	_, err = e.records.WaitUntil(ctx, e.records.Subscribe(promptTopic(promptID)), wait,
		func() (done bool, again time.Duration, err error) {
			p, err = e.run(ctx, "prompt", sessionID, promptID, max(0, offset)).prompt()
			// Nobody says when the deadline passes.
			return p.State.Ended() || p.Answer != "", time.Duration(p.RemainingMs+1) * time.Millisecond, err
		})
	return p, err
}

// SessionPrompts pages through the prompts of a session, newest first.
func (e *Engine) SessionPrompts(ctx context.Context, sessionID string, before int64,
	limit int) (picket.PromptPage, error) {
	limit, err := pageLimit(limit, 20, 50)
	if err := cmp.Or(err, picket.CheckID("sessionId", "asession", sessionID)); err != nil {
		return picket.PromptPage{}, err
	}
	r := e.run(ctx, "prompts", sessionID, max(0, before), limit)
	var v struct {
		Rows []promptRow `reply:"rows"`
		Next int64       `reply:"next"`
	}
	r.Decode(&v)
	page := picket.PromptPage{Prompts: []picket.SessionPrompt{}, Cursor: v.Next}
	for _, row := range v.Rows {
		page.Prompts = append(page.Prompts, row.prompt())
	}
	return page, r.Err
}

// CommandResult stores what became of a prompt: that the agent works on it, a piece of the answer, or how
// it has ended. The same again changes nothing. Only the key that registered the agent, or an operator,
// may say it. The answer says whether the session has to take a task now, also for the same again.
func (e *Engine) CommandResult(ctx context.Context, by picket.Caller, agentID, commandID string,
	result picket.CommandResult) (taken picket.ResultTaken, err error) {
	if err := cmp.Or(picket.CheckName("agent_id", agentID), picket.CheckID("commandId", "prompt", commandID),
		result.Check()); err != nil {
		return taken, err
	}
	r := e.retryJudged(ctx, agentID, func() *reply {
		return e.run(ctx, "command_result", agentID, by.Actor, boolArg(by.Operator), result.Incarnation, commandID,
			string(result.State), result.Reason, result.Output, result.Offset, picket.MaxAnswerText,
			result.CapabilityHash)
	})
	var v struct {
		Next bool `reply:"next"`
	}
	r.Decode(&v)
	return picket.ResultTaken{NextTask: v.Next}, r.Err
}

// promptRow is prompt_row of the scripts.
type promptRow struct {
	ID       string          `reply:"id"`
	Session  string          `reply:"session"`
	State    string          `reply:"state"`
	Reason   string          `reply:"reason"`
	By       string          `reply:"by"`
	Text     string          `reply:"text"`
	Answer   string          `reply:"answer"`
	Offset   int             `reply:"offset"`
	Created  int64           `reply:"created"` // ms
	Accepted *int64          `reply:"accepted"`
	Ended    *int64          `reply:"ended"`
	Left     int64           `reply:"left"` // ms until the deadline
	Next     bool            `reply:"next"` // the agent has asked for a task
	Task     string          `reply:"task"` // that the session took
	Spent    budget.Envelope `reply:"spent"`
	Reserved int64           `reply:"reserved"`  // nano-dollars
	Wake     string          `reply:"wake"`      // the agent name of a wake; empty: a prompt of a person
	WakeLeft int64           `reply:"wake_left"` // ms until a wake has to be accepted
}

func (row promptRow) prompt() picket.SessionPrompt {
	p := picket.SessionPrompt{PromptID: row.ID, SessionID: row.Session, State: picket.PromptState(row.State),
		Wake: row.Wake != "", By: row.By, Text: row.Text, Answer: row.Answer, Offset: row.Offset, Reason: row.Reason,
		NextTask: row.Next, TaskID: row.Task, CreatedAt: picket.Instant(row.Created),
		AcceptedAt: optionalInstant(row.Accepted), EndedAt: optionalInstant(row.Ended), Spent: row.Spent}
	if !p.State.Ended() {
		p.RemainingMs, p.Budget = row.Left, budget.Money(row.Reserved)
	}
	return p
}

func (r *reply) prompt() (picket.SessionPrompt, error) {
	var row promptRow
	r.Decode(&row)
	return row.prompt(), r.Err
}

func promptTopic(promptID string) store.Topic { return store.Topic("prompt " + promptID) }
