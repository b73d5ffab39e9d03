package console

import (
	"cmp"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/picket-dev/picket"
)

// Bounds of the pages of sessions, in rows and in bytes of text.
const (
	maxSessionsOfAgent = 10 // on the page of the agent
	maxPromptsShown    = 10
	maxPromptExcerpt   = 4 << 10
	maxAnswerExcerpt   = 8 << 10
)

// sessionRows is a list of sessions.
type sessionRows struct {
	Rows []picket.AgentSession
	Of   string // id of the agent; empty: of all agents
	Next string
	All  string // the page with all sessions of the agent
}

func (v *request) agentSessions(q picket.AgentSessionQuery) (sessionRows, error) {
	found, err := v.backend.Sessions.AgentSessions(v.ctx(), q)
	list := sessionRows{Rows: found.Sessions, Of: q.AgentID, All: queryPath(sessionsPath, "agent", q.AgentID)}
	if found.Cursor != 0 {
		list.Next = queryPath(sessionsPath, "agent", q.AgentID, "before", strconv.FormatInt(found.Cursor, 10))
	}
	return list, err
}

func listSessions(v *request) (page, error) {
	list, err := v.agentSessions(picket.AgentSessionQuery{AgentID: v.parameter("agent"), Cursor: v.position("before"),
		Limit: pageRows})
	return page{
		name:    "sessions",
		title:   "Sessions",
		topics:  []string{"agent_session.", "agent."},
		body:    list,
		problem: err,
	}, nil
}

// healthWords says in a sentence what the health of a session means for a person.
func healthWords(h picket.SessionHealth) string {
	switch {
	case h.DetailCode != nil:
		return healthDetails[*h.DetailCode]
	case h.IneligibilityReason == nil:
		return "It waits for a prompt."
	case *h.IneligibilityReason == picket.WakeReasonSessionPromptActive:
		return "A prompt is under way. Other prompts wait in order."
	case *h.IneligibilityReason == picket.WakeReasonSessionNotAttachable:
		return "No prompt can be delivered now: the worker drains, the process cannot be started, or the conversation is lost."
	}
	return ""
}

var healthDetails = map[picket.HealthDetail]string{
	picket.HealthDetailUnknown: "Nothing was reported since the store was adopted.",
	picket.HealthDetailDead:    "The session has ended, or its agent is dead or deregistered.",
	picket.HealthDetailStale: "The last report is older than wake.session_health_stale_after, or the agent is " +
		"unhealthy.",
	picket.HealthDetailHung: "The prompt under way has shown no activity for too long.",
}

// sessionView is what the page of a session shows.
type sessionView struct {
	picket.AgentSession
	Prompts []promptView // the newest last
	Older   string       // page of the prompts before these
	Earlier bool         // these are not the newest prompts
	Open    bool         // it takes prompts
	Wrong   string       // field of the form that was refused
	// Wake is what would become of a wake by a person now. It is nil for a session without an agent name.
	Wake *picket.WakeDecision
	// WakeSoon is true if the scheduler wakes the session in its next cycle.
	WakeSoon bool
}

// promptView is a prompt in a conversation.
type promptView struct {
	picket.SessionPrompt
	Question   excerpt
	Said       excerpt // of the answer: its beginning, or its end while more may come
	Live       string  // where the script reads on; empty: it does not
	Next       int     // byte at which it reads on
	Full       string  // path of the whole texts
	DeadlineAt picket.Instant
	DoneAt     picket.Instant // 0: the prompt has not ended
	TookMs     int64          // from the beginning of the work to its end; 0: not known
}

func showSession(v *request) (page, error) {
	s, err := v.backend.Sessions.AgentSession(v.ctx(), v.Param("id"))
	if err != nil {
		return page{}, sessionNotFound(err)
	}
	before := v.position("before")
	found, err := v.backend.Sessions.SessionPrompts(v.ctx(), s.SessionID, before, maxPromptsShown)
	if err != nil {
		return page{}, sessionNotFound(err)
	}
	w := sessionView{AgentSession: s, Earlier: before != 0, Open: s.Health.State != picket.SessionStopped,
		Wrong: formField(v.problem)}
	if found.Cursor != 0 {
		w.Older = queryPath(sessionPath(s.SessionID), "before", strconv.FormatInt(found.Cursor, 10))
	}
	if s.WakePlan != nil && s.WakePlan.NextAt != nil {
		w.WakeSoon = *s.WakePlan.NextAt <= v.now()
	}
	if w.Open && s.AgentName != "" {
		d, err := v.backend.Policies.Wake(v.ctx(), picket.Caller{Operator: true}, s.AgentName,
			picket.WakeRequest{SessionID: s.SessionID, DryRun: true})
		if err != nil {
			return page{}, err
		}
		w.Wake = &d
	}
	followed := false // by the script; the prompts behind it begin when it has ended
	for _, p := range slices.Backward(found.Prompts) {
		shown := v.promptView(p)
		if followed {
			shown.Live = ""
		}
		followed = followed || shown.Live != ""
		w.Prompts = append(w.Prompts, shown)
	}
	return page{
		name:   "session",
		title:  "Session " + cmp.Or(s.AgentName, shortID(s.SessionID)),
		topics: []string{s.AgentID, "namespace.", "heartbeat_policy."},
		body:   w,
	}, nil
}

func (v *request) promptView(p picket.SessionPrompt) promptView {
	at := sessionPath(p.SessionID) + "/prompts/" + p.PromptID
	w := promptView{SessionPrompt: p, Question: newExcerpt(p.Text, maxPromptExcerpt), Full: at + "/full/"}
	if p.State.Ended() {
		w.Said = newExcerpt(terminalText([]byte(p.Answer)), maxAnswerExcerpt)
		if p.EndedAt != nil {
			w.DoneAt = *p.EndedAt
		}
		if p.AcceptedAt != nil {
			w.TookMs = max(0, int64(w.DoneAt-*p.AcceptedAt))
		}
		return w
	}
	from := runeStart(p.Answer, max(0, int64(len(p.Answer))-maxAnswerExcerpt))
	w.Said = excerpt{Text: terminalText([]byte(p.Answer[from:])), More: from > 0}
	w.Live, w.Next = at+"/answer", p.Offset+len(p.Answer)
	w.DeadlineAt = v.now() + picket.Instant(p.RemainingMs)
	return w
}

// sessionNotFound explains to a person that there is no record of a session.
func sessionNotFound(err error) error {
	if !errors.Is(err, picket.CodeNotFound) {
		return err
	}
	return picket.Refuse(picket.CodeNotFound,
		"Look for it in the list. A session that was prompted is kept for a week after its end, and any other one is not kept.",
		"there is no such session")
}

// Why says in a sentence why a prompt was not answered.
func (p promptView) Why() string {
	code, _, _ := strings.Cut(p.Reason, ":")
	switch {
	case p.State == picket.PromptExpired:
		return "Nobody took it before its deadline."
	case promptReasons[code] != "":
		return promptReasons[code]
	case p.State == picket.PromptRefused:
		return "The adapter did not give it to the agent."
	case p.State == picket.PromptFailed:
		return "The agent did not answer."
	}
	return ""
}

// promptReasons has the sentence of each reason that an adapter or the server gives.
var promptReasons = map[string]string{
	"timeout":               "The agent did not answer before the deadline.",
	"agent_ended":           "The process of the agent ended.",
	picket.CannotStart:      "The process of the agent cannot be started.",
	picket.ConversationLost: "There is no conversation to resume.",
	"session_ended":         "The session was ended before the answer.",
	"session_stopped":       "The session was ended before the answer.",
	"session_lost":          "The adapter ended, or was started again.",
	"keeper_ended":          "The adapter ended, or was started again.",
	"keeper_restarted":      "The adapter ended, or was started again.",
}

// sessionFlash is the page of the session in the address, which reports what was done.
func (v *request) sessionFlash(code string) string {
	return withFlash(sessionPath(v.Param("id")), code, "")
}

func promptSession(v *request, by picket.Caller, _ string) (string, error) {
	req := picket.PromptRequest{Text: v.formValue("text")}
	if typed := v.formWord("timeoutSeconds"); typed != "" {
		seconds, err := strconv.Atoi(typed)
		if err != nil {
			return "", picket.Invalid("/timeoutSeconds", "Write a number from 1 to 3600.", "the time is not a number")
		}
		req.TimeoutSeconds = &seconds
	}
	_, err := v.backend.Sessions.PromptSession(v.ctx(), by, v.Param("id"), req)
	return v.sessionFlash("prompted"), err
}

// wakeSession wakes a session by the policy of its agent name.
func wakeSession(v *request, by picket.Caller, _ string) (string, error) {
	s, err := v.backend.Sessions.AgentSession(v.ctx(), v.Param("id"))
	if err != nil {
		return "", sessionNotFound(err)
	}
	d, err := v.backend.Policies.Wake(v.ctx(), by, s.AgentName, picket.WakeRequest{SessionID: s.SessionID})
	if err == nil && d.Result != picket.WakeResultSent {
		return v.sessionFlash("notwoken"), nil
	}
	return v.sessionFlash("woken"), err
}

// wakeReasons say in a sentence why a session is not woken.
var wakeReasons = map[picket.WakeReason]string{
	picket.WakeReasonSent:                    "The policy and the session allow it.",
	picket.WakeReasonDisabled:                "The policy is turned off or its file is empty, or the settings of the server turn all policies off.",
	picket.WakeReasonInvalid:                 "The policy or its file is not valid.",
	picket.WakeReasonNoPolicy:                "The agent name has no wake policy.",
	picket.WakeReasonRateLimited:             "The agent name got as many wakes as it may within 30 seconds.",
	picket.WakeReasonCooldownActive:          "Its last wake was less than the cooldown ago.",
	picket.WakeReasonQuietWindow:             "It is outside of the active hours, or in a quiet window.",
	picket.WakeReasonSessionNotFound:         "The session is not there, or belongs to another agent name.",
	picket.WakeReasonSessionUnhealthy:        "Its health does not allow it.",
	picket.WakeReasonSessionNotAttachable:    "No prompt can be delivered to it.",
	picket.WakeReasonSessionPromptActive:     "A prompt is under way.",
	picket.WakeReasonSessionPromptActiveRace: "Another prompt began before the adapter took the wake.",
	picket.WakeReasonSyntheticPromptFailed:   "No adapter has accepted the wake.",
	picket.WakeReasonCoalesced:               "Another wake is on its way, or the last one was too recent.",
	picket.WakeReasonAgentDraining:           "The agent drains.",
	picket.WakeReasonPaused:                  "The namespace is paused.",
	picket.WakeReasonBudgetExceeded:          "Nothing is left today of a budget that its wakes may spend.",
	picket.WakeReasonUnmetered:               "Its model calls are not metered, and unmetered is not set for its agent name.",
}

func stopSession(v *request, by picket.Caller, _ string) (string, error) {
	return v.sessionFlash("ending"), v.backend.Sessions.StopSession(v.ctx(), by, v.Param("id"))
}

// promptNow reads the prompt in the address, with its answer from a byte on.
func (v *request) promptNow(offset int) (picket.SessionPrompt, error) {
	const dontWait = time.Duration(0)
	return v.backend.Sessions.SessionPrompt(v.ctx(), v.Param("id"), v.Param("prompt"), offset, dontWait)
}

// showPromptText answers a prompt or its answer at full length.
func showPromptText(v *request) error {
	p, err := v.promptNow(0)
	if err != nil {
		return err
	}
	switch v.Param("part") {
	case "prompt":
		return v.writeText(p.Text)
	case "answer":
		return v.writeText(p.Answer)
	}
	return notFound(v)
}

// showRawAnswer answers what the agent has written after a byte, for the script. It has the headers of the
// raw log of a run.
func showRawAnswer(v *request) error {
	p, err := v.promptNow(int(min(v.position("offset"), picket.MaxAnswerText)))
	if err != nil {
		return err
	}
	state := string(p.State)
	if p.State.Ended() {
		state = string(picket.LogClosed)
	}
	h := v.Response().Header()
	h.Set("X-Picket-Next", strconv.Itoa(p.Offset+len(p.Answer)))
	h.Set("X-Picket-Log", state)
	return v.Blob(http.StatusOK, echo.MIMETextPlainCharsetUTF8, []byte(p.Answer))
}
