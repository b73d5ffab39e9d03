package a2a

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/picket-dev/picket/internal/rig/fakeagent"
)

var errCut = errors.New("cut")

// A lost stream is opened again. What was shown is not shown twice, and nothing of the task is left out.
func TestALostStreamIsOpenedAgain(t *testing.T) {
	f := fakeagent.New(t)
	atHome(t, "http://127.0.0.1:1", ownKey)
	f.Answer = func(string, string) string { return fakeagent.TaskIn("WORKING") }
	f.Stream = func(w http.ResponseWriter, _ string) error {
		switch f.Called("SubscribeToTask") {
		case 1:
			fakeagent.Event(w, `{"task":`+fakeagent.TaskIn("SUBMITTED")+`}`)
			fakeagent.Event(w, fakeagent.StatusUpdate("WORKING", "begun"))
			fakeagent.Event(w, `{"artifactUpdate":{"taskId":"t1","contextId":"c1","artifact":{"artifactId":"a","name":"log",
				"parts":[{"text":"one"}]}}}`)
			fmt.Fprint(w, `data: {"jsonrpc":"2.0","id":"1","result":{"statusUp`) // half an event
			return errCut
		case 2: // ends within an event
			fakeagent.Event(w, `{"task":{"id":"t1","contextId":"c1","status":{"state":"TASK_STATE_WORKING","message":
				{"messageId":"m","role":"ROLE_AGENT","parts":[{"text":"begun"}]}},
				"artifacts":[{"artifactId":"a","name":"log","parts":[{"text":"one"},{"text":"two"}]}]}}`)
			fmt.Fprint(w, `data: {"jsonrpc":"2.0","id":"1","result":{"statusUp`)
			return nil
		}
		if f.Called("SubscribeToTask") == 3 { // ends, although the task goes on
			return nil
		}
		fakeagent.Event(w, `{"artifactUpdate":{"taskId":"t1","contextId":"c1","append":true,"artifact":{"artifactId":"a",
			"parts":[{"text":"three"}]}}}`)
		fakeagent.Event(w, fakeagent.StatusUpdate("COMPLETED", "done"))
		return nil
	}
	r := run(t, "stream", f.URL, "t1")
	r.want(t, 0, "the connection to the agent was lost", "going on when the agent answers")
	const want = "submitted\nworking: begun\nartifact log\n  one\n  two\nworking\n  three\ncompleted: done\n"
	if r.stdout != want {
		t.Errorf("shown:\n%s\nwant:\n%s", r.stdout, want)
	}
}

// A task whose agent has no streams, or whose stream is refused, is read now and then.
func TestATaskIsReadWithoutStreams(t *testing.T) {
	f := fakeagent.New(t)
	atHome(t, "http://127.0.0.1:1", ownKey)
	for _, streams := range []string{`"streaming":false`, `"streaming":true`} {
		f.Card = strings.Replace(fakeagent.UsualCard, `"streaming":true`, streams, 1)
		begun := f.Called("GetTask")
		f.Answer = func(method, _ string) string {
			switch {
			case method == "SubscribeToTask":
				return `error:{"code":-32004,"message":"no streams"}`
			case method == "SendMessage":
				return `{"task":` + fakeagent.TaskIn("SUBMITTED") + `}`
			case f.Called("GetTask") <= begun+1:
				return fakeagent.TaskIn("WORKING")
			}
			return fakeagent.TaskIn("REJECTED")
		}
		r := run(t, "send", f.URL, "x")
		r.want(t, 1, "state    rejected", "task t1\nsubmitted\nworking\nrejected\n")
	}
}

// send waits until the task ends or asks, and its exit code tells which. A message needs no task.
func TestSend(t *testing.T) {
	f := fakeagent.New(t)
	atHome(t, "http://127.0.0.1:1", ownKey)
	var params string
	state := "COMPLETED"
	f.Answer = func(_, p string) string { params = p; return `{"task":` + fakeagent.TaskIn(state) + `}` }
	run(t, "send", f.URL, "hello", "--message-id", "m1", "--context", "c9").want(t, 0, "state    completed")
	for _, want := range []string{`"messageId":"m1"`, `"contextId":"c9"`, `"text":"hello"`, `"returnImmediately":true`,
		`"role":"ROLE_USER"`} {
		if !strings.Contains(params, want) {
			t.Errorf("%s is not in %s", want, params)
		}
	}
	for _, c := range []struct {
		state string
		code  int
		hint  string
	}{
		{"FAILED", 1, ""}, {"REJECTED", 1, ""}, {"CANCELED", 1, ""},
		{"INPUT_REQUIRED", 4, " a2a tell " + f.URL + " t1"},
		{"AUTH_REQUIRED", 4, "a person at the agent has to approve"},
	} {
		state = c.state
		run(t, "send", f.URL, "x").want(t, c.code, c.hint)
		run(t, "send", f.URL, "x", "--no-wait").want(t, 0, c.hint)
	}
	run(t, "tell", f.URL, "t1", "yes").want(t, 0)
	if !strings.Contains(params, `"taskId":"t1"`) {
		t.Errorf("tell sends %s", params)
	}
	f.Answer = func(string, string) string {
		return `{"message":{"messageId":"m2","role":"ROLE_AGENT","parts":[{"text":"hi"}]}}`
	}
	r := run(t, "send", f.URL, "x")
	r.want(t, 0)
	if r.stdout != "  hi\n" {
		t.Errorf("a message is shown as %q", r.stdout)
	}
}

// A message has the text, the data with all digits, and the files with their types.
func TestAMessageHasDataAndFiles(t *testing.T) {
	f := fakeagent.New(t)
	atHome(t, "http://127.0.0.1:1", ownKey)
	var params string
	f.Answer = func(_, p string) string { params = p; return `{"task":` + fakeagent.TaskIn("COMPLETED") + `}` }
	for name, text := range map[string]string{"a.json": "{}", "b.txt": "b", "big": strings.Repeat("x", maxSent)} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	run(t, "send", f.URL, "--data", `{"n":12345678901234567890}`, "--file", "a.json", "--file",
		"b.txt;type=application/x-b").want(t, 0)
	const want = `"parts":[{"data":{"n":12345678901234567890}},{"raw":"e30=","filename":"a.json","mediaType":` +
		`"application/json"},{"raw":"Yg==","filename":"b.txt","mediaType":"application/x-b"}]`
	if !strings.Contains(params, want) {
		t.Errorf("sent: %s\nwant: %s", params, want)
	}
	run(t, "send", f.URL, "x", "--file", "big", "--file", "b.txt").want(t, 2, "the files have more than 8 MiB")
	run(t, "send", f.URL, "x", "--file", "none").want(t, 2, "--file: open none")
	run(t, "send", f.URL, "x", "--data", `{} {}`).want(t, 2, "--data is not JSON")
	run(t, "send", f.URL).want(t, 2, "the message is empty")
}

// If the answer to a message is lost, the person learns how to send the same message again.
func TestALostAnswerNamesTheMessage(t *testing.T) {
	f := fakeagent.New(t)
	atHome(t, "http://127.0.0.1:1", ownKey)
	f.Answer = func(string, string) string { panic(http.ErrAbortHandler) }
	run(t, "send", f.URL, "x", "--message-id", "m7").want(t, 6, "may have taken the message",
		"Send it again with --message-id m7")
}

// The HTTP+JSON binding is used if a card names no other, and its errors are explained as those of JSON-RPC.
func TestTheBindingOfHTTP(t *testing.T) {
	f := fakeagent.New(t)
	atHome(t, "http://127.0.0.1:1", ownKey)
	f.Card = strings.Replace(fakeagent.UsualCard, "JSONRPC", "HTTP+JSON", 1)
	f.Rest = func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if r.URL.Path == "/rpc/tasks/t1" {
			_, _ = w.Write([]byte(fakeagent.TaskIn("COMPLETED")))
			return
		}
		w.Header().Set("Retry-After", "7")
		w.WriteHeader(http.StatusTooManyRequests)
		_, _ = w.Write([]byte(`{"error":{"code":429,"status":"RESOURCE_EXHAUSTED","message":"too many"}}`))
	}
	run(t, "get", f.URL, "t1").want(t, 0, "state    completed")
	run(t, "get", f.URL, "t2").want(t, 6, "the agent refuses: too many [rate_limited]", "fix: Try again later.")
}

// The pages of a list are read up to --limit.
func TestAListHasPages(t *testing.T) {
	f := fakeagent.New(t)
	atHome(t, "http://127.0.0.1:1", ownKey)
	var params []string
	f.Answer = func(_, p string) string {
		params = append(params, p)
		tasks := fakeagent.TaskIn("WORKING") + `,` + fakeagent.TaskIn("COMPLETED")
		return `{"tasks":[` + tasks + `],"nextPageToken":"p` + strings.Repeat("x", len(params)) + `"}`
	}
	r := run(t, "list", f.URL, "--limit", "5", "--state", "input-required", "--context", "c1", "-o", "name")
	r.want(t, 0, "5 shown, there are more: raise --limit")
	if r.stdout != "t1\nt1\nt1\nt1\nt1\n" || len(params) != 3 || !strings.Contains(params[0], `"pageSize":5`) ||
		!strings.Contains(params[0], `"status":"TASK_STATE_INPUT_REQUIRED"`) || !strings.Contains(params[2], `"pxx"`) {
		t.Errorf("%q after %q", r.stdout, params)
	}
	run(t, "list", f.URL, "--state", "done").want(t, 2, "choose one of submitted")
	run(t, "list", f.URL, "--limit", "0").want(t, 2, "--limit is 0")
}
