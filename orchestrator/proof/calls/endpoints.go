package calls

import (
	stdjson "encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/labstack/echo/v4"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/budget"
	"github.com/picket-dev/picket/internal/rig"
	"github.com/picket-dev/picket/internal/web"
	"github.com/picket-dev/picket/orchestrator"
	"github.com/picket-dev/picket/orchestrator/a2a"
	"github.com/picket-dev/picket/orchestrator/proof/kit"
)

// What clients write at endpoints, over HTTP. A client that gets no answer sends the same message again.

// partner is the key of the client. A key that is made has another secret each time, so its record is written.
const partner = "key_partner"

// withPartner is a set-up with the key of a client.
func withPartner(w *Env) {
	w.T.Helper()
	kit.OK(w.T, w.Raw.HSet(w.Ctx, "pk:{default}:key:"+partner, "name", "partner", "scopes", "client").Err())
}

// endpoint is the server of the endpoint of the pool mender, in front of an engine.
func (w *Env) endpoint(e *orchestrator.Engine) http.Handler {
	who := picket.Principal{KeyID: partner, Namespace: "default", Scopes: []picket.Scope{picket.ScopeClient},
		Client: &picket.ClientLimits{Roles: []string{"mender"}, MaxOpen: 10}}
	server, err := a2a.New(a2a.Config{
		PublicURL: "http://endpoint",
		Pools: []a2a.Pool{{Role: "mender", MaxQueue: 10, Task: picket.TaskSpec{Review: picket.ReviewByNone,
			BudgetEnvelope: &budget.Envelope{Tokens: 100, USD: 1_000_000_000}}}},
		Admit:  func(echo.Context) (*orchestrator.Engine, picket.Principal, error) { return e, who, nil },
		Engine: func(string) *orchestrator.Engine { return e },
		Leases: rig.Sealer(),
	})
	kit.OK(w.T, err)
	handler := web.New(slog.New(slog.DiscardHandler))
	server.Mount(handler)
	return handler
}

// unavailable is the error of the store that an answer tells: the store is full, has refused, or has not answered.
func unavailable(said string) error {
	code := picket.CodeUnavailable
	if strings.Contains(strings.ToLower(said), string(picket.CodeStoreFull)) {
		code = picket.CodeStoreFull
	}
	err := picket.Refuse(code, "Repeat it.", "%s", said)
	if strings.Contains(said, "did not answer") {
		return err.WithCause(picket.ErrUnknown)
	}
	return err
}

// asClient posts to the endpoint of the pool. An answer that tells the client to repeat the request is that error.
func asClient(path, body string) func(w *Env, e *orchestrator.Engine) (any, error) {
	return func(w *Env, e *orchestrator.Engine) (any, error) {
		at := "/agents/mender/a2a/" + strings.ReplaceAll(path, "TASK", w.Task.TaskID)
		req := httptest.NewRequestWithContext(w.Ctx, http.MethodPost, at,
			strings.NewReader(strings.ReplaceAll(body, "TASK", w.Task.TaskID)))
		req.Header.Set("Content-Type", "application/json")
		res := httptest.NewRecorder()
		w.endpoint(e).ServeHTTP(res, req)
		var answer any
		switch said := res.Body.Bytes(); {
		case res.Code == http.StatusServiceUnavailable:
			return nil, unavailable(string(said))
		case res.Code == http.StatusBadRequest && strings.Contains(res.Body.String(), "TASK_NOT_CANCELABLE"):
			return "the task has ended", nil
		case res.Code >= http.StatusBadRequest:
			return nil, fmt.Errorf("status %d: %s", res.Code, said)
		case stdjson.Unmarshal(said, &answer) != nil:
			return nil, fmt.Errorf("the answer is not JSON: %s", said)
		}
		return answer, nil
	}
}

// saying is the body of message:send.
func saying(member string) string {
	return `{"message":{"messageId":"m1","contextId":"c1","role":"ROLE_USER","parts":[{"text":"hello"}]` + member +
		`},"configuration":{"returnImmediately":true}}`
}

// runsForPartner is a set-up in which the agent m1 runs a task of the client.
func runsForPartner(w *Env) {
	w.T.Helper()
	withPartner(w)
	WithAgent(w)
	var err error
	w.Task, err = w.Direct.Submit(w.Ctx, picket.Caller{Actor: partner, Key: partner}, picket.TaskSpec{Title: "t",
		Role: "mender", Review: picket.ReviewByNone,
		Client: &picket.ClientTask{Role: "mender", ContextID: "c1", MessageID: "m0", TaskID: "mine"}}) // a known id
	kit.OK(w.T, err)
	leases, err := w.Direct.Acquire(w.Ctx, kit.AgentOwner, picket.AcquireRequest{AgentID: "m1", Role: "mender"})
	kit.OK(w.T, err)
	w.Held, err = rig.Sealer().OpenLeaseToken(leases[0].LeaseToken.Reveal())
	kit.OK(w.T, err)
}

// asksPartner is a set-up in which a task of the client has asked something.
func asksPartner(w *Env) {
	w.T.Helper()
	runsForPartner(w)
	_, err := w.Direct.RequestHelp(w.Ctx, w.Held, picket.HelpRequest{Question: "Which one?"})
	kit.OK(w.T, err)
}

var endpointCases = []Case{
	{Name: "submit/endpoint", OverHTTP: true, Setup: withPartner, Call: asClient("message:send", saying(""))},
	{Name: "submit/endpoint under an id of the client", OverHTTP: true, Setup: withPartner,
		Call: asClient("tasks", `{"taskId":"mine","title":"hello"}`)}, // the server makes a context each time
	{Name: "tell/endpoint", OverHTTP: true, Setup: runsForPartner,
		Call: asClient("message:send", saying(`,"taskId":"TASK"`))},
	{Name: "tell/endpoint of an agent", OverHTTP: true, Setup: runsForPartner,
		Call: asClient("messages", `{"messageId":"m1","toAgentId":"m1","type":"hint","payload":"hello"}`)},
	{Name: "answer/endpoint", OverHTTP: true, Setup: asksPartner,
		Call: asClient("message:send", saying(`,"taskId":"TASK"`))},
	{Name: "cancel/endpoint", OverHTTP: true, Setup: runsForPartner, Call: asClient("tasks/TASK:cancel", ""),
		AnswerVaries: "a task that was cancelled cannot be cancelled again"},
}
