package toolproxy_test

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/labstack/echo/v4"
	"go.uber.org/goleak"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/internal/rig/cleanup"
	"github.com/picket-dev/picket/internal/rig/contract"
	"github.com/picket-dev/picket/internal/seal"
	"github.com/picket-dev/picket/internal/web"
	"github.com/picket-dev/picket/toolproxy"
	"github.com/picket-dev/picket/toolproxy/llm"
	mcppart "github.com/picket-dev/picket/toolproxy/mcp"
)

func TestMain(m *testing.M) {
	// The Redis client looks for a store that is away once a second, also when it was closed meanwhile.
	goleak.VerifyTestMain(cleanup.WithTempDir(m, "pk-toolproxy-"),
		goleak.IgnoreAnyFunction("github.com/redis/go-redis/v9/internal/pool.(*ConnPool).tryDial"))
}

// Ids of a lease that no store knows.
const (
	aTask = "task_01JZZZZZZZZZZZZZZZZZZZZZZA"
	aRun  = "run_01JZZZZZZZZZZZZZZZZZZZZZZB"
)

func newSealer(t testing.TB) *seal.Sealer {
	t.Helper()
	s, err := seal.New(bytes.Repeat([]byte{7}, 32))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// fakeBackend is a state of record that notes what it was asked and answers what the
// test tells it to. It stands in where only the proxy's own edge is meant: what
// is refused before any state is touched.
type fakeBackend struct {
	mu       sync.Mutex
	asked    []string
	held     []picket.LeaseCredential
	refused  []string
	keys     []string // request ids of reports
	exits    []picket.Exit
	outputs  []string
	waits    []time.Duration
	evidence []picket.Evidence
	err      error                                                            // answered by everything when set
	watch    func(context.Context, time.Duration) (picket.Watch, bool, error) // nil: changed at once
}

func (d *fakeBackend) note(verb string, held picket.LeaseCredential) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.asked = append(d.asked, verb)
	d.held = append(d.held, held)
	return d.err
}

func (d *fakeBackend) Renew(_ context.Context, h picket.LeaseCredential) (picket.Renewal, error) {
	return picket.Renewal{FencingToken: 1}, d.note("renew", h)
}

func (d *fakeBackend) Reclaim(_ context.Context, h picket.LeaseCredential) (picket.Renewal, error) {
	return picket.Renewal{FencingToken: 1 << 21}, d.note("reclaim", h)
}

func (d *fakeBackend) Release(_ context.Context, h picket.LeaseCredential, exit picket.Exit) (picket.TaskState, error) {
	d.exits = append(d.exits, exit)
	return picket.TaskQueued, d.note("release", h)
}

func (d *fakeBackend) Watch(ctx context.Context, h picket.LeaseCredential, wait time.Duration,
	_ ...string) (picket.Watch, bool, error) {
	if err := d.note("watch", h); err != nil || d.watch == nil {
		return picket.Watch{State: picket.WatchLost}, true, err
	}
	return d.watch(ctx, wait)
}

func (d *fakeBackend) CanExec(_ context.Context, h picket.LeaseCredential) (bool, error) {
	return false, d.note("can_exec", h)
}

func (d *fakeBackend) OrderExec(_ context.Context, h picket.LeaseCredential, _ picket.ExecRequest) error {
	return d.note("order_exec", h)
}

func (d *fakeBackend) AwaitExec(_ context.Context, h picket.LeaseCredential, _ string,
	_ time.Duration) (picket.ExecResult, bool, error) {
	return picket.ExecResult{}, false, d.note("await_exec", h)
}

func (d *fakeBackend) ExecResult(_ context.Context, h picket.LeaseCredential, _ string, _ picket.ExecResult) error {
	return d.note("exec", h)
}

func (d *fakeBackend) RunExit(_ context.Context, h picket.LeaseCredential, exit picket.Exit, _ string) error {
	d.exits = append(d.exits, exit)
	return d.note("exit", h)
}

func (d *fakeBackend) RunLog(_ context.Context, h picket.LeaseCredential, p picket.LogWrite) (int64, error) {
	return p.Offset + int64(len(p.Data)), d.note("logs", h)
}

func (d *fakeBackend) RunEvents(_ context.Context, h picket.LeaseCredential, _ []picket.RunEvent) error {
	return d.note("events", h)
}

func (d *fakeBackend) RunEvidence(_ context.Context, h picket.LeaseCredential, ev picket.Evidence) error {
	d.evidence = append(d.evidence, ev)
	return d.note("evidence", h)
}

func (d *fakeBackend) RunBundlePiece(_ context.Context, h picket.LeaseCredential, p picket.BundlePiece) (bool, error) {
	if err := p.Check(); err != nil {
		return false, err
	}
	return false, d.note("bundle_piece", h)
}

func (d *fakeBackend) RunBundle(_ context.Context, h picket.LeaseCredential, b picket.Bundle) error {
	if err := b.Check(); err != nil {
		return err
	}
	return d.note("bundle", h)
}

func (d *fakeBackend) Report(_ context.Context, h picket.LeaseCredential, requestID string,
	_ picket.Progress) (picket.Reported, error) {
	d.keys = append(d.keys, requestID)
	return picket.Reported{Seq: 1, Pinned: true}, d.note("report_progress", h)
}

func (d *fakeBackend) Emit(_ context.Context, h picket.LeaseCredential, requestID string,
	_ picket.ArtifactChunk) (picket.Emitted, error) {
	d.keys = append(d.keys, requestID)
	return picket.Emitted{Seq: 1}, d.note("emit", h)
}

func (d *fakeBackend) EmitStatus(_ context.Context, h picket.LeaseCredential, requestID string,
	_ picket.StatusMessage) (picket.Emitted, error) {
	d.keys = append(d.keys, requestID)
	return picket.Emitted{Seq: 1}, d.note("emit_status", h)
}

func (d *fakeBackend) Complete(_ context.Context, h picket.LeaseCredential,
	done picket.Completion) (picket.TaskState, error) {
	d.outputs = append(d.outputs, string(done.Output))
	return picket.TaskReview, d.note("mark_complete", h)
}

func (d *fakeBackend) Delegate(_ context.Context, h picket.LeaseCredential, key string,
	s picket.Subtask) (picket.Delegated, error) {
	d.keys = append(d.keys, key)
	return picket.Delegated{TaskID: aTask, State: picket.TaskQueued}, d.note("delegate_subtask", h)
}

func (d *fakeBackend) AwaitSubtask(_ context.Context, h picket.LeaseCredential, id string,
	wait time.Duration) (picket.SubtaskState, error) {
	d.waits = append(d.waits, wait)
	return picket.SubtaskState{TaskID: id, State: picket.TaskQueued}, d.note("await_subtask", h)
}

func (d *fakeBackend) ReviewSubtask(_ context.Context, h picket.LeaseCredential, _ string,
	r picket.SubtaskReview) (picket.SubtaskState, error) {
	return picket.SubtaskState{TaskID: r.TaskID, State: picket.TaskCompleted}, d.note("review_subtask", h)
}

func (d *fakeBackend) Reply(_ context.Context, h picket.LeaseCredential, _ picket.Reply) (picket.TaskState, error) {
	return picket.TaskCompleted, d.note("reply", h)
}

func (d *fakeBackend) Fail(_ context.Context, h picket.LeaseCredential, _ string, _ bool) (picket.TaskState, error) {
	return picket.TaskQueued, d.note("mark_failed", h)
}

func (d *fakeBackend) Decline(_ context.Context, h picket.LeaseCredential, _ string) (picket.TaskState, error) {
	return picket.TaskFailed, d.note("mark_failed", h)
}

func (d *fakeBackend) RequestHelp(_ context.Context, h picket.LeaseCredential,
	_ picket.HelpRequest) (picket.HelpRequested, error) {
	return picket.HelpRequested{State: picket.TaskHandoff}, d.note("request_human_help", h)
}

func (d *fakeBackend) HeldTask(_ context.Context, h picket.LeaseCredential, _ string) (picket.Task, error) {
	return picket.Task{TaskID: h.TaskID}, d.note("get_task", h)
}

func (d *fakeBackend) FindAgents(_ context.Context, h picket.LeaseCredential, _ string,
	_ picket.AgentSearch) (picket.FoundPools, error) {
	return picket.FoundPools{Pools: []picket.FoundPool{}}, d.note("find_agents", h)
}

func (d *fakeBackend) SendMessage(_ context.Context, h picket.LeaseCredential, _ string,
	_ picket.AgentMessage) (picket.MessageSent, error) {
	return picket.MessageSent{}, d.note("send_message", h)
}

func (d *fakeBackend) ReadMessages(_ context.Context, h picket.LeaseCredential, _ string, _ picket.ReadMessages,
	_ time.Duration) (picket.MessagesRead, error) {
	return picket.MessagesRead{Messages: []picket.Message{}}, d.note("read_messages", h)
}

func (d *fakeBackend) SessionCapability(_ context.Context, h picket.LeaseCredential) (picket.SessionGrant, error) {
	return picket.SessionGrant{AgentID: "agent-1"}, d.note("session_capability", h)
}

func (d *fakeBackend) NextTask(_ context.Context, h picket.LeaseCredential) (picket.NextTask, error) {
	return picket.NextTask{}, d.note("next_task", h)
}

func (d *fakeBackend) AgentContext(_ context.Context, h picket.LeaseCredential) (picket.AgentContext, error) {
	return picket.AgentContext{Tasks: []picket.ContextTask{}}, d.note("get_context", h)
}

func (d *fakeBackend) DeliverMessages(_ context.Context, h picket.LeaseCredential) (picket.MessagesWaiting, error) {
	return picket.MessagesWaiting{Messages: []picket.Message{}}, d.note("messages", h)
}

func (d *fakeBackend) RecordRefusedWrite(_ context.Context, _ picket.LeaseCredential, verb string,
	refusal *picket.Error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.refused = append(d.refused, verb+" "+string(refusal.Code))
}

// count says how many calls reached the state of record.
func (d *fakeBackend) count() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.asked)
}

// proxyEnv is a proxy with one namespace, and a way to call it.
type proxyEnv struct {
	e      *echo.Echo
	proxy  *toolproxy.Proxy
	sealer *seal.Sealer
	log    *bytes.Buffer
	doc    *contract.Document // answers are held against it; nil: they are not
	stub   bool               // the backend is a fake, whose good answers are empty
}

func newProxyEnv(t testing.TB, door toolproxy.Backend) *proxyEnv {
	f := newProxyEnvOf(t, newSealer(t), func(ns string) toolproxy.Backend {
		if ns != "default" {
			return nil
		}
		return door
	})
	f.stub = true
	return f
}

func newProxyEnvOf(t testing.TB, sealer *seal.Sealer, door func(string) toolproxy.Backend) *proxyEnv {
	t.Helper()
	return newProxyEnvWith(t, toolproxy.Config{Sealer: sealer, Backend: door})
}

func newProxyEnvWith(t testing.TB, cfg toolproxy.Config) *proxyEnv {
	t.Helper()
	f := &proxyEnv{sealer: cfg.Sealer, log: &bytes.Buffer{}, doc: contract.Load(t)}
	log := slog.New(slog.NewTextHandler(&syncWriter{w: f.log}, &slog.HandlerOptions{Level: slog.LevelDebug}))
	cfg.Log = log
	cfg.Parts = append(externalTools(), llm.New(llm.Config{}), mcppart.New(nil))
	p, err := toolproxy.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	f.e, f.proxy = web.New(log), p
	p.Mount(f.e)
	return f
}

// undescribed is the same proxy, its answers not held against the description.
func (f *proxyEnv) undescribed() *proxyEnv {
	other := *f
	other.doc = nil
	return &other
}

// token is the capability of the lease that no store knows.
func (f *proxyEnv) token() string { return f.sealer.LeaseToken("default", aTask, aRun).Reveal() }

// request is one call; empty members are left out.
type request struct {
	method string
	path   string
	bearer string
	fence  string
	body   string
	kind   string
	header map[string]string
}

// answer is what came back, the body decoded when it is JSON.
type answer struct {
	status int
	header http.Header
	raw    string
	body   map[string]any
}

func (a answer) code() string   { return text(a.body["code"]) }
func (a answer) remedy() string { return text(a.body["remedy"]) }
func (a answer) field() string  { return text(a.body["field"]) }

func text(v any) string { s, _ := v.(string); return s }

func (f *proxyEnv) call(t testing.TB, r request) answer {
	t.Helper()
	return f.callWith(t, context.Background(), r)
}

func (f *proxyEnv) callWith(t testing.TB, ctx context.Context, r request) answer {
	t.Helper()
	if r.method == "" {
		r.method = http.MethodPost
	}
	var body io.Reader
	if r.body != "" {
		body = strings.NewReader(r.body)
	}
	req := httptest.NewRequestWithContext(ctx, r.method, r.path, body)
	if r.body != "" && r.kind == "" {
		r.kind = echo.MIMEApplicationJSON
	}
	for name, value := range map[string]string{
		"Content-Type":        r.kind,
		"Authorization":       bearerOf(r.bearer),
		toolproxy.FenceHeader: r.fence,
	} {
		if value != "" {
			req.Header.Set(name, value)
		}
	}
	for name, value := range r.header {
		req.Header.Set(name, value)
	}
	rec := httptest.NewRecorder()
	f.e.ServeHTTP(rec, req)
	a := answer{status: rec.Code, header: rec.Header(), raw: rec.Body.String()}
	if a.raw != "" {
		if err := json.Unmarshal(rec.Body.Bytes(), &a.body); err != nil {
			t.Errorf("%s %s answered no JSON object: %v: %s", r.method, r.path, err, a.raw)
		}
	}
	f.check(t, req, rec, a)
	return a
}

// check holds an answer against the API description. What later parts will
// bring is not described, and refused as such.
func (f *proxyEnv) check(t testing.TB, req *http.Request, rec *httptest.ResponseRecorder, a answer) {
	t.Helper()
	if f.doc == nil || f.stub && a.status < 300 || a.code() == string(picket.CodeNotAvailable) {
		return
	}
	if err := f.doc.Check(req, rec.Code, rec.Header(), rec.Body.Bytes()); err != nil {
		t.Error(err)
	}
}

func bearerOf(token string) string {
	if token == "" {
		return ""
	}
	return "Bearer " + token
}

// syncWriter lets handlers on many goroutines write one log.
type syncWriter struct {
	mu sync.Mutex
	w  io.Writer
}

func (l *syncWriter) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.w.Write(p)
}

const aDigest = "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824"

// goodRequests are one good request for each route and tool.
var goodRequests = map[string]request{
	"renew": {path: "/v1/lease/renew", body: `{}`},
	"release": {
		path: "/v1/lease/release",
		body: `{"exit":{"class":"crash","code":137,"signal":"SIGKILL"},"detail":"last lines"}`,
	},
	"watch": {method: "GET", path: "/v1/lease/watch?waitSeconds=0"},
	"exit": {
		path: "/v1/run/exit",
		body: `{"class":"success","code":0,"signal":null,"containment":"group","durationMs":12}`,
	},
	"logs": {
		path: "/v1/run/logs?stream=stdout&offset=0",
		body: "hello\n",
		kind: "text/plain; charset=utf-8",
	},
	"events": {path: "/v1/run/events", body: `{"events":[{"type":"run.launched","containment":"group"}]}`},
	"evidence": {
		path: "/v1/run/evidence",
		body: `{"repository":"/r","branch":"picket/t","base":"abc","diffstat":" a | 1 +","diff":"+x","truncated":false,"files":[{"path":"a","added":1,"removed":0}]}`,
	},
	"bundle": {
		path: "/v1/run/bundle",
		body: `{"sha256":"` + aDigest + `","size":5,"branch":"picket/t","base":"` + aDigest[:40] + `","tip":"` + aDigest[:40] + `"}`,
	},
	"bundle_piece": {
		path: "/v1/run/bundle/" + aDigest + "/0?size=5",
		body: "bytes",
		kind: "application/octet-stream",
	},
	"exec": {
		path: "/v1/run/exec/k17",
		body: `{"code":0,"signal":null,"stdout":"ok","stderr":"","truncated":false,"durationMs":12}`,
	},
	"usage": {
		path: "/v1/run/usage",
		body: `{"source":"claude","session":"s-1","scope":"run","tokens":1234,"usd":0.0123}`,
	},
	"await_top_up":  {path: "/v1/tools/await_top_up", body: `{"waitSeconds":0}`},
	"get_task":      {path: "/v1/tools/get_task", body: `{}`},
	"get_context":   {path: "/v1/tools/get_context", body: `{}`},
	"agent_context": {method: "GET", path: "/agent/context"},
	"find_agents":   {path: "/v1/tools/find_agents", body: `{"role":"coder","needs":["go"]}`},
	"send_message": {
		path: "/v1/tools/send_message",
		body: `{"body":"hello","data":{"n":12345678901234567890},"type":"note"}`,
	},
	"read_messages": {path: "/v1/tools/read_messages", body: `{"max":5,"waitSeconds":0,"peek":true}`},
	"report_progress": {
		path: "/v1/tools/report_progress",
		body: `{"summary":"s","beliefs":["b"],"attempted":[{"action":"a","outcome":"o"}],"nextStep":"n","blockers":[]}`,
	},
	"emit": {
		path: "/v1/tools/emit",
		body: `{"artifactId":"a","name":"n","description":"d","parts":[{"text":"t","metadata":{"n":12345678901234567890}},` +
			`{"raw":"AAE=","filename":"f"},{"url":"https://x.example/y","mediaType":"image/png"},{"data":[1]}],` +
			`"append":true,"last":true}`,
	},
	"emit_status": {path: "/v1/tools/emit_status", body: `{"message":"half way"}`},
	"delegate_subtask": {
		path: "/v1/tools/delegate_subtask",
		body: `{"title":"a part","input":{"n":12345678901234567890},"role":"coder","needs":["go"],"budgetEnvelope":{"tokens":5,"usd":0.25},"priority":3,"timeoutSeconds":60,"review":"parent"}`,
	},
	"await_subtask": {path: "/v1/tools/await_subtask", body: `{"taskId":"` + aTask + `","waitSeconds":0}`},
	"review_subtask": {
		path: "/v1/tools/review_subtask",
		body: `{"taskId":"` + aTask + `","decision":"reject","note":"it must rhyme"}`,
	},
	"mark_complete": {
		path: "/v1/tools/mark_complete",
		body: `{"output":{"n":12345678901234567890},"summary":"done","children":"detach"}`,
	},
	"reply":       {path: "/v1/tools/reply", body: `{"parts":[{"text":"hello"}],"children":"cancel"}`},
	"mark_failed": {path: "/v1/tools/mark_failed", body: `{"reason":"no compiler","retryable":false}`},
	"request_human_help": {
		path: "/v1/tools/request_human_help",
		body: `{"question":"which?","options":["a","b"],"kind":"question","deadlineSeconds":null,"onDeadline":"wait"}`,
	},
}

// with returns the request with the credential of a lease.
func (r request) with(bearer, fence string) request {
	r.bearer, r.fence = bearer, fence
	return r
}

// decode reads a JSON object.
func decode(t testing.TB, raw string) (object map[string]any) {
	t.Helper()
	if err := json.Unmarshal([]byte(raw), &object); err != nil {
		t.Errorf("no JSON object: %v: %s", err, raw)
	}
	return object
}
