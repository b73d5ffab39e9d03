package foreign

import (
	stdjson "encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/adapter/process"
	"github.com/picket-dev/picket/client"
	"github.com/picket-dev/picket/cmd/picket/settings"
	"github.com/picket-dev/picket/internal/rig/cleanup"
	"github.com/picket-dev/picket/internal/rig/fakeagent"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(cleanup.WithTempDir(m, "pk-foreign-")) }

const (
	ourTask = "task_01ARZ3NDEKTSV4RRFFQ69G5FAV"
	ourRun  = "run_01ARZ3NDEKTSV4RRFFQ69G5FAV"
	token   = "token-of-the-partner"
)

// fakeTools are the tools of a run. They note what is called.
type fakeTools struct {
	url    string
	mu     sync.Mutex
	calls  []string // NAME BODY
	unread []picket.Message
	refuse func(name string) int // a status other than 200; nil: none
	task   picket.Task           // of get_task
	heard  chan string           // gets each call; nil: nobody waits
}

func newTools(t *testing.T) *fakeTools {
	t.Helper()
	f := &fakeTools{}
	server := httptest.NewServer(f)
	f.url = server.URL
	t.Cleanup(func() { client.DefaultHTTP.CloseIdleConnections(); server.Close() })
	return f
}

// ServeHTTP answers a call of a tool.
func (f *fakeTools) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	name := strings.TrimPrefix(r.URL.Path, "/v1/tools/")
	f.mu.Lock()
	defer f.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	if f.refuse != nil {
		if status := f.refuse(name); status != http.StatusOK {
			w.WriteHeader(status)
			fmt.Fprintf(w, `{"code":%q,"detail":"refused"}`, map[int]picket.Code{412: picket.CodeLeaseExpired,
				429: picket.CodeQuota, 400: picket.CodeValidation}[status])
			return
		}
	}
	f.calls = append(f.calls, name+" "+string(body))
	if f.heard != nil {
		f.heard <- name + " " + string(body)
	}
	var answer any = map[string]any{"state": "completed"}
	switch name {
	case "get_task":
		answer = f.task
	case "read_messages":
		var in picket.ReadMessages
		_ = stdjson.Unmarshal(body, &in)
		n := min(in.Max, len(f.unread))
		answer = picket.MessagesRead{Messages: slices.Clone(f.unread[:n])}
		if !in.Peek {
			f.unread = f.unread[n:]
		}
	case "request_human_help":
		answer = picket.HelpRequested{HandoffID: "handoff_1", State: picket.TaskHandoff}
	}
	_ = stdjson.NewEncoder(w).Encode(answer)
}

// named are the bodies of the calls of a tool.
func (f *fakeTools) named(name string) (bodies []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, c := range f.calls {
		if body, ok := strings.CutPrefix(c, name+" "); ok {
			bodies = append(bodies, body)
		}
	}
	return bodies
}

// wantCall is an error unless a tool was called once, with all texts.
func (f *fakeTools) wantCall(t *testing.T, name string, texts ...string) {
	t.Helper()
	got := f.named(name)
	if len(got) != 1 {
		f.mu.Lock()
		defer f.mu.Unlock()
		t.Errorf("%s was called %d times, in %q", name, len(got), f.calls)
		return
	}
	for _, text := range texts {
		if !strings.Contains(got[0], text) {
			t.Errorf("%s: %q is not in %s", name, text, got[0])
		}
	}
}

// ended are the calls that have ended the run.
func (f *fakeTools) ended() (calls []string) {
	for _, name := range []string{"mark_complete", "mark_failed", "request_human_help"} {
		for _, body := range f.named(name) {
			calls = append(calls, name+" "+body)
		}
	}
	return calls
}

// report is the last report, as the next lease has it.
func (f *fakeTools) report(t *testing.T) *picket.Report {
	t.Helper()
	reports := f.named("report_progress")
	if len(reports) == 0 {
		return nil
	}
	var p picket.Progress
	if err := stdjson.Unmarshal([]byte(reports[len(reports)-1]), &p); err != nil {
		t.Fatal(err)
	}
	return &picket.Report{Progress: p}
}

// worker is a worker of a fake agent.
type worker struct {
	*Launcher
	tools  *fakeTools
	output *syncBuffer
	dir    string
	env    []string
	used   []picket.UsageReport
}

type syncBuffer struct {
	mu   sync.Mutex
	text strings.Builder
}

// Write appends.
func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// entryOf is an entry of picket.yaml for an agent on this machine.
func entryOf(url string) settings.Agent {
	return settings.Agent{Name: "partner", Remote: settings.Remote{URL: url, TokenEnv: "PARTNER",
		Allow: []string{"127.0.0.1"}}}
}

func newWorker(t *testing.T, url string) *worker {
	t.Helper()
	t.Setenv("PARTNER", token)
	r, err := NewRemote(t.Context(), entryOf(url))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Close)
	w := &worker{tools: newTools(t), output: &syncBuffer{}, dir: t.TempDir()}
	server := client.New(w.tools.url, "pkk_x", client.Options{})
	w.Launcher = NewLauncher(r, filepath.Join(w.dir, "open"), server, slog.New(slog.NewTextHandler(w.output, nil)))
	w.limits = limits{silence: 20 * time.Second, first: 5 * time.Millisecond, longest: 20 * time.Millisecond,
		flush: 10 * time.Millisecond, stream: time.Minute, approve: 50 * time.Millisecond}
	return w
}

func (w *worker) start(t *testing.T, change ...func(*picket.Lease)) process.Process {
	t.Helper()
	lease := picket.Lease{TaskID: ourTask, RunID: ourRun, FencingToken: 1, ProxyURL: w.tools.url, LeaseToken: "pkl_x",
		Task: picket.LeaseTask{Title: "Paint the shed.", Input: picket.RawJSON(`"Paint the shed, and its door."`)}}
	for _, c := range change {
		c(&lease)
	}
	p, err := w.Launch(t.Context(), process.Job{Lease: lease, Stdout: w.output, Stderr: w.output,
		Env:  append([]string{"PICKET_TASK_FILE=" + filepath.Join(w.dir, "task.json")}, w.env...),
		Used: func(u picket.UsageReport) { w.used = append(w.used, u) }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Kill(); <-p.Done() })
	return p
}

// run runs until the end.
func (w *worker) run(t *testing.T, change ...func(*picket.Lease)) process.Exited {
	t.Helper()
	p := w.start(t, change...)
	select {
	case <-p.Done():
	case <-time.After(30 * time.Second):
		t.Fatalf("the run does not end:\n%s", w.output)
	}
	return p.Exit()
}

// after is a change of a lease: that after the runs that w has seen.
func (w *worker) after(t *testing.T, class picket.ExitClass, answers ...picket.Answer) func(*picket.Lease) {
	t.Helper()
	report := w.tools.report(t)
	return func(l *picket.Lease) {
		l.LastReport, l.PreviousExit, l.Answers = report, &picket.Exit{Class: class}, answers
	}
}

// foreignTask is a foreign task in a state, with further members.
func foreignTask(state, more string) string {
	return fmt.Sprintf(`{"id":"t1","contextId":"c1","status":{"state":"TASK_STATE_%s"%s`, state, more)
}

const says = `,"message":{"messageId":"q1","role":"ROLE_AGENT","parts":[{"text":"Which colour?"},` +
	`{"data":{"options":["red","blue","red",7]}}]}}`

// answering is an agent whose task is sent as submitted, and read as it is.
func answering(t *testing.T, read string) *fakeagent.Agent {
	t.Helper()
	f := fakeagent.New(t)
	f.Answer = func(method, _ string) string {
		switch method {
		case "SendMessage":
			return `{"task":` + fakeagent.TaskIn("SUBMITTED") + `}`
		case "SubscribeToTask":
			return `error:{"code":-32004,"message":"no streams"}`
		}
		return read
	}
	return f
}
