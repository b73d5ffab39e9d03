package foreign

import (
	stdjson "encoding/json"
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/internal/rig/fakeagent"
)

// The end of a foreign task is that of the task.
func TestHowAForeignTaskEnds(t *testing.T) {
	for name, c := range map[string]struct{ task, tool, want string }{
		"artifacts": {foreignTask("COMPLETED", `},"artifacts":[{"artifactId":"a","parts":[{"text":"one","metadata":{"x":1}}]},`+
			`{"artifactId":"b","parts":[{"data":{"n":12345678901234567890}},{"raw":"AAE=","filename":"f.bin","mediaType":"x/y"}]}]}`),
			"mark_complete", `{"parts":[{"text":"one"},{"data":{"n":12345678901234567890}},{"raw":"AAE=","filename":"f.bin","mediaType":"x/y"}]}`},
		"words":    {foreignTask("COMPLETED", says+"}"), "mark_complete", `"output":{"parts":[{"text":"Which colour?"}`},
		"nothing":  {foreignTask("COMPLETED", "}}"), "mark_complete", `"output":null`},
		"failed":   {foreignTask("FAILED", says+"}"), "mark_failed", `the task has failed there: Which colour?","retryable":false}`},
		"canceled": {foreignTask("CANCELED", "}}"), "mark_failed", `the task was cancelled there","retryable":false}`},
		"rejected": {foreignTask("REJECTED", says+"}"), "mark_failed",
			`it rejects the task: Which colour?","retryable":false,"class":"rejected"}`},
	} {
		t.Run(name, func(t *testing.T) {
			f := answering(t, c.task)
			w := newWorker(t, f.URL)
			if exit := w.run(t); exit.Code != 0 {
				t.Errorf("exit code %d: %s", exit.Code, w.output)
			}
			w.tools.wantCall(t, c.tool, c.want)
			if n := f.Called("SendMessage"); n != 1 || len(w.tools.ended()) != 1 {
				t.Errorf("%d messages were sent, and the run ended by %q", n, w.tools.ended())
			}
			if notes, _ := filepath.Glob(filepath.Join(w.dir, "open", "*")); len(notes) > 0 {
				t.Errorf("the foreign task is noted as open: %q", notes)
			}
		})
	}
}

// An agent may answer with a message and no task. The request has the input of the task.
func TestAForeignAgentRepliesAtOnce(t *testing.T) {
	f := fakeagent.New(t)
	f.Answer = func(method, params string) string {
		if !strings.Contains(params, `"text":"Paint the shed, and its door."`) ||
			!strings.Contains(params, `"returnImmediately":true`) {
			t.Errorf("it got %s", params)
		}
		return `{"message":{"messageId":"m","role":"ROLE_AGENT","parts":[{"text":"Done."}]}}`
	}
	w := newWorker(t, f.URL)
	w.run(t)
	w.tools.wantCall(t, "mark_complete", `"output":{"parts":[{"text":"Done."}]}`)
	if got := f.Sent("Authorization"); slices.ContainsFunc(got, func(s string) bool { return s != "Bearer "+token }) {
		t.Errorf("it got the credentials %q", got)
	}
	if all := strings.Join(w.tools.calls, "") + w.output.String(); strings.Contains(all, token) {
		t.Errorf("the credential is in %s", all)
	}
}

// A question of the agent is a hand-off. The answer goes to the same foreign task, once.
func TestAForeignQuestion(t *testing.T) {
	f := answering(t, foreignTask("INPUT_REQUIRED", says+"}"))
	w := newWorker(t, f.URL)
	w.run(t)
	w.tools.wantCall(t, "request_human_help", `"question":"Which colour?"`, `"options":["red","blue"]`)
	answer := picket.Answer{HandoffID: "handoff_1", Question: "Which colour?", Option: new("red"),
		Answer: picket.RawJSON(`"dark"`)}
	before := w.after(t, picket.ExitSuccess, answer)
	var ids []string
	f.Answer = func(method, params string) string {
		switch method {
		case "SendMessage":
			var p struct {
				Message struct{ MessageID, TaskID, ContextID string }
			}
			_ = stdjson.Unmarshal([]byte(params), &p)
			if p.Message.TaskID != "t1" || p.Message.ContextID != "c1" ||
				!strings.Contains(params, `"parts":[{"text":"red"},{"text":"dark"}]`) {
				t.Errorf("the answer is %s", params)
			}
			ids = append(ids, p.Message.MessageID)
			return `{"task":` + fakeagent.TaskIn("WORKING") + `}`
		case "SubscribeToTask":
			return `error:{"code":-32004,"message":"no streams"}`
		}
		if len(ids) == 0 {
			return foreignTask("INPUT_REQUIRED", says+"}")
		}
		return foreignTask("COMPLETED", "}}")
	}
	w.tools = newTools(t)
	w.tools.refuse = func(name string) int { // the run ends before it has noted that the answer was sent
		if name == "report_progress" {
			return 412
		}
		return 200
	}
	if exit := w.run(t, before); exit.Code != 1 || len(w.tools.ended()) > 0 {
		t.Errorf("exit code %d after %q", exit.Code, w.tools.ended())
	}
	done := f.Answer
	f.Answer = func(method, params string) string {
		if method == "GetTask" && len(ids) == 1 { // the message was lost after all
			return foreignTask("INPUT_REQUIRED", says+"}")
		}
		return done(method, params)
	}
	w.tools = newTools(t)
	w.run(t, before)
	w.tools.wantCall(t, "mark_complete")
	if len(ids) != 2 || ids[0] != ids[1] {
		t.Errorf("the answer was sent as %q", ids)
	}
	// An answer that was passed on is not the answer to the next question with the same words.
	f.Answer = answering(t, foreignTask("INPUT_REQUIRED", says+"}")).Answer
	again := w.after(t, picket.ExitSuccess, answer)
	w.tools = newTools(t)
	w.run(t, again)
	w.tools.wantCall(t, "request_human_help", "Which colour?")
}

// An approval is given at the foreign agent. When a person has said that it is given, the run goes on.
func TestAForeignApproval(t *testing.T) {
	f := answering(t, foreignTask("AUTH_REQUIRED", says+"}"))
	w := newWorker(t, f.URL)
	w.run(t)
	w.tools.wantCall(t, "request_human_help", `"kind":"approval"`, "needs an approval or a credential there", "Which colour?")
	var asked picket.HelpRequest
	if err := stdjson.Unmarshal([]byte(w.tools.named("request_human_help")[0]), &asked); err != nil {
		t.Fatal(err)
	}
	answered := w.after(t, picket.ExitSuccess, picket.Answer{HandoffID: "handoff_1", Question: asked.Question,
		Answer: picket.RawJSON(`"done"`)})
	reads := 0
	f.Answer = func(method, _ string) string {
		if reads++; reads < 3 {
			return foreignTask("AUTH_REQUIRED", says+"}")
		}
		return foreignTask("COMPLETED", "}}")
	}
	w.tools = newTools(t)
	w.limits.approve = time.Minute
	w.run(t, answered)
	w.tools.wantCall(t, "mark_complete")
	if f.Called("SendMessage") != 1 {
		t.Error("the approval was sent to the agent")
	}
	f.Answer = answering(t, foreignTask("AUTH_REQUIRED", says+"}")).Answer
	w.tools, w.limits.approve = newTools(t), time.Millisecond
	w.run(t, answered)
	w.tools.wantCall(t, "request_human_help", `"kind":"approval"`)
}

// The next run goes on with the foreign task, and sends nothing.
func TestTheNextRunGoesOn(t *testing.T) {
	f := answering(t, foreignTask("WORKING", "}}"))
	f.Stream = func(w http.ResponseWriter, _ string) error {
		fakeagent.Event(w, `{"task":`+fakeagent.TaskIn("WORKING")+`}`)
		<-t.Context().Done()
		return nil
	}
	w := newWorker(t, f.URL)
	w.tools.heard = make(chan string, 100)
	p := w.start(t)
	for call := range w.tools.heard {
		if strings.Contains(call, `\"remoteTaskId\":\"t1\"`) {
			break
		}
	}
	p.Kill()
	<-p.Done()
	if len(w.tools.ended()) > 0 || p.Exit().Signal != "SIGKILL" {
		t.Errorf("a killed run ends as %v, and calls %q", p.Exit(), w.tools.ended())
	}
	next := w.after(t, picket.ExitReleased)
	f.Stream, f.Answer = nil, answering(t, foreignTask("COMPLETED", "}}")).Answer
	w.tools = newTools(t)
	w.run(t, next)
	w.tools.wantCall(t, "mark_complete")
	if n := f.Called("SendMessage"); n != 1 {
		t.Errorf("%d messages were sent", n)
	}
}

// A message whose answer is lost, or that a killed run has sent, is sent again with the same id.
func TestAMessageKeepsItsID(t *testing.T) {
	f := fakeagent.New(t)
	var ids []string
	f.Answer = func(_, params string) string {
		_, rest, _ := strings.Cut(params, `"messageId":"`)
		id, _, _ := strings.Cut(rest, `"`)
		if ids = append(ids, id); len(ids) == 1 {
			panic(http.ErrAbortHandler)
		}
		return `{"message":{"messageId":"m","role":"ROLE_AGENT","parts":[{"text":"ok"}]}}`
	}
	w := newWorker(t, f.URL)
	w.tools.refuse = func(name string) int {
		if name == "mark_complete" {
			return 412
		}
		return 200
	}
	w.run(t)
	w.run(t)
	if len(ids) != 3 || ids[0] != ids[1] || ids[0] != ids[2] || ids[0] == "" {
		t.Errorf("the messages have the ids %q", ids)
	}
}

// After a failure the next run begins another foreign task. After a run whose time was over it cancels the old one
// first.
func TestAnotherForeignTask(t *testing.T) {
	for name, c := range map[string]struct {
		state string
		class picket.ExitClass
		again bool // another one is begun
		ended bool // the old one is cancelled
	}{
		"failed":                {"FAILED", picket.ExitAgentFailed, true, false},
		"failed, not told yet":  {"FAILED", picket.ExitReleased, false, false},
		"silent":                {"WORKING", picket.ExitAgentFailed, false, false},
		"timeout":               {"WORKING", picket.ExitTimeout, true, true},
		"stalled":               {"WORKING", picket.ExitStalled, true, true},
		"timeout, but complete": {"COMPLETED", picket.ExitTimeout, false, false},
		"lost":                  {"WORKING", picket.ExitLeaseExpired, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			f := fakeagent.New(t)
			sent, cancelled := 0, 0
			f.Answer = func(method, params string) string {
				switch method {
				case "SendMessage":
					sent++
					return strings.ReplaceAll(`{"task":`+fakeagent.TaskIn("COMPLETED")+`}`, "t1", "t2")
				case "CancelTask":
					cancelled++
					return fakeagent.TaskIn("CANCELED")
				case "SubscribeToTask":
					return `error:{"code":-32004,"message":"no streams"}`
				}
				switch {
				case strings.Contains(params, `"t2"`):
					return strings.ReplaceAll(fakeagent.TaskIn("COMPLETED"), "t1", "t2")
				case f.Called("GetTask") > 1 && c.state == "WORKING":
					return fakeagent.TaskIn("COMPLETED")
				}
				return fakeagent.TaskIn(c.state)
			}
			w := newWorker(t, f.URL)
			w.run(t, func(l *picket.Lease) {
				l.PreviousExit = &picket.Exit{Class: c.class}
				l.LastReport = &picket.Report{Progress: picket.Progress{Beliefs: []string{"x",
					checkpoint{URL: f.URL, TaskID: ourTask, Round: 1, Remote: "t1"}.line()}}}
			})
			if (sent == 1) != c.again || (cancelled == 1) != c.ended || len(w.tools.ended()) != 1 {
				t.Errorf("%d messages, %d cancellations, ended by %q\n%s", sent, cancelled, w.tools.ended(), w.output)
			}
		})
	}
}

// What a person says about a failure goes with the message that begins another foreign task, and an edited input with
// an answer.
func TestAdviceOfAPersonIsPassedOn(t *testing.T) {
	f := answering(t, foreignTask("FAILED", "}}"))
	w := newWorker(t, f.URL)
	w.run(t)
	advice := picket.Answer{HandoffID: "handoff_1", Question: "It has failed.",
		Answer: picket.RawJSON(`"Use the ladder."`), Input: picket.RawJSON(`"Paint the roof."`), InputEdited: true}
	again := w.after(t, picket.ExitAgentFailed, advice)
	var sent []string
	f.Answer = func(method, params string) string {
		if method == "GetTask" {
			return foreignTask("FAILED", "}}")
		}
		sent = append(sent, params)
		return `{"message":{"messageId":"m","role":"ROLE_AGENT","parts":[{"text":"ok"}]}}`
	}
	w.tools = newTools(t)
	w.run(t, again)
	w.tools.wantCall(t, "mark_complete")
	want := `"parts":[{"text":"Paint the shed, and its door."},` +
		`{"text":"A person answers, after an earlier attempt has failed:"},{"text":"Use the ladder."}]`
	if len(sent) != 1 || !strings.Contains(sent[0], want) {
		t.Errorf("it got %q", sent)
	}
	if got := answerParts(advice); len(got) != 3 || got[2].Text() != "Paint the roof." {
		t.Errorf("an answer with an edited input is %v", got)
	}
}

// Messages to the task go to the foreign task, each once, and are read then.
func TestMessagesArePassedOn(t *testing.T) {
	f := fakeagent.New(t)
	passed := make(chan string, 10)
	end := make(chan struct{})
	f.Stream = func(w http.ResponseWriter, _ string) error {
		fakeagent.Event(w, `{"task":`+fakeagent.TaskIn("WORKING")+`}`)
		<-end
		fakeagent.Event(w, fakeagent.StatusUpdate("COMPLETED", "ok"))
		return nil
	}
	f.Answer = func(method, params string) string {
		switch {
		case method == "SendMessage" && strings.Contains(params, `"taskId":"t1"`):
			passed <- params
			return `{"task":` + fakeagent.TaskIn("WORKING") + `}`
		case method == "SendMessage":
			return `{"task":` + fakeagent.TaskIn("SUBMITTED") + `}`
		}
		return foreignTask("COMPLETED", "}}")
	}
	w := newWorker(t, f.URL)
	w.tools.unread = []picket.Message{
		{MessageID: "message_1", Body: "Use less paint.", From: picket.MessageSender{Kind: picket.SenderPerson}},
		{MessageID: "message_2", Type: "a2a", Data: picket.RawJSON(`{"messageId":"x","message":{"parts":[{"text":"And hurry."}]}}`)},
		{MessageID: "message_3", Body: "Hello.", From: picket.MessageSender{Kind: picket.SenderAgent, ID: "friend"}},
	}
	w.tools.heard = make(chan string, 100)
	p := w.start(t)
	for _, want := range []string{"Use less paint.", "And hurry.", "Another agent, friend, writes: Hello."} {
		if got := <-passed; !strings.Contains(got, `"text":"`+want+`"`) {
			t.Errorf("%q is not in %s", want, got)
		}
	}
	for call := range w.tools.heard {
		if call == `read_messages {"max":3}` {
			break
		}
	}
	close(end)
	<-p.Done()
	if len(w.tools.unread) > 0 {
		t.Errorf("messages are unread: %v", w.tools.unread)
	}
	w.tools.wantCall(t, "mark_complete")
}

// What the agent says while it works is shown to the client of the task.
func TestWhatAForeignAgentSaysIsShown(t *testing.T) {
	f := answering(t, foreignTask("COMPLETED", `},"artifacts":[{"artifactId":"a","parts":[{"text":"one two"}]}]}`))
	more := make(chan struct{})
	f.Stream = func(w http.ResponseWriter, _ string) error {
		fakeagent.Event(w, fakeagent.StatusUpdate("WORKING", "The walls are done."))
		fakeagent.Event(w, `{"artifactUpdate":{"taskId":"t1","contextId":"c1","artifact":{"artifactId":"a b","name":"plan\n","parts":[{"text":"one"}]}}}`)
		fakeagent.Event(w, `{"artifactUpdate":{"taskId":"t1","contextId":"c1","append":true,"lastChunk":true,"artifact":{"artifactId":"a b","parts":[{"text":" two"}]}}}`)
		fakeagent.Event(w, `{"artifactUpdate":{"taskId":"t1","contextId":"c1","artifact":{"artifactId":"big","parts":[{"text":"`+
			strings.Repeat("x", picket.MaxEmission)+`"}]}}}`)
		<-more
		fakeagent.Event(w, fakeagent.StatusUpdate("COMPLETED", "ok"))
		return nil
	}
	w := newWorker(t, f.URL)
	w.tools.heard = make(chan string, 100)
	p := w.start(t)
	var emitted []string
	for call := range w.tools.heard {
		if strings.HasPrefix(call, "emit ") {
			emitted = append(emitted, call)
		}
		if len(emitted) == 2 {
			break
		}
	}
	close(more)
	<-p.Done()
	w.tools.wantCall(t, "emit_status", "The walls are done.")
	for i, want := range []string{`"artifactId":"a_b"`, `"append":true,"last":true`} {
		if !strings.Contains(emitted[i], want) {
			t.Errorf("%q is not in %s", want, emitted[i])
		}
	}
	w.tools.wantCall(t, "mark_complete", `{"parts":[{"text":"one two"}]}`)
}

// What another Picket has spent is booked as the agent's own report. Numbers that make no sense are not.
func TestAForeignReportOfMoney(t *testing.T) {
	for spent, want := range map[string]string{
		`{"tokens":1200,"usd":0.05}`:   "1200 0.05",
		`{"tokens":0,"usd":0}`:         "",
		`{"tokens":-5,"usd":0.05}`:     "",
		`{"tokens":1,"usd":-0.05}`:     "",
		`{"tokens":1e300,"usd":1e300}`: "",
		`"much"`:                       "",
	} {
		f := answering(t, foreignTask("COMPLETED", `},"metadata":{"picket":{"state":"completed","spent":`+spent+`}}}`))
		w := newWorker(t, f.URL)
		w.run(t)
		w.tools.wantCall(t, "mark_complete")
		got := ""
		if len(w.used) == 1 && w.used[0].Scope == "session" && w.used[0].Source == "a2a" {
			got = fmt.Sprint(w.used[0].Tokens, " ", w.used[0].USD)
		}
		if got != want || len(w.used) > 1 {
			t.Errorf("%s is booked as %+v", spent, w.used)
		}
	}
}

// A task whose budget is used up is not passed on.
func TestATaskWithoutMoneyIsNotPassedOn(t *testing.T) {
	f := answering(t, foreignTask("COMPLETED", "}}"))
	w := newWorker(t, f.URL)
	w.tools.task.TaskID = ourTask
	w.tools.task.BudgetEnvelope.USD, w.tools.task.BudgetEnvelope.Tokens, w.tools.task.Available.Tokens = 5, 5, 5
	w.run(t)
	w.tools.wantCall(t, "request_human_help", `"kind":"budget"`, "Top up: picket ")
	if f.Called("SendMessage") > 0 {
		t.Error("a message was sent")
	}
}

// An agent that has only the binding HTTP+JSON is spoken to in it, as its card says, with a credential in its header.
func TestAForeignAgentOverHTTPAndJSON(t *testing.T) {
	f := fakeagent.New(t)
	card := strings.Replace(fakeagent.UsualCard, "JSONRPC", "HTTP+JSON", 1)
	f.Card = strings.Replace(card, `"skills":[]`, `"skills":[],
		"securitySchemes":{"key":{"apiKeySecurityScheme":{"location":"header","name":"X-Partner"}}},
		"securityRequirements":[{"schemes":{"key":[]}}]`, 1)
	var paths []string
	f.Rest = func(w http.ResponseWriter, r *http.Request) {
		paths = append(paths, r.Method+" "+r.URL.Path+" "+r.Header.Get("X-Partner"))
		w.Header().Set("Content-Type", "application/json")
		switch {
		case strings.HasSuffix(r.URL.Path, ":subscribe"):
			w.WriteHeader(http.StatusBadRequest)
			fmt.Fprint(w, `{"error":{"code":400,"message":"no","details":[{"reason":"UNSUPPORTED_OPERATION"}]}}`)
		case r.Method == http.MethodPost:
			fmt.Fprint(w, `{"task":`+fakeagent.TaskIn("SUBMITTED")+`}`)
		default:
			fmt.Fprint(w, foreignTask("COMPLETED", says+"}"))
		}
	}
	w := newWorker(t, f.URL)
	w.run(t)
	w.tools.wantCall(t, "mark_complete", "Which colour?")
	want := []string{"POST /rpc/message:send " + token, "POST /rpc/tasks/t1:subscribe " + token,
		"GET /rpc/tasks/t1 " + token}
	if len(paths) < 3 || !slices.Equal(paths[:3], want) {
		t.Errorf("it was asked %q, want %q", paths, want)
	}
}
