package adapter

import (
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/adapter/workspace"
)

// A renewal may bring a nudge while the directories of the run are still being made. It
// is left out then, because there is no agent that could read it.
func TestANudgeBeforeTheAgentIsLeftOut(t *testing.T) {
	w := &runWorkspace{runScope: &runScope{log: slog.New(slog.DiscardHandler)}, stateDir: t.TempDir()}
	w.writeNudge(picket.NudgeLoop, "too early")
	if _, err := os.Stat(filepath.Join(w.stateDir, nudgeFile)); !os.IsNotExist(err) {
		t.Errorf("the nudge was written before the task files: %v", err)
	}
	var nudges sync.WaitGroup
	nudges.Go(func() { // the race detector reports what the two share
		for range 100 {
			w.writeNudge(picket.NudgeLoop, "beside the task files")
		}
	})
	if err := w.writeTaskFiles(workspace.TaskWorkspace{Path: w.stateDir}); err != nil {
		t.Fatal(err)
	}
	nudges.Wait()
	w.writeNudge(picket.NudgeLoop, "in time")
	if text, err := fs.ReadFile(os.DirFS(w.stateDir), nudgeFile); err != nil || len(text) == 0 {
		t.Errorf("the nudge was not written: %v", err)
	}
}
