package foreign

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	protocol "github.com/a2aproject/a2a-go/v2/a2a"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/cmd/picket/a2a/agentclient"
	"github.com/picket-dev/picket/internal/files"
)

// openTasks notes in a directory which foreign tasks have not ended, and cancels those whose task here is over. So a
// foreign task is also cancelled if its run was killed at once, or by the next worker if this one was killed.
type openTasks struct {
	dir    string
	server string // names the Picket server and the namespace: workers of others share the directory
	remote *Remote
	// task reads a task of the Picket server.
	task func(ctx context.Context, id string) (picket.Task, error)
	log  *slog.Logger
	due  chan string // tasks whose run has ended

	mu      sync.Mutex        // is held while a note is written or deleted
	running map[string]string // the run that follows a foreign task here, by the task
}

// openTask is the note of a foreign task.
type openTask struct {
	TaskID string          `json:"taskId"`
	RunID  string          `json:"runId"` // of the last run that followed it
	Server string          `json:"server"`
	URL    string          `json:"url"`
	Remote protocol.TaskID `json:"remoteTaskId"`
	Since  time.Time       `json:"since"`
}

const (
	sweepEvery = 30 * time.Second
	// forgetAfter is the age at which a note is deleted whose task cannot be read or cancelled.
	forgetAfter = 30 * 24 * time.Hour
)

func newOpenTasks(dir, server string, r *Remote, task func(context.Context, string) (picket.Task, error),
	log *slog.Logger) *openTasks {
	return &openTasks{dir: dir, server: server, remote: r, task: task, log: log, due: make(chan string, 100),
		running: map[string]string{}}
}

func (o *openTasks) file(task string) string { return filepath.Join(o.dir, task+".json") }

// begin keeps the note of a task from being looked at while a run follows it.
func (o *openTasks) begin(task, run string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.running[task] = run
}

// end lets the note of a task be looked at when a run is over and was reported.
func (o *openTasks) end(task, run string) {
	o.mu.Lock()
	if o.running[task] == run {
		delete(o.running, task)
	}
	o.mu.Unlock()
	select {
	case o.due <- task:
	default: // the next look at all notes finds it
	}
}

// note writes down that a foreign task is under way.
func (o *openTasks) note(task, run string, remote protocol.TaskID) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if err := os.MkdirAll(o.dir, 0o700); err != nil {
		return err
	}
	return files.WritePrivateJSON(o.file(task),
		openTask{TaskID: task, RunID: run, Server: o.server, URL: o.remote.URL, Remote: remote, Since: time.Now()})
}

// forget deletes the note of a task, unless it is that of another foreign task by now.
func (o *openTasks) forget(task string, remote protocol.TaskID) {
	o.mu.Lock()
	defer o.mu.Unlock()
	var n openTask
	if err := files.ReadJSON(o.file(task), &n); err == nil && n.Remote != remote {
		return
	}
	if err := os.Remove(o.file(task)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		o.log.Warn("the note of a foreign task cannot be deleted", "task", task, "err", err)
	}
}

// run looks at the notes now and then, and whenever a run has ended, until ctx ends.
func (o *openTasks) run(ctx context.Context) {
	for {
		o.sweep(ctx)
		next := time.After(sweepEvery)
		for waiting := true; waiting; {
			select {
			case task := <-o.due:
				o.look(ctx, task)
			case <-next:
				waiting = false
			case <-ctx.Done():
				return
			}
		}
	}
}

// sweep cancels the foreign tasks whose task here is over.
func (o *openTasks) sweep(ctx context.Context) {
	entries, err := os.ReadDir(o.dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		o.log.Warn("the notes of foreign tasks cannot be read", "err", err)
	}
	for _, e := range entries {
		task, isNote := strings.CutSuffix(e.Name(), ".json")
		if isNote && picket.CheckID("task", "task", task) == nil && ctx.Err() == nil {
			o.look(ctx, task)
		}
	}
}

// look cancels the foreign task of a task that is over.
func (o *openTasks) look(ctx context.Context, task string) {
	o.mu.Lock()
	_, running := o.running[task]
	o.mu.Unlock()
	var n openTask
	if running || files.ReadJSON(o.file(task), &n) != nil || n.TaskID != task || n.Server != o.server {
		return
	}
	log := o.log.With("task", task, "foreign_task", agentclient.Excerpt(string(n.Remote)))
	over, err := o.over(ctx, n)
	if err == nil && over {
		if n.URL != o.remote.URL {
			err = picket.Refuse(picket.CodeStateConflict, "Cancel the foreign task by hand: picket a2a cancel URL ID",
				"remote.url has changed since the foreign task was begun")
		} else {
			err = o.cancel(ctx, n.Remote)
		}
		if err == nil {
			log.Info("the task here is over, and its foreign task was cancelled, or has ended before")
			o.forget(task, n.Remote)
			return
		}
	}
	if err != nil && ctx.Err() == nil {
		log.Warn("a foreign task may still run; it is looked at again", "url", n.URL, "err", err)
	}
	if err != nil && time.Since(n.Since) > forgetAfter {
		o.forget(task, n.Remote)
	}
}

// over reports whether nobody waits for a foreign task any more: its task here has ended, or its last run was ended
// because its time was over.
func (o *openTasks) over(ctx context.Context, n openTask) (bool, error) {
	ctx, stop := context.WithTimeout(ctx, agentclient.CallTimeout)
	defer stop()
	t, err := o.task(ctx, n.TaskID)
	if errors.Is(err, picket.CodeNotFound) {
		return true, nil
	}
	for _, r := range t.Runs {
		if r.RunID == n.RunID && r.Exit != nil && outOfTime(r.Exit.Class) {
			return true, err
		}
	}
	return t.State.Terminal(), err
}

// outOfTime reports whether a run was ended because it took too long. Its foreign task is not continued.
func outOfTime(c picket.ExitClass) bool { return c == picket.ExitTimeout || c == picket.ExitStalled }

// cancel opens the agent, and cancels a foreign task.
func (o *openTasks) cancel(ctx context.Context, id protocol.TaskID) error {
	a, err := o.remote.open(ctx)
	if err != nil {
		return err
	}
	return cancelOpen(ctx, a, id)
}

// cancelOpen cancels a task. One that has ended or is not known needs no cancellation.
func cancelOpen(ctx context.Context, a *agentclient.Agent, id protocol.TaskID) error {
	_, err := a.Cancel(ctx, id)
	if errors.Is(err, picket.CodeStateConflict) || errors.Is(err, picket.CodeNotFound) {
		return nil
	}
	return err
}
