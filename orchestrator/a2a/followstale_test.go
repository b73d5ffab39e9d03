package a2a

import (
	"context"
	"testing"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/internal/rig"
	"github.com/picket-dev/picket/orchestrator"
)

// A reader who begins to follow a task after a change sees the change, also if another reader already follows the task
// and the reader of the log has not come to the change yet.
func TestAReaderSeesWhatCameBefore(t *testing.T) {
	s, stop := rig.Memory()
	t.Cleanup(stop)
	store, err := orchestrator.Open(t.Context(), orchestrator.Config{Redis: s.Redis, Memory: s.Memory,
		Sealer: rig.Sealer(), ProxyURL: "http://proxy", Witness: t.TempDir(), Found: true})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	e := store.Engine("default")
	by := picket.Caller{Actor: "key_op", Operator: true}
	task, err := e.Submit(t.Context(), by, picket.TaskSpec{Title: "x"})
	if err != nil {
		t.Fatal(err)
	}
	f := &follower{engine: e, tasks: map[string]*followed{}, stop: func() {}} // without its reader of the log
	_, next, leave, err := f.join(t.Context(), task.TaskID, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer leave()
	after, err := e.Cancel(t.Context(), by, task.TaskID, "")
	if err != nil {
		t.Fatal(err)
	}
	now, _, leave, err := f.join(context.Background(), task.TaskID, after.AsOf)
	if err != nil {
		t.Fatal(err)
	}
	defer leave()
	if now.State != picket.TaskCancelled {
		t.Errorf("the second reader sees the task %s", now.State)
	}
	select {
	case <-next.ready:
	default:
		t.Error("the first reader is not told what the second one sees")
	}
}
