package calls

import (
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/orchestrator"
	"github.com/picket-dev/picket/orchestrator/proof/kit"
)

// TestSession is the session of the agent m1, after [WithSession]. Its id comes after those that are made of hashes, so
// that ids are numbered in the same order in every run.
const TestSession = "asession_7ZZZZZZZZZZZZZZZZZZZZZZZZZ"

func (w *Env) sessions(e *orchestrator.Engine, list ...picket.SessionReport) error {
	return e.ReportSessions(w.Ctx, kit.AgentOwner, "m1",
		picket.SessionsReport{Incarnation: w.incarnation, Sessions: list})
}

// WithSession is a set-up with an agent that keeps one session.
func WithSession(w *Env) {
	w.T.Helper()
	WithAgent(w)
	a, _, err := w.Direct.Agent(w.Ctx, "m1")
	kit.OK(w.T, err)
	w.incarnation = a.Incarnation
	kit.OK(w.T, w.sessions(w.Direct, idleSession(TestSession)))
}

func idleSession(id string) picket.SessionReport {
	return picket.SessionReport{SessionID: id, Kind: picket.SessionResident, Preset: "exec", State: picket.SessionIdle}
}

// WithPrompt is a set-up with a prompt of that session.
func WithPrompt(w *Env) {
	w.T.Helper()
	WithSession(w)
	w.prompt(600)
}

// withOverduePrompt is a set-up with one whose deadline has passed.
func withOverduePrompt(w *Env) {
	w.T.Helper()
	WithSession(w)
	w.prompt(1)
	w.JumpStoreTime(2 * time.Second)
}

func (w *Env) prompt(seconds int) {
	w.T.Helper()
	p, err := w.Direct.PromptSession(w.Ctx, kit.Operator, TestSession,
		picket.PromptRequest{Text: "hello", TimeoutSeconds: &seconds})
	kit.OK(w.T, err)
	w.Prompt = p.PromptID
}

// whyLess is why a repeated call has another answer.
const whyLess = "less time remains until the deadline of the prompt"

var sessionCases = []Case{
	{Name: "report_sessions", RepeatCounts: "each report is a sign of life", Setup: WithPrompt,
		Call: func(w *Env, e *orchestrator.Engine) (any, error) {
			return nil, w.sessions(e, idleSession("asession_"+ulid.ULID{1}.String()))
		}},
	{Name: "prompt_session", AnswerVaries: whyLess, Setup: WithSession,
		Call: func(w *Env, e *orchestrator.Engine) (any, error) {
			return e.PromptSession(w.Ctx, Asked("p"), TestSession, picket.PromptRequest{Text: "hello"})
		}},
	{Name: "stop_session", Setup: WithSession, Call: func(w *Env, e *orchestrator.Engine) (any, error) {
		return nil, e.StopSession(w.Ctx, Asked("s"), TestSession)
	}},
	{Name: "session_commands", Setup: withOverduePrompt, Call: func(w *Env, e *orchestrator.Engine) (any, error) {
		return e.PendingCommands(w.Ctx, kit.AgentOwner, "m1", picket.PendingQuery{Incarnation: w.incarnation})
	}},
	{Name: "command_result", Setup: WithPrompt, Call: func(w *Env, e *orchestrator.Engine) (any, error) {
		return nil, kit.SendResult(w.Ctx, e, kit.AgentOwner, "m1", w.Prompt,
			picket.CommandResult{Incarnation: w.incarnation, State: picket.PromptAnswered, Output: "well"})
	}},
}
