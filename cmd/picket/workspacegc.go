package main

import (
	"context"
	"fmt"
	"io/fs"
	"path/filepath"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/spf13/cobra"

	"github.com/picket-dev/picket/adapter"
	"github.com/picket-dev/picket/cmd/picket/cli/term"
)

func newWorkspaceCollect() *cobra.Command {
	c := &cobra.Command{
		Use:   "gc",
		Short: "Delete the workspaces that are due",
		Args:  checkArgs(cobra.NoArgs),
		Long: "Delete the workspaces that are due: those of decided tasks after 24 hours, those of failed runs after 7 days.\n" +
			"Adapters do the same when they start and every hour. What the server does not know, or says nothing of, stays.\n" +
			"The branch of a worktree stays in any case; work that is not on it yet is committed first.",
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

func collectWorkspaces(cmd *cobra.Command, kept adapter.KeptWorkspaces, dry bool) error {
	var failed error
	l := workspaceListing(cmd, "no workspaces are kept")
	l.columns = []term.Column[workspaceRow]{
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

func sizeText(n int64) string {
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
