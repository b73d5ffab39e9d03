package cli

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/cmd/picket/cli/term"
)

// A tree of tasks: what a run has delegated, and what its subtasks have.

// maxSubtasksPrinted bounds how many subtasks are shown with a task.
const maxSubtasksPrinted = 200

// printSubtasks shows the tree below a task, a line for each subtask.
func printSubtasks(ctx context.Context, s *Connection, w io.Writer, t picket.Task) error {
	if len(t.Children) == 0 {
		return nil
	}
	p := term.Painter(w)
	var rows [][]string
	full := false
	var walk func(id string, depth int) error
	walk = func(id string, depth int) error {
		children, err := s.childrenOf(ctx, id)
		if err != nil {
			return err
		}
		for _, c := range children {
			if full = len(rows) == maxSubtasksPrinted; full {
				return nil
			}
			state := p.State(string(c.State))
			if c.Fixes != nil {
				state += p.Dim(" repairs " + *c.Fixes)
			}
			rows = append(rows, []string{strings.Repeat("  ", depth) + c.TaskID, state, term.Clip(c.Title, 60)})
			if err := walk(c.TaskID, depth+1); err != nil || full {
				return err
			}
		}
		return nil
	}
	if err := walk(t.TaskID, 1); err != nil {
		return err
	}
	fmt.Fprintln(w, p.Dim("subtasks"))
	term.PrintRows(w, rows)
	if full {
		fmt.Fprintln(w, p.Dim("and more: picket task list --parent "+t.TaskID))
	}
	return nil
}

// sortByTree puts the subtasks among listed tasks below their parents, oldest
// first as they were delegated, and notes how deep each stands. Those whose
// parent is not listed stay where they are.
func sortByTree(tasks []picket.Task, depths map[string]int) []picket.Task {
	clear(depths)
	listed, below := map[string]bool{}, map[string][]picket.Task{}
	for _, t := range tasks {
		listed[t.TaskID] = true
	}
	var out, top []picket.Task
	for _, t := range tasks {
		if t.Parent != nil && listed[*t.Parent] {
			below[*t.Parent] = append(below[*t.Parent], t)
		} else {
			top = append(top, t)
		}
	}
	var put func(t picket.Task, depth int)
	put = func(t picket.Task, depth int) {
		depths[t.TaskID] = depth
		out = append(out, t)
		for _, child := range slices.Backward(below[t.TaskID]) {
			put(child, depth+1)
		}
	}
	for _, t := range top {
		put(t, 0)
	}
	return out
}

// listedTitle is the title of a listed task. For a subtask it names the parent, unless the parent
// is listed above it or the list is the parent's.
func listedTitle(t picket.Task, asked string, depths map[string]int) string {
	if t.Parent != nil && *t.Parent != asked && depths[t.TaskID] == 0 {
		return "of " + *t.Parent + ": " + t.Title
	}
	return t.Title
}

// childrenOf lists the subtasks of a task, oldest first.
func (s *Connection) childrenOf(ctx context.Context, id string) ([]picket.Task, error) {
	page, err := s.Tasks.List(ctx, picket.TaskQuery{Parent: id, Limit: 200})
	slices.Reverse(page.Tasks)
	return page.Tasks, err
}
