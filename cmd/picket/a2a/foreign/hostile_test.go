package foreign

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	protocol "github.com/a2aproject/a2a-go/v2/a2a"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/cmd/picket/a2a/agentclient"
	"github.com/picket-dev/picket/cmd/picket/cli/exit"
	"github.com/picket-dev/picket/cmd/picket/settings"
	"github.com/picket-dev/picket/internal/rig/fakeagent"
)

// An agent that does not keep to the protocol fails the task, with a reason that says what it did.
func TestAHostileForeignAgentFailsItsTask(t *testing.T) {
	huge := strings.Repeat("x", agentclient.MaxAnswer)
	for name, c := range map[string]struct {
		sent, read string // the answers
		want       string // the reason
	}{
		"huge answer":         {"", `{"x":"` + huge + `"}`, "an answer of the agent has more than 16 MiB"},
		"no JSON":             {"", `{"id":`, "the answer of the agent is not one of A2A 1.0"},
		"another task":        {"", strings.Replace(fakeagent.TaskIn("COMPLETED"), "t1", "t2", 1), "answered with the task t2 instead of t1"},
		"no task id":          {`{"task":{"id":"","status":{"state":"TASK_STATE_WORKING"}}}`, "", "a task whose id has 0 bytes"},
		"long task id":        {`{"task":{"id":"` + huge[:300] + `","status":{"state":"TASK_STATE_WORKING"}}}`, "", "a task whose id has 300 bytes"},
		"task id of lines":    {`{"task":{"id":"a\nb","status":{"state":"TASK_STATE_WORKING"}}}`, "", "a task whose id has 3 bytes"},
		"result too large":    {"", foreignTask("COMPLETED", `},"artifacts":[{"artifactId":"a","parts":[{"text":"`+huge[:300_000]+`"}]}]}`), "Read it there: picket a2a get "},
		"controls in a text":  {"", foreignTask("FAILED", `,"message":{"messageId":"m","role":"ROLE_AGENT","parts":[{"text":"a\u001b[2Jb"}]}}}`), "failed there: a"},
		"a reason as a book":  {"", foreignTask("FAILED", `,"message":{"messageId":"m","role":"ROLE_AGENT","parts":[{"text":"`+huge[:100_000]+`"}]}}}`), "xxx"},
		"an unknown refusal":  {"error:{\"code\":-32000,\"message\":\"no\"}", "", "the agent refuses: no"},
		"a credential is bad": {"error:{\"code\":-32000,\"message\":\"no\",\"data\":[{\"reason\":\"UNAUTHENTICATED\",\"domain\":\"picket\"}]}", "", "Check the credential in PARTNER"},
	} {
		t.Run(name, func(t *testing.T) {
			f := fakeagent.New(t)
			f.Answer = func(method, _ string) string {
				switch {
				case method == "SubscribeToTask":
					return `error:{"code":-32004,"message":"no streams"}`
				case method == "SendMessage" && c.sent != "":
					return c.sent
				case method == "SendMessage":
					return `{"task":` + fakeagent.TaskIn("SUBMITTED") + `}`
				}
				return c.read
			}
			w := newWorker(t, f.URL)
			w.run(t)
			w.tools.wantCall(t, "mark_failed", c.want, `"retryable":false`)
			for _, body := range w.tools.named("mark_failed") {
				if len(body) > 2*maxReason || strings.Contains(body, `\u001b`) {
					t.Errorf("the reason has %d bytes: %.200q", len(body), body)
				}
			}
		})
	}
}

// If a stream breaks or is not valid, the task is read instead. An event of another task fails the run.
func TestABrokenStreamIsReplacedByReading(t *testing.T) {
	for name, stream := range map[string]func(http.ResponseWriter, string) error{
		"cut": func(w http.ResponseWriter, _ string) error {
			fakeagent.Event(w, fakeagent.StatusUpdate("WORKING", "x"))
			return http.ErrAbortHandler
		},
		"no JSON": func(w http.ResponseWriter, _ string) error { fmt.Fprint(w, "data: {\n\n"); return nil },
		"an error": func(w http.ResponseWriter, _ string) error {
			fmt.Fprint(w, "data: {\"jsonrpc\":\"2.0\",\"id\":\"1\",\"error\":{\"code\":-32603,\"message\":\"no\"}}\n\n")
			return nil
		},
		"huge": func(w http.ResponseWriter, _ string) error {
			fmt.Fprint(w, "data: "+strings.Repeat("x", agentclient.MaxAnswer+1))
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := answering(t, foreignTask("COMPLETED", "}}"))
			f.Stream = stream
			w := newWorker(t, f.URL)
			w.run(t)
			w.tools.wantCall(t, "mark_complete")
		})
	}
	f := answering(t, foreignTask("COMPLETED", "}}"))
	f.Stream = func(w http.ResponseWriter, _ string) error {
		fakeagent.Event(w, strings.ReplaceAll(fakeagent.StatusUpdate("COMPLETED", "x"), "t1", "t2"))
		return nil
	}
	w := newWorker(t, f.URL)
	w.run(t)
	w.tools.wantCall(t, "mark_failed", "sent an event of the task t2 instead of t1")
}

// A stream without end is slowed down, floods neither the reports nor the emissions, and ends with the run.
func TestAnEndlessStreamEndsWithTheRun(t *testing.T) {
	f := answering(t, foreignTask("WORKING", "}}"))
	many := make(chan struct{})
	f.Stream = func(w http.ResponseWriter, _ string) error {
		for n := 0; ; n++ {
			if n == fastEvents+10 {
				close(many)
			}
			_, err := fmt.Fprintf(w, "data: {\"jsonrpc\":\"2.0\",\"id\":\"1\",\"result\":%s}\n\n",
				strings.ReplaceAll(fakeagent.StatusUpdate("WORKING", fmt.Sprint("step ", n)), "\n", ""))
			if err != nil {
				return err
			}
		}
	}
	w := newWorker(t, f.URL)
	p := w.start(t)
	<-many
	p.Terminate()
	<-p.Done()
	n := len(w.tools.named("report_progress")) + len(w.tools.named("emit_status"))
	if n > fastEvents/4 || p.Exit().Signal != "SIGTERM" {
		t.Errorf("%d calls of tools, exit %+v", n, p.Exit())
	}
}

// Redirects are not followed, wherever they lead.
func TestAForeignAgentCannotRedirect(t *testing.T) {
	w := newWorker(t, fakeagent.NewRedirect(t, "http://169.254.169.254/latest/meta-data"))
	w.run(t)
	w.tools.wantCall(t, "mark_failed", "sends the request to another address: http://169.254.169.254/latest/meta-data")
	f := fakeagent.New(t)
	f.Rest = func(rw http.ResponseWriter, r *http.Request) {
		http.Redirect(rw, r, "http://169.254.169.254/", http.StatusTemporaryRedirect)
	}
	w = newWorker(t, f.URL)
	w.run(t)
	w.tools.wantCall(t, "mark_failed", "sends the request to another address")
}

// The card cannot send the credential to a host that the operator has not named.
func TestTheCardCannotNameAnotherHost(t *testing.T) {
	f := fakeagent.New(t)
	f.Card = strings.Replace(fakeagent.UsualCard, "AT/rpc", "http://localhost:1/rpc", 1)
	w := newWorker(t, f.URL)
	w.run(t)
	w.tools.wantCall(t, "mark_failed", "sends requests to another host: localhost:1", "agents.partner.remote.allow")
}

// An agent that does not answer fails the run, and the next one goes on.
func TestASilentForeignAgent(t *testing.T) {
	f := fakeagent.New(t)
	w := newWorker(t, f.URL)
	w.limits.silence = 50 * time.Millisecond
	f.Answer = func(method, _ string) string {
		if method == "SendMessage" {
			return `{"task":` + fakeagent.TaskIn("SUBMITTED") + `}`
		}
		panic(http.ErrAbortHandler)
	}
	w.run(t)
	w.tools.wantCall(t, "mark_failed", "the foreign agent does not answer for 50ms", `"retryable":true`)
	if notes, _ := filepath.Glob(filepath.Join(w.dir, "open", "*")); len(notes) != 1 {
		t.Errorf("the foreign task is noted as open: %q", notes)
	}
}

// What lies inside is not reached without the operator's word, and a credential must be there.
func TestWhatAWorkerRefusesAtItsStart(t *testing.T) {
	t.Setenv("PARTNER", " ")
	for name, c := range map[string]struct {
		remote settings.Remote
		want   string
		code   picket.Code
	}{
		"no credential": {settings.Remote{URL: "https://127.0.0.1", TokenEnv: "PARTNER", Allow: []string{"127.0.0.1"}},
			`agents.partner.remote.token_env: the environment variable "PARTNER" is not set`, exit.CodeUsage},
		"inside": {settings.Remote{URL: "https://127.0.0.1:1"},
			"127.0.0.1:1 may not be called: it leads inside", picket.CodeDestination},
		"metadata": {settings.Remote{URL: "https://169.254.169.254", Allow: []string{"169.254.0.0/16"}},
			"it leads inside", picket.CodeDestination},
		"a name": {settings.Remote{URL: "https://localhost", Allow: []string{"example.com"}},
			"localhost:443 may not be called", picket.CodeDestination},
	} {
		_, err := NewRemote(t.Context(), settings.Agent{Name: "partner", Remote: c.remote})
		if err == nil || !strings.Contains(err.Error(), c.want) || picket.CodeOf(err) != c.code {
			t.Errorf("%s: %v [%s]", name, err, picket.CodeOf(err))
		}
		remedy := exit.Remedy(err)
		if c.code == picket.CodeDestination && !strings.Contains(remedy, "agents.partner.remote.allow") {
			t.Errorf("%s: the remedy is %q", name, remedy)
		}
	}
}

// A foreign task is cancelled when its task is over, however its run ended.
func TestOpenForeignTasksAreCancelled(t *testing.T) {
	after := func(state picket.TaskState, run string, class picket.ExitClass) picket.Task {
		return picket.Task{State: state, Runs: []picket.Run{{RunID: run, Exit: &picket.Exit{Class: class}}}}
	}
	const timeout, released = picket.ExitTimeout, picket.ExitReleased
	in := func(state picket.TaskState) picket.Task { return picket.Task{State: state} }
	canceled := fakeagent.TaskIn("CANCELED")
	refused := func(code string) string { return `error:{"code":` + code + `,"message":"no"}` }
	for name, c := range map[string]struct {
		task   picket.Task
		err    error
		answer string // to CancelTask
		asks   bool   // CancelTask is called
		kept   bool   // the note
	}{
		"cancelled":           {in(picket.TaskCancelled), nil, canceled, true, false},
		"failed":              {in(picket.TaskFailed), nil, canceled, true, false},
		"deleted":             {in(""), picket.CodeNotFound, canceled, true, false},
		"ended there":         {in(picket.TaskCompleted), nil, refused("-32002"), true, false},
		"unknown there":       {in(picket.TaskCancelled), nil, refused("-32001"), true, false},
		"refused there":       {in(picket.TaskCancelled), nil, refused("-32603"), true, true},
		"waits":               {in(picket.TaskQueued), nil, "", false, true},
		"runs elsewhere":      {in(picket.TaskLeased), nil, "", false, true},
		"asks":                {in(picket.TaskHandoff), nil, "", false, true},
		"no server":           {in(""), picket.CodeUnavailable, "", false, true},
		"its time was over":   {after(picket.TaskHandoff, ourRun, timeout), nil, canceled, true, false},
		"of an earlier run":   {after(picket.TaskHandoff, "run_0", timeout), nil, "", false, true},
		"given back by a run": {after(picket.TaskQueued, ourRun, released), nil, "", false, true},
	} {
		t.Run(name, func(t *testing.T) {
			f := fakeagent.New(t)
			f.Answer = func(string, string) string { return c.answer }
			t.Setenv("PARTNER", token)
			r, err := NewRemote(t.Context(), entryOf(f.URL))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(r.Close)
			read := func(context.Context, string) (picket.Task, error) { return c.task, c.err }
			o := newOpenTasks(t.TempDir(), "near default", r, read, slog.New(slog.DiscardHandler))
			if err := o.note(ourTask, ourRun, "t1"); err != nil {
				t.Fatal(err)
			}
			o.begin(ourTask, ourRun)
			o.sweep(t.Context())
			if f.Called("CancelTask") > 0 {
				t.Error("the foreign task of a run that follows it was cancelled")
			}
			o.end(ourTask, "run_0")
			o.sweep(t.Context())
			o.end(ourTask, ourRun)
			o.sweep(t.Context())
			if asks := f.Called("CancelTask") > 0; asks != c.asks {
				t.Errorf("CancelTask was called: %t", asks)
			}
			if _, err := os.Stat(o.file(ourTask)); (err == nil) != c.kept {
				t.Errorf("the note: %v", err)
			}
		})
	}
}

// A worker of another agent, server or namespace leaves the note of a foreign task alone.
func TestANoteOfAnotherAgentIsKept(t *testing.T) {
	f := fakeagent.New(t)
	f.Answer = func(string, string) string { return fakeagent.TaskIn("CANCELED") }
	t.Setenv("PARTNER", token)
	r, err := NewRemote(t.Context(), entryOf(f.URL))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Close)
	o := newOpenTasks(t.TempDir(), "near default", r, func(context.Context, string) (picket.Task, error) {
		return picket.Task{State: picket.TaskCancelled}, nil
	}, slog.New(slog.DiscardHandler))
	if err := o.note(ourTask, ourRun, "t1"); err != nil {
		t.Fatal(err)
	}
	o.server = "near other"
	o.sweep(t.Context())
	o.server, o.remote = "near default", &Remote{URL: f.URL + "/other", guard: r.guard, transport: r.transport}
	o.sweep(t.Context())
	if _, err := os.Stat(o.file(ourTask)); err != nil || f.Called("CancelTask") > 0 {
		t.Errorf("the note: %v", err)
	}
}

// A note that was replaced meanwhile is not deleted.
func TestANoteOfANewerForeignTaskIsKept(t *testing.T) {
	w := newWorker(t, fakeagent.New(t).URL)
	for _, id := range []protocol.TaskID{"t1", "t2"} {
		if err := w.open.note(ourTask, ourRun, id); err != nil {
			t.Fatal(err)
		}
	}
	w.open.forget(ourTask, "t1")
	if _, err := os.Stat(w.open.file(ourTask)); err != nil {
		t.Error(err)
	}
	w.open.forget(ourTask, "t2")
	if _, err := os.Stat(w.open.file(ourTask)); err == nil {
		t.Error("the note is still there")
	}
}

// An agent whose stream and task tell different states is asked again after a pause, each time.
func TestAStreamThatContradictsItsTaskIsSlowedDown(t *testing.T) {
	f := answering(t, foreignTask("WORKING", "}}"))
	many := make(chan struct{})
	const rounds = 20
	opened := 0
	f.Stream = func(w http.ResponseWriter, _ string) error {
		if opened++; opened == rounds {
			close(many)
		}
		fakeagent.Event(w, fakeagent.StatusUpdate("COMPLETED", "x"))
		return nil
	}
	w := newWorker(t, f.URL)
	w.limits.first = 50 * time.Millisecond
	began := time.Now()
	p := w.start(t)
	<-many
	if took := time.Since(began); took < (rounds-1)*w.limits.first {
		t.Errorf("%d streams were opened within %s", rounds, took)
	}
	p.Terminate()
	<-p.Done()
}
