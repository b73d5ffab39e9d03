package api

import (
	"cmp"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/internal/web"
)

// The routes of agent sessions: those of adapters are below the agent, those of people below
// /api/v1/agent-sessions.

func reportSessions(c change[picket.SessionsReport]) (struct{}, error) {
	return struct{}{}, c.engine.ReportSessions(c.ctx(), c.by, c.id, c.body)
}

// maxKnownCommands is how many commands a long poll may say that it knows.
const maxKnownCommands = 200

// commandPoller is who polls for commands. It includes the key, so that nobody displaces the poll of another.
type commandPoller struct {
	namespace   string
	key         string
	agent       string
	incarnation int64
}

// pendingCommands is the long poll of an adapter for what waits for its agent. A newer poll of the same adapter ends
// the older, which is answered as if nothing had come.
func (a *API) pendingCommands(r request) error {
	id, err := r.id("agent")
	q := r.query("incarnation", "waitSeconds", "known", "messagesAfter")
	incarnation := q.number("incarnation", 0, 1, picket.MaxNumber)
	wait := time.Duration(q.number("waitSeconds", 0, 0, 50)) * time.Second
	var messages *int64
	if after := q.number("messagesAfter", -1, 0, picket.MaxNumber); after >= 0 {
		messages = &after
	}
	known := slices.DeleteFunc(strings.Split(q.text("known"), ","), func(id string) bool { return id == "" })
	for _, command := range known {
		q.fail(picket.CheckName("known", command))
	}
	switch {
	case incarnation == 0:
		q.fail(web.BadParameter("incarnation", "Send the incarnation that the registration has answered.",
			"incarnation is required"))
	case len(known) > maxKnownCommands:
		q.fail(web.BadParameter("known", "Leave out commands that you have reported.", "known has too many ids"))
	}
	if err := cmp.Or(err, q.err); err != nil {
		return err
	}
	ctx, done := r.waitContext()
	defer done()
	ctx, end := a.commandPolls.Begin(ctx, commandPoller{r.who.Namespace, r.who.KeyID, id, incarnation})
	defer end()
	by := picket.Caller{Actor: r.owner(), Key: r.who.KeyID, Operator: r.who.May(picket.ScopeOperator)}
	got, err := r.engine.PendingCommands(ctx, by, id, picket.PendingQuery{Incarnation: incarnation, Known: known,
		MessagesAfter: messages, Wait: wait})
	if err != nil && web.Displaced(ctx) {
		got, err = picket.PendingCommands{Sessions: []picket.SessionCommand{}, Agent: []picket.PendingCommand{}}, nil
	}
	return r.respond(got, cmp.Or(revokedError(ctx), asParameter(err)))
}

func commandResult(c change[picket.CommandResult]) (picket.ResultTaken, error) {
	return c.engine.CommandResult(c.ctx(), c.by, c.id, c.Param("command"), c.body)
}

func sessionQuery(r request) (picket.AgentSessionQuery, error) {
	q := r.query("agentId", "cursor", "limit")
	want := picket.AgentSessionQuery{AgentID: q.text("agentId"), Cursor: q.number("cursor", 0, 1, picket.MaxNumber),
		Limit: int(q.number("limit", 50, 1, 100))}
	return want, q.err
}

func stopSession(c change[struct{}]) (picket.AgentSession, error) {
	if err := c.engine.StopSession(c.ctx(), c.by, c.id); err != nil {
		return picket.AgentSession{}, err
	}
	return c.engine.AgentSession(c.ctx(), c.id)
}

// promptSession answers 201 for a repeated request, too: what it answers is the prompt that the first one
// made.
func promptSession(r request) error {
	c, err := decodeChange[picket.PromptRequest](r, "asession")
	if err != nil {
		return err
	}
	made, err := c.engine.PromptSession(c.ctx(), c.by, c.id, c.body)
	if err != nil {
		return err
	}
	r.Response().Header().Set(echo.HeaderLocation, "/api/v1/agent-sessions/"+c.id+"/prompts/"+made.PromptID)
	return web.JSON(r.Context, http.StatusCreated, made)
}

func listPrompts(r request) error {
	id, err := r.id("asession")
	q := r.query("cursor", "limit")
	before, limit := q.number("cursor", 0, 1, picket.MaxNumber), int(q.number("limit", 20, 1, 50))
	if err := cmp.Or(err, q.err); err != nil {
		return err
	}
	page, err := r.engine.SessionPrompts(r.ctx(), id, before, limit)
	return r.respond(page, asParameter(err))
}

// getPrompt answers a prompt, with what the agent has answered from a byte on. It can wait for more.
func getPrompt(r request) error {
	id, err := r.id("asession")
	q := r.query("offset", "waitSeconds")
	offset := int(q.number("offset", 0, 0, picket.MaxAnswerText))
	wait := time.Duration(q.number("waitSeconds", 0, 0, 50)) * time.Second
	if err := cmp.Or(err, q.err); err != nil {
		return err
	}
	ctx, done := r.waitContext()
	defer done()
	p, err := r.engine.SessionPrompt(ctx, id, r.Param("prompt"), offset, wait)
	return r.respond(p, cmp.Or(revokedError(ctx), err))
}
