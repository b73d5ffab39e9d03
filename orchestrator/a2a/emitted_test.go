package a2a_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	protocol "github.com/a2aproject/a2a-go/v2/a2a"
	"github.com/a2aproject/a2a-go/v2/a2aclient"

	"github.com/picket-dev/picket"
)

func (f *fixture) emit(t *testing.T, held picket.LeaseCredential, c picket.ArtifactChunk, texts ...string) {
	t.Helper()
	for _, text := range texts {
		c.Parts = append(c.Parts, picket.Part{Text: &text})
	}
	_, err := f.Emit(t.Context(), held, "", c)
	must(t, err)
}

func (f *fixture) emitStatus(t *testing.T, held picket.LeaseCredential, message string) {
	t.Helper()
	_, err := f.EmitStatus(t.Context(), held, "", picket.StatusMessage{Message: message})
	must(t, err)
}

// told describes an event of a stream.
func told(ev protocol.Event) string {
	switch ev := ev.(type) {
	case *protocol.TaskStatusUpdateEvent:
		line := strings.TrimPrefix(string(ev.Status.State), "TASK_STATE_")
		if m := ev.Status.Message; m != nil {
			line += ": " + m.Parts[0].Text()
		}
		return line
	case *protocol.TaskArtifactUpdateEvent:
		line := describe(ev.Artifact)
		if ev.Append {
			line += " append"
		}
		if ev.LastChunk {
			line += " last"
		}
		return line
	}
	return fmt.Sprintf("%T", ev)
}

// describe describes an artifact.
func describe(a *protocol.Artifact) string {
	var texts []string
	for _, p := range a.Parts {
		texts = append(texts, p.Text())
	}
	return strings.Split(string(a.ID), "_")[0] + "=" + strings.Join(texts, "+")
}

func wantTold(t *testing.T, reader <-chan protocol.Event, want ...string) {
	t.Helper()
	for _, line := range want {
		if got := told(next(t, reader)); got != line {
			t.Fatalf("the stream tells %q, want %q", got, line)
		}
	}
}

// Each emission of an agent is one event for each reader, in order. A task shows the artifacts joined, and its history
// has the status messages.
func TestAClientSeesWhatIsEmitted(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		f.onBothBindings(t, func(t *testing.T, c *a2aclient.Client) {
			events := follow(t, c.SendStreamingMessage(t.Context(), send("work")))
			task := next(t, events).(*protocol.Task)
			held := f.lease(t)
			wantTold(t, events, "WORKING")
			second := follow(t, c.SubscribeToTask(t.Context(), &protocol.SubscribeToTaskRequest{ID: task.ID}))
			next(t, second)
			f.emitStatus(t, held, "reading")
			f.emit(t, held, picket.ArtifactChunk{ArtifactID: "a", Name: "A", Description: "of letters"}, "x", "y")
			f.emit(t, held, picket.ArtifactChunk{}, "one")
			f.emit(t, held, picket.ArtifactChunk{ArtifactID: "a", Append: true, Last: true}, "z")
			f.emit(t, held, picket.ArtifactChunk{}, "two")
			f.emitStatus(t, held, "writing")
			for _, reader := range []<-chan protocol.Event{events, second} {
				wantTold(t, reader, "WORKING: reading", "a=x+y", "output=one", "a=z append last", "output=two",
					"WORKING: writing")
			}
			working := wantState(t, c, task.ID, protocol.TaskStateWorking)
			if m := working.Status.Message; m == nil || m.Parts[0].Text() != "writing" {
				t.Errorf("status: %+v", m)
			}
			wantArtifacts(t, working, "a=x+y+z", "output=two")
			f.complete(t, held, `"result"`)
			for _, reader := range []<-chan protocol.Event{events, second} {
				wantTold(t, reader, "artifact=result last", "COMPLETED: done")
				if ev := next(t, reader); ev != nil {
					t.Errorf("after the end: %s", told(ev))
				}
			}
			done := wantState(t, c, task.ID, protocol.TaskStateCompleted)
			wantArtifacts(t, done, "a=x+y+z", "output=two", "artifact=result")
			if a := done.Artifacts[0]; a.Name != "A" || a.Description != "of letters" {
				t.Errorf("artifact: %+v", a)
			}
			var said []string
			for _, m := range done.History {
				said = append(said, m.Parts[0].Text())
			}
			if want := []string{"work", "reading", "writing"}; !slices.Equal(said, want) {
				t.Errorf("history: %q, want %q", said, want)
			}
			for _, include := range []bool{false, true} {
				list, err := c.ListTasks(t.Context(), &protocol.ListTasksRequest{IncludeArtifacts: include,
					ContextID: done.ContextID})
				must(t, err)
				if n := len(list.Tasks[0].Artifacts); include != (n == 3) {
					t.Errorf("with artifacts %t: %d", include, n)
				}
			}
		})
	})
}

func wantArtifacts(t *testing.T, task *protocol.Task, want ...string) {
	t.Helper()
	var got []string
	for _, a := range task.Artifacts {
		got = append(got, describe(a))
	}
	if !slices.Equal(got, want) {
		t.Errorf("artifacts %q, want %q", got, want)
	}
}

// Many emissions come between two reads of the task. The stream tells each of them once, in order.
func TestManyEmissionsAreToldOnce(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		c := f.newClient(t, "builder", f.client, protocol.TransportProtocolJSONRPC)
		const n = 60
		events := follow(t, c.SendStreamingMessage(t.Context(), send("work")))
		next(t, events)
		held := f.lease(t)
		var want []string
		for i := range n {
			f.emit(t, held, picket.ArtifactChunk{Append: i > 0}, fmt.Sprint(i))
			want = append(want, fmt.Sprintf("output=%d", i)+map[bool]string{true: " append"}[i > 0])
		}
		f.complete(t, held, `"result"`)
		var got []string
		for ev := range events {
			if line := told(ev); line != "WORKING" {
				got = append(got, line)
			}
		}
		want = append(want, "artifact=result last", "COMPLETED: done")
		if !slices.Equal(got, want) {
			t.Errorf("told %q, want %q", got, want)
		}
	})
}

// What a run has emitted stays when its lease is lost. What it emits afterwards is refused, and no stream tells it.
func TestALateEmissionTellsNothing(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		c := f.newClient(t, "builder", f.client, protocol.TransportProtocolJSONRPC)
		events := follow(t, c.SendStreamingMessage(t.Context(), send("work")))
		task := next(t, events).(*protocol.Task)
		old := f.lease(t)
		f.emitStatus(t, old, "first")
		wantTold(t, events, "WORKING")
		wantTold(t, events, "WORKING: first")
		f.emit(t, old, picket.ArtifactChunk{ArtifactID: "a"}, "kept")
		wantTold(t, events, "a=kept")
		_, err := f.Expire(t.Context(), operator, old.TaskID, "test")
		must(t, err)
		wantTold(t, events, "SUBMITTED")
		held := f.lease(t)
		wantTold(t, events, "WORKING")
		late := "late"
		_, err = f.Emit(t.Context(), old, "", picket.ArtifactChunk{Parts: []picket.Part{{Text: &late}}})
		wantErr(t, err, picket.CodeStaleFence)
		_, err = f.EmitStatus(t.Context(), old, "", picket.StatusMessage{Message: late})
		wantErr(t, err, picket.CodeStaleFence)
		if m := wantState(t, c, task.ID, protocol.TaskStateWorking).Status.Message; m != nil {
			t.Errorf("the new run says %+v", m)
		}
		f.emit(t, held, picket.ArtifactChunk{ArtifactID: "b"}, "new")
		wantTold(t, events, "b=new")
		_, err = f.Cancel(t.Context(), operator, old.TaskID, "over")
		must(t, err)
		wantTold(t, events, "CANCELED: The task was cancelled.")
		wantArtifacts(t, wantState(t, c, task.ID, protocol.TaskStateCanceled), "a=kept", "b=new")
	})
}

// A task that its agent rejects is rejected for its client, with the reason, and can be listed as such.
func TestAnAgentRejectsATask(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		f.onBothBindings(t, func(t *testing.T, c *a2aclient.Client) {
			events := follow(t, c.SendStreamingMessage(t.Context(), send("work")))
			task := next(t, events).(*protocol.Task)
			held := f.lease(t)
			f.emit(t, held, picket.ArtifactChunk{ArtifactID: "a"}, "kept")
			_, err := f.Decline(t.Context(), held, "it is not for me")
			must(t, err)
			for ev := range events {
				if line := told(ev); line != "WORKING" && line != "a=kept" && line != "REJECTED: it is not for me" {
					t.Errorf("told %q", line)
				}
			}
			shown := wantState(t, c, task.ID, protocol.TaskStateRejected)
			wantArtifacts(t, shown, "a=kept")
			counts := map[protocol.TaskState]int{protocol.TaskStateRejected: 1, protocol.TaskStateFailed: 0}
			for state, want := range counts {
				list, err := c.ListTasks(t.Context(), &protocol.ListTasksRequest{Status: state,
					ContextID: shown.ContextID})
				must(t, err)
				if len(list.Tasks) != want {
					t.Errorf("%d tasks are %s, want %d", len(list.Tasks), state, want)
				}
			}
		})
	})
}

// The parts of an emission arrive as they were emitted.
func TestPartsOfEmissionsArrive(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		f.onBothBindings(t, func(t *testing.T, c *a2aclient.Client) {
			task := sendTo(t, c, atOnce(send("work")))
			held := f.lease(t)
			empty := ""
			f.emit(t, held, picket.ArtifactChunk{Parts: []picket.Part{
				{Text: &empty, Metadata: map[string]picket.RawJSON{"n": picket.RawJSON(`12345678901234567890`)}},
				{Raw: []byte{0, 255}, Filename: "f.bin", MediaType: "application/octet-stream"},
				{URL: "https://x.example/y"},
				{Data: picket.RawJSON(`{"a":[1,null]}`)},
			}})
			parts := wantState(t, c, task.ID, protocol.TaskStateWorking).Artifacts[0].Parts
			if len(parts) != 4 || parts[0].Text() != "" || parts[0].Metadata["n"] == nil ||
				string(parts[1].Raw()) != "\x00\xff" || parts[1].Filename != "f.bin" ||
				parts[1].MediaType != "application/octet-stream" ||
				parts[2].URL() != "https://x.example/y" || fmt.Sprint(parts[3].Data()) != "map[a:[1 <nil>]]" {
				t.Errorf("parts: %+v", parts)
			}
			f.complete(t, held, `1`)
		})
	})
}
