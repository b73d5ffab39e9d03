package orchestrator_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/orchestrator/proof/kit"
)

// textChunk is an artifact of one text.
func textChunk(id, text string) picket.ArtifactChunk {
	return picket.ArtifactChunk{ArtifactID: id, Parts: []picket.Part{{Text: &text}}}
}

func (f *fixture) mustEmit(t *testing.T, h picket.LeaseCredential, c picket.ArtifactChunk) picket.Emitted {
	t.Helper()
	said, err := f.Emit(f.Ctx, h, "", c)
	kit.OK(t, err)
	return said
}

// emitted describes what the agents of a task have emitted.
func emitted(task picket.Task) string {
	var said []string
	for _, e := range task.Emitted {
		if e.Status != nil {
			said = append(said, fmt.Sprintf("%d: %s", e.Seq, e.Status.Message))
			continue
		}
		a := e.Artifact
		line := fmt.Sprintf("%d %s=%s", e.Seq, a.ArtifactID, *a.Parts[0].Text)
		if a.Append {
			line += " append"
		}
		if a.Last {
			line += " last"
		}
		said = append(said, line)
	}
	return strings.Join(said, ", ")
}

func (f *fixture) wantEmitted(t *testing.T, id, want string) picket.Task {
	t.Helper()
	task, err := f.Task(f.Ctx, id)
	kit.OK(t, err)
	if got := emitted(task); got != want {
		t.Errorf("emitted %q, want %q", got, want)
	}
	return task
}

// What an agent emits is kept in order, with the run that emitted it. The events say how much it was, and not what.
// It is shown with the task, and neither in lists nor to agents.
func TestAnAgentEmits(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		task := f.submitAs(t, "key_a", clientTask("builder", "c1"))
		h := f.OpenLease(t, f.AcquireOne(t, picket.AcquireRequest{AgentID: "a1", Role: "builder"}))
		before, err := f.LastSeq(f.Ctx)
		kit.OK(t, err)
		first := f.mustEmit(t, h, textChunk("", "secret words"))
		_, err = f.EmitStatus(f.Ctx, h, "", picket.StatusMessage{Message: "half of the secret"})
		kit.OK(t, err)
		more := textChunk("output", "more")
		more.Append = true
		last := f.mustEmit(t, h, more)
		if first.Seq != 1 || last.Seq != 3 {
			t.Errorf("%+v and %+v", first, last)
		}
		const all = "1 output=secret words, 2: half of the secret, 3 output=more append"
		shown := f.wantEmitted(t, task.TaskID, all)
		if e := shown.Emitted[1]; e.RunID != h.RunID || e.FencingToken != 1 || e.At.IsZero() ||
			shown.State != picket.TaskLeased {
			t.Errorf("%s: %+v", shown.State, e)
		}
		later, err := f.FollowTask(f.Ctx, task.TaskID, 2)
		kit.OK(t, err)
		if got := emitted(later); got != "3 output=more append" {
			t.Errorf("after the second: %q", got)
		}
		page, err := f.Events(f.Ctx, picket.EventQuery{After: before, Limit: 10})
		kit.OK(t, err)
		var told []string
		for _, e := range page.Events {
			told = append(told, fmt.Sprintf("%s of %d %s", e.Type, e.FencingToken, e.Data))
		}
		want := `task.artifact of 1 {"seq":1,"append":false,"artifactId":"output","bytes":70,"last":false,"parts":1}
task.status of 1 {"seq":2,"bytes":43}
task.artifact of 1 {"seq":3,"append":true,"artifactId":"output","bytes":76,"last":false,"parts":1}`
		if got := strings.Join(told, "\n"); got != want {
			t.Errorf("events:\n%s\nwant\n%s", got, want)
		}
		held, err := f.HeldTask(f.Ctx, h, "")
		kit.OK(t, err)
		for _, listed := range []bool{false, true} {
			tasks, err := f.ClientTasks(f.Ctx, picket.ClientTaskQuery{Emitted: listed})
			kit.OK(t, err)
			if got := emitted(tasks.Tasks[0]); (got == all) != listed || held.Emitted != nil {
				t.Errorf("listed %t: %q, to the agent %v", listed, got, held.Emitted)
			}
		}
		f.wantNoViolations(t)

		// Retention deletes it with the task.
		_, err = f.Cancel(f.Ctx, kit.Operator, task.TaskID, "")
		kit.OK(t, err)
		f.wantEmitted(t, task.TaskID, all)
		f.deleteEnded(t)
		for _, kind := range []string{"emitted:", "artifacts:"} {
			if n, err := f.Raw.Exists(f.Ctx, "pk:{default}:"+kind+task.TaskID).Result(); err != nil || n != 0 {
				t.Errorf("%s stays: %v", kind, err)
			}
		}
	})
}

// The same request emits once. An emission of another run than the holder is refused, and nothing is kept of it.
func TestAnEmissionIsTakenOnce(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		task, h := f.SubmitAndLease(t, picket.TaskSpec{})
		for range 2 {
			said, err := f.Emit(f.Ctx, h, "r1", textChunk("a", "one"))
			kit.OK(t, err)
			status, err := f.EmitStatus(f.Ctx, h, "r2", picket.StatusMessage{Message: "two"})
			kit.OK(t, err)
			if said.Seq != 1 || status.Seq != 2 {
				t.Errorf("%+v and %+v", said, status)
			}
		}
		_, err := f.Emit(f.Ctx, h, "r1", textChunk("a", "other"))
		kit.Refused(t, err, picket.CodeIdempotencyConflict)
		_, err = f.Report(f.Ctx, h, "r1", picket.Progress{Summary: "s"})
		kit.Refused(t, err, picket.CodeIdempotencyConflict)
		_, err = f.Expire(f.Ctx, kit.Operator, task.TaskID, "test")
		kit.OK(t, err)
		next := f.OpenLease(t, f.AcquireOne(t, picket.AcquireRequest{}))
		before := f.mustLastSeq(t)
		_, err = f.Emit(f.Ctx, h, "", textChunk("a", "late"))
		kit.Refused(t, err, picket.CodeStaleFence)
		_, err = f.EmitStatus(f.Ctx, h, "", picket.StatusMessage{Message: "late"})
		kit.Refused(t, err, picket.CodeStaleFence)
		if after := f.mustLastSeq(t); after != before {
			t.Errorf("%d events of late emissions", after-before)
		}
		f.mustEmit(t, next, textChunk("b", "three"))
		const all = "1 a=one, 2: two, 3 b=three"
		got := f.wantEmitted(t, task.TaskID, all).Emitted
		if got[0].FencingToken != 1 || got[2].FencingToken != 2 {
			t.Errorf("%+v", got)
		}
	})
}

// A piece is appended to an artifact that is there and open. Emitted again without append, it is open again.
func TestPiecesOfArtifacts(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		task, h := f.SubmitAndLease(t, picket.TaskSpec{})
		appended := func(last bool) error {
			c := textChunk("a", "x")
			c.Append, c.Last = true, last
			_, err := f.Emit(f.Ctx, h, "", c)
			return err
		}
		kit.Refused(t, appended(false), picket.CodeNotFound)
		f.mustEmit(t, h, textChunk("b", "x"))
		kit.Refused(t, appended(false), picket.CodeNotFound)
		f.mustEmit(t, h, textChunk("a", "x"))
		kit.OK(t, appended(true))
		kit.Refused(t, appended(false), picket.CodeStateConflict)
		f.mustEmit(t, h, textChunk("a", "y"))
		kit.OK(t, appended(false))
		f.wantEmitted(t, task.TaskID, "1 b=x, 2 a=x, 3 a=x append last, 4 a=y, 5 a=x append")
	})
}

func wantQuota(t *testing.T, err error, quota string) {
	t.Helper()
	if refused, ok := errors.AsType[*picket.Error](err); !ok || refused.Code != picket.CodeQuota ||
		refused.Facts["quota"] != quota {
		t.Errorf("%v, want the quota %s", err, quota)
	}
}

// A task takes so many emissions, of so many bytes. A refused one leaves nothing behind.
func TestBoundsOfEmissions(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		task, h := f.SubmitAndLease(t, picket.TaskSpec{LeaseWindowSeconds: kit.Ptr(3600)})
		large := strings.Repeat("x", picket.MaxEmission-1000)
		n := 0
		for size := 0; size+len(large)+1000 < picket.MaxEmittedBytes; size += len(large) + 200 {
			f.mustEmit(t, h, textChunk(fmt.Sprint(n), large))
			n++
		}
		for range 2 {
			_, err := f.Emit(f.Ctx, h, "", textChunk("a", large))
			wantQuota(t, err, "emitted_bytes")
		}
		got, err := f.Task(f.Ctx, task.TaskID)
		kit.OK(t, err)
		if len(got.Emitted) != n {
			t.Errorf("%d emissions are kept, want %d", len(got.Emitted), n)
		}
		_, err = f.Complete(f.Ctx, h, picket.Completion{Output: picket.RawJSON(`1`)})
		kit.OK(t, err)

		other, h := f.SubmitAndLease(t, picket.TaskSpec{LeaseWindowSeconds: kit.Ptr(3600)})
		for i := range picket.MaxEmissions {
			_, err := f.EmitStatus(f.Ctx, h, "", picket.StatusMessage{Message: fmt.Sprint(i)})
			kit.OK(t, err)
		}
		_, err = f.EmitStatus(f.Ctx, h, "", picket.StatusMessage{Message: "more"})
		wantQuota(t, err, "emissions")
		got, err = f.Task(f.Ctx, other.TaskID)
		kit.OK(t, err)
		if len(got.Emitted) != picket.MaxEmissions {
			t.Errorf("%d emissions are kept", len(got.Emitted))
		}
	})
}

// A report and an adoption change the instant of a task of a client, and its place in the lists with it.
func TestATouchedTaskKeepsItsPlaceInTheLists(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		task := f.submitAs(t, "key_a", clientTask("builder", "c1"))
		h := f.OpenLease(t, f.AcquireOne(t, picket.AcquireRequest{AgentID: "a1", Role: "builder"}))
		f.MoveStoreTime(t, 5*time.Millisecond)
		_, err := f.Report(f.Ctx, h, "", picket.Progress{Summary: "s"})
		kit.OK(t, err)
		f.wantNoViolations(t)
		got, err := f.Task(f.Ctx, task.TaskID)
		kit.OK(t, err)
		ids, _ := f.clientTasks(t, picket.ClientTaskQuery{Since: got.UpdatedAt})
		if len(ids) != 1 {
			t.Errorf("%v has changed since %v", ids, got.UpdatedAt)
		}
	})
}

// A message answers the client if the client takes one, nobody reviews it, and the client has seen nothing of the task.
// A refusal changes nothing.
func TestAMessageAnswersTheClient(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		text := "hello"
		reply := picket.Reply{Parts: []picket.Part{{Text: &text}}}
		begin := func(takes bool, review picket.ReviewBy) picket.LeaseCredential {
			spec := clientTask("builder", "c1")
			spec.Review, spec.Client.TakesMessage = review, takes
			_, err := f.Submit(f.Ctx, kit.WithKey("key_a"), spec)
			kit.OK(t, err)
			return f.OpenLease(t, f.AcquireOne(t, picket.AcquireRequest{AgentID: "a1", Role: "builder"}))
		}
		refused := func(h picket.LeaseCredential) {
			t.Helper()
			_, err := f.Reply(f.Ctx, h, reply)
			kit.Refused(t, err, picket.CodeStateConflict)
			if task := f.WantState(t, h.TaskID, picket.TaskLeased); task.Reply || string(task.Output) != "" {
				t.Errorf("after the refusal: %+v", task)
			}
			_, err = f.Complete(f.Ctx, h, picket.Completion{Output: picket.RawJSON(`1`)})
			kit.OK(t, err)
		}
		refused(begin(false, picket.ReviewByNone))
		refused(begin(true, picket.ReviewByHuman))
		h := begin(true, picket.ReviewByNone)
		_, err := f.EmitStatus(f.Ctx, h, "", picket.StatusMessage{Message: "so far"})
		kit.OK(t, err)
		refused(h)
		h = begin(true, picket.ReviewByNone)
		f.CallTwice(t, func() error { _, err := f.Reply(f.Ctx, h, reply); return err })
		_, err = f.Complete(f.Ctx, h, picket.Completion{Output: picket.RawJSON(`1`)})
		kit.Refused(t, err, picket.CodeLeaseReleased)
		if task := f.WantState(t, h.TaskID, picket.TaskCompleted); !task.Reply ||
			string(task.Output) != `{"parts":[{"text":"hello"}]}` {
			t.Errorf("the task: %+v", task)
		}
		// A task that repeats one has no client, so nobody takes a message.
		h = begin(true, picket.ReviewByNone)
		_, err = f.Cancel(f.Ctx, kit.Operator, h.TaskID, "")
		kit.OK(t, err)
		_, err = f.Retry(f.Ctx, kit.Operator, h.TaskID, "")
		kit.OK(t, err)
		refused(f.OpenLease(t, f.AcquireOne(t, picket.AcquireRequest{AgentID: "a1", Role: "builder"})))
	})
}
