package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/spf13/cobra"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/adapter"
	"github.com/picket-dev/picket/adapter/workspace"
	"github.com/picket-dev/picket/cmd/picket/cli/term"
	"github.com/picket-dev/picket/cmd/picket/settings"
)

// NewWorkspace is `picket workspace`: the directories that runs have left on this machine.
func NewWorkspace() *cobra.Command {
	return CommandGroup("workspace", "List and keep the directories that agents of this machine work in",
		newWorkspaceList(), newWorkspacePath(), newWorkspacePin(true), newWorkspacePin(false),
		settings.NeedsTrust(newWorkspaceCollect()))
}

// keptWorkspaces is what the adapters of this machine keep. What the server says of it
// is asked for, where it can be reached.
func keptWorkspaces(cmd *cobra.Command) (workspace.KeptWorkspaces, error) {
	cfg, err := settings.LoadSettings(cmd)
	if err != nil {
		return workspace.KeptWorkspaces{}, err
	}
	kept := workspace.KeptWorkspaces{Keep: cfg.Workspace.Keep}
	s, err := Connect(cmd)
	if err != nil {
		return kept, err
	}
	away := false
	kept.RunsOfTask = func(ctx context.Context, task string) ([]picket.Run, time.Time, error) {
		if away {
			return nil, time.Time{}, picket.CodeUnavailable
		}
		runs, now, err := adapter.RunsOfTask(s.Client)(ctx, task)
		away = errors.Is(err, picket.CodeUnavailable)
		return runs, now, err
	}
	return kept, nil
}

// workspaceRow is a kept workspace with its size.
type workspaceRow struct {
	workspace.KeptWorkspace
	Bytes   int64  `json:"bytes"`
	Deleted *bool  `json:"deleted,omitempty"` // of gc
	Because string `json:"because,omitempty"` // of gc: why it was deleted or stays
}

var workspaceColumns = []term.Column[workspaceRow]{
	{Head: "WORKSPACE", Cell: func(r workspaceRow) string { return r.Name }},
	{Head: "TASK", Cell: func(r workspaceRow) string { return r.TaskID }},
	{Head: "SOURCE", Cell: func(r workspaceRow) string { return string(r.Source) }},
	{Head: "SIZE", Cell: func(r workspaceRow) string { return SizeText(r.Bytes) }},
	{Head: "EXPIRES", Cell: expiryText},
	{Head: "RUN", Cell: func(r workspaceRow) string { return r.RunID }, Wide: true},
	{Head: "RUNS", Cell: func(r workspaceRow) string { return fmt.Sprint(len(r.Runs)) }, Wide: true},
	{Head: "BRANCH", Cell: func(r workspaceRow) string { return r.Branch }, Wide: true},
	{Head: "PATH", Cell: func(r workspaceRow) string { return r.Path }, Wide: true},
	{Head: "TITLE", Cell: func(r workspaceRow) string { return term.Clip(r.Title, 40) }},
}

func workspaceListing(cmd *cobra.Command, empty string) Listing[workspaceRow] {
	return Listing[workspaceRow]{Cmd: cmd, Member: "workspaces", Empty: empty, Columns: workspaceColumns,
		Name: func(r workspaceRow) string { return r.Name }}
}

func wrapWorkspaces(rows []workspaceRow, raw *jsontext.Value) (err error) {
	*raw, err = json.Marshal(struct {
		Workspaces []workspaceRow `json:"workspaces"`
	}{rows})
	return err
}

func newWorkspaceList() *cobra.Command {
	c := listCommand(&cobra.Command{Short: "List the kept workspaces, oldest first"}, nil)
	c.RunE = func(cmd *cobra.Command, _ []string) error { // without a server, too
		kept, err := keptWorkspaces(cmd)
		if err != nil {
			return err
		}
		return workspaceListing(cmd, "no workspaces are kept").
			show(nil, topic{}, func(ctx context.Context, raw *jsontext.Value) error {
				all, err := kept.List(ctx)
				if err != nil {
					return err
				}
				var rows []workspaceRow
				for _, w := range all {
					rows = append(rows, workspaceRow{KeptWorkspace: w, Bytes: dirSize(w.Path)})
				}
				return wrapWorkspaces(rows, raw)
			})
	}
	return c
}

// workspaceNamed finds a workspace by its own id, or that of one of its runs or
// of its task, each by beginning or end; of several of a task the latest.
func workspaceNamed(ctx context.Context, typed string) (workspace.KeptWorkspace, error) {
	all, err := (workspace.KeptWorkspaces{}).List(ctx)
	if err != nil {
		return workspace.KeptWorkspace{}, err
	}
	kind, idsOf := "run", func(w workspace.KeptWorkspace) []string { return w.Runs }
	if strings.HasPrefix(typed, "task_") {
		kind, idsOf = "task", func(w workspace.KeptWorkspace) []string { return []string{w.TaskID} }
	}
	known := map[string]workspace.KeptWorkspace{}
	for _, w := range all {
		for _, id := range idsOf(w) {
			known[id] = w
		}
	}
	id, err := resolveID(ctx, kind, typed, func(context.Context) (found []candidate, err error) {
		for id, w := range known {
			found = append(found, candidate{id, w.Title})
		}
		return found, nil
	})
	if err == nil {
		if w, ok := known[id]; ok {
			return w, nil
		}
	} else if !errors.Is(err, picket.CodeNotFound) {
		return workspace.KeptWorkspace{}, err
	}
	return workspace.KeptWorkspace{},
		picket.Refuse(picket.CodeNotFound, "See: picket workspace list", "no workspace of %s is kept on this machine",
			term.OneLine(typed))
}

func newWorkspacePath() *cobra.Command {
	return &cobra.Command{
		Use:               "path WORKSPACE|TASK",
		Short:             "Print the directory of a workspace",
		Args:              CheckArgs(cobra.ExactArgs(1)),
		ValidArgsFunction: completeFirstID(workspaceIDs),
		Example:           "  cd \"$(picket workspace path TASK)\"",
		RunE: func(cmd *cobra.Command, given []string) error {
			w, err := workspaceNamed(cmd.Context(), given[0])
			if err != nil {
				return err
			}
			if _, err := os.Stat(w.Path); err != nil {
				return picket.Refuse(picket.CodeNotFound, "Its record goes with: picket workspace gc",
					"the directory %s is gone", term.OneLine(w.Path))
			}
			fmt.Fprintln(cmd.OutOrStdout(), term.OneLine(w.Path))
			return nil
		},
	}
}

func newWorkspacePin(pin bool) *cobra.Command {
	use, short, done := "pin", "Keep a workspace until it is unpinned", "pinned"
	if !pin {
		use, short, done = "unpin", "Allow a pinned workspace to be deleted when it is due", "unpinned"
	}
	return &cobra.Command{
		Use:               use + " WORKSPACE|TASK",
		Short:             short,
		Args:              CheckArgs(cobra.ExactArgs(1)),
		ValidArgsFunction: completeFirstID(workspaceIDs),
		RunE: func(cmd *cobra.Command, given []string) error {
			w, err := workspaceNamed(cmd.Context(), given[0])
			if err != nil {
				return err
			}
			if err := (workspace.KeptWorkspaces{}).Pin(w.Name, pin); err != nil {
				return err
			}
			fmt.Fprintln(cmd.OutOrStdout(), w.Name, done)
			return nil
		},
	}
}

func workspaceIDs(*Connection) candidateLister {
	return func(ctx context.Context) (found []candidate, err error) {
		all, err := (workspace.KeptWorkspaces{}).List(ctx)
		for _, w := range all {
			found = append(found, candidate{w.Name, w.Title})
		}
		return found, err
	}
}

func newWorkspaceCollect() *cobra.Command {
	c := &cobra.Command{
		Use:   "gc",
		Short: "Delete the workspaces that are due",
		Args:  CheckArgs(cobra.NoArgs),
		Long: "Delete the workspaces that are due: those of decided tasks after 24 hours, and those of failed\n" +
			"runs after 7 days. Adapters do the same when they start and every hour. A workspace stays if the\n" +
			"server does not know its task or cannot be asked. The branch of a worktree always stays, and\n" +
			"work that is not on it yet is committed first.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			kept, err := keptWorkspaces(cmd)
			if err != nil {
				return err
			}
			dry, _ := cmd.Flags().GetBool("dry-run")
			return collectWorkspaces(cmd, kept, dry)
		},
	}
	c.Flags().Bool("dry-run", false, "only say what would be deleted")
	return term.FormatFlag(c)
}

func collectWorkspaces(cmd *cobra.Command, kept workspace.KeptWorkspaces, dry bool) error {
	var failed error
	l := workspaceListing(cmd, "no workspaces are kept")
	l.Columns = []term.Column[workspaceRow]{
		{Head: "WORKSPACE", Cell: func(r workspaceRow) string { return r.Name }},
		{Head: "TASK", Cell: func(r workspaceRow) string { return r.TaskID }},
		{Head: "DONE", Cell: func(r workspaceRow) string { return doneText(r, dry) }},
		{Head: "BECAUSE", Cell: func(r workspaceRow) string { return r.Because }},
	}
	err := l.show(nil, topic{}, func(ctx context.Context, raw *jsontext.Value) error {
		all, err := kept.Collect(ctx, dry)
		if err != nil {
			return err
		}
		var rows []workspaceRow
		for _, c := range all {
			row := workspaceRow{KeptWorkspace: c.KeptWorkspace, Deleted: &c.Deleted, Because: c.Reason}
			if c.Err != nil {
				failed, row.Because = c.Err, c.Err.Error()
			}
			rows = append(rows, row)
		}
		return wrapWorkspaces(rows, raw)
	})
	if err != nil {
		return err
	}
	if failed != nil {
		return fmt.Errorf("not everything that is due could be deleted: %w", failed)
	}
	return nil
}

func doneText(r workspaceRow, dry bool) string {
	switch {
	case r.Deleted == nil || !*r.Deleted:
		return "kept"
	case dry:
		return "would be deleted"
	}
	return "deleted"
}

func expiryText(r workspaceRow) string {
	switch {
	case r.InUse:
		return "in use"
	case r.Pinned:
		return "pinned"
	case r.KeepUntil.IsZero():
		return "undecided"
	}
	if left := time.Until(r.KeepUntil.Time()); left > 0 {
		return "in " + largestUnit(left)
	}
	return "due"
}

// largestUnit is a time in the largest unit that says something.
func largestUnit(d time.Duration) string {
	switch {
	case d >= 48*time.Hour:
		return fmt.Sprintf("%dd", int(d.Hours())/24)
	case d >= time.Hour:
		return fmt.Sprintf("%dh", int(d.Hours()))
	}
	return fmt.Sprintf("%dm", int(d.Minutes())+1)
}

// SizeText is a number of bytes for people.
func SizeText(n int64) string {
	const unit = 1024
	if n < unit {
		return fmt.Sprintf("%d B", n)
	}
	size, names := float64(n), []string{"KiB", "MiB", "GiB", "TiB"}
	for i, name := range names {
		if size /= unit; size < unit || i == len(names)-1 {
			return fmt.Sprintf("%.1f %s", size, name)
		}
	}
	return ""
}

// dirSize adds up the files of a directory; links are not followed.
func dirSize(dir string) (n int64) {
	_ = filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			if info, err := d.Info(); err == nil {
				n += info.Size()
			}
		}
		return nil
	})
	return n
}
