package a2a_test

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	protocol "github.com/a2aproject/a2a-go/v2/a2a"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/internal/rig"
)

// reads is how often the store was asked for a task.
func (f *fixture) reads() (n int64) {
	for _, s := range f.store.ScriptStats() {
		if s.Script == "task" {
			n += s.Count
		}
	}
	return n
}

// stateStream reads the states that a stream of a task tells, joined by commas, and the notes that its agent emits in
// place of the states of these events. opened is called at the first event.
func (f *fixture) stateStream(ctx context.Context, id protocol.TaskID, opened func()) (states string, err error) {
	url := f.url + "/agents/builder/a2a/tasks/" + string(id) + ":subscribe"
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, nil)
	if err != nil {
		return "", err
	}
	req.Header.Set("X-API-Key", f.client)
	res, err := f.http.Do(req)
	if err != nil {
		return "", err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return "", fmt.Errorf("status %d", res.StatusCode)
	}
	var told []string
	for lines := bufio.NewScanner(res.Body); lines.Scan(); {
		data, isData := strings.CutPrefix(lines.Text(), "data: ")
		if !isData {
			continue
		}
		if len(told) == 0 {
			opened()
		}
		if _, note, isNote := strings.Cut(data, `"text":"note `); isNote {
			note, _, _ = strings.Cut(note, `"`)
			told = append(told, note)
			continue
		}
		_, rest, _ := strings.Cut(data, `"state":"TASK_STATE_`)
		state, _, _ := strings.Cut(rest, `"`)
		told = append(told, state)
	}
	return strings.Join(told, ","), nil
}

// A thousand readers of one task each see every change once, and cost the store as much as one reader. Under the race
// detector there are a hundred.
func TestAThousandReadersAreOne(t *testing.T) {
	rig.SkipShort(t)
	readers := 1000
	if rig.Race {
		readers = 100
	}
	f := newFixture(t, rig.Real(t))
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	own := f.newClient(t, "builder", f.client, protocol.TransportProtocolJSONRPC)
	task := sendTo(t, own, atOnce(send("watch me")))
	var opened, ended sync.WaitGroup
	told := make([]string, readers)
	opened.Add(readers)
	for i := range readers {
		ended.Go(func() {
			var err error
			once := sync.OnceFunc(opened.Done)
			if told[i], err = f.stateStream(ctx, task.ID, once); err != nil {
				t.Errorf("reader %d: %v", i, err)
			}
			once()
		})
	}
	opened.Wait()
	before := f.reads()
	held := f.lease(t)
	var notes strings.Builder
	for n := range 10 {
		fmt.Fprintf(&notes, ",%d", n)
		_, err := f.EmitStatus(t.Context(), held, "", picket.StatusMessage{Message: fmt.Sprintf("note %d", n)})
		must(t, err)
	}
	_, err := f.RequestHelp(t.Context(), held, picket.HelpRequest{Question: "Which?"})
	must(t, err)
	answer := atOnce(send("this"))
	answer.Message.TaskID = task.ID
	sendTo(t, own, answer)
	f.complete(t, f.lease(t), `"done"`)
	ended.Wait()
	if n := f.reads() - before; n > 40 {
		t.Errorf("%d readers made the server read the task %d times", readers, n)
	}
	for i, states := range told {
		// Changes that follow each other at once may be one update, the same for all readers.
		if states != told[0] || !strings.HasPrefix(states, "SUBMITTED,") || !strings.HasSuffix(states, ",,COMPLETED") ||
			strings.Count(states, notes.String()+",") != 1 {
			t.Fatalf("reader %d was told %s, reader 0 %s", i, states, told[0])
		}
	}
}

// A server that stops under a task which waits for its client loses nothing: the next one shows it, streams it and
// takes the answer.
func TestARestartUnderAQuestion(t *testing.T) {
	s, witness := rig.Real(t), t.TempDir()
	first := newFixtureIn(t, s, witness)
	own := first.newClient(t, "builder", first.client, protocol.TransportProtocolJSONRPC)
	task := sendTo(t, own, atOnce(send("work")))
	_, err := first.RequestHelp(t.Context(), first.lease(t), picket.HelpRequest{Question: "Which?"})
	must(t, err)
	waiting := follow(t, own.SubscribeToTask(t.Context(), &protocol.SubscribeToTaskRequest{ID: task.ID}))
	next(t, waiting)
	first.stop()
	if ev := next(t, waiting); ev != nil {
		t.Errorf("after the stop: %+v", ev)
	}

	f := newFixtureIn(t, s, witness)
	again := f.newClient(t, "builder", first.client, protocol.TransportProtocolHTTPJSON)
	wantState(t, again, task.ID, protocol.TaskStateInputRequired)
	events := follow(t, again.SubscribeToTask(t.Context(), &protocol.SubscribeToTaskRequest{ID: task.ID}))
	next(t, events)
	answer := atOnce(send("this"))
	answer.Message.TaskID = task.ID
	sendTo(t, again, answer)
	wantUpdate(t, events, protocol.TaskStateSubmitted)
	f.complete(t, f.lease(t), `"done"`)
	if done := wantState(t, again, task.ID, protocol.TaskStateCompleted); done.ContextID != task.ContextID {
		t.Errorf("context %s, want %s", done.ContextID, task.ContextID)
	}
	for ev := next(t, events); ev != nil; {
		ev = next(t, events)
	}
}

// Of two answers to one question one counts, and the other client is told.
func TestOneOfTwoAnswersCounts(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		own := f.newClient(t, "builder", f.client, protocol.TransportProtocolJSONRPC)
		for range 10 {
			task := sendTo(t, own, atOnce(send("work")))
			_, err := f.RequestHelp(t.Context(), f.lease(t), picket.HelpRequest{Question: "Which?"})
			must(t, err)
			var both sync.WaitGroup
			var errs [2]error
			for i := range errs {
				both.Go(func() {
					answer := atOnce(send(fmt.Sprintf("answer %d", i)))
					answer.Message.TaskID = task.ID
					_, errs[i] = own.SendMessage(t.Context(), answer)
				})
			}
			both.Wait()
			after, err := f.Task(t.Context(), string(task.ID))
			must(t, err)
			page, err := f.Messages(t.Context(), operator, string(task.ID), picket.MessageQuery{})
			must(t, err)
			failed := 0
			for _, err := range errs {
				if err != nil {
					wantErr(t, err, protocol.ErrUnsupportedOperation)
					failed++
				}
			}
			// The slower one either met a question that was answered, or a task that goes on and takes messages.
			if len(after.Answers) != 1 || failed+len(page.Messages) != 1 {
				t.Errorf("%d answers, %d messages, errors %v", len(after.Answers), len(page.Messages), errs)
			}
			f.complete(t, f.lease(t), `"done"`)
		}
	})
}
