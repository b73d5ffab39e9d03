package workspace_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/adapter/workspace"
)

// A run gets a directory, which stays after the run until its task is decided.
func ExampleStore() {
	state, _ := os.MkdirTemp("", "picket")
	defer os.RemoveAll(state)
	root, err := workspace.RealPath(filepath.Join(state, "workspaces"))
	if err != nil {
		fmt.Println(err)
		return
	}
	store := workspace.Store{
		StateDir: state,
		Root:     root,
		Kind:     workspace.Empty,
		Resume:   workspace.ResumeReuse,
		Log:      slog.New(slog.DiscardHandler),
	}
	ctx := context.Background()
	locked, told, err := store.Open(ctx, picket.Lease{
		TaskID:  "task_01ARZ3NDEKTSV4RRFFQ69G5FAV",
		RunID:   "run_01ARZ3NDEKTSV4RRFFQ69G5FAV",
		Attempt: 1,
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(told.Source, filepath.Base(told.Path), locked.IsEmpty())
	locked.Unlock()

	kept := workspace.KeptWorkspaces{StateDir: state}
	all, err := kept.List(ctx)
	fmt.Println(len(all), all[0].Stage, all[0].InUse, err)
	// Output:
	// empty run_01ARZ3NDEKTSV4RRFFQ69G5FAV true
	// 1 ready false <nil>
}
