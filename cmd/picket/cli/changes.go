package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"

	xterm "github.com/charmbracelet/x/term"
	"github.com/spf13/cobra"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/cmd/picket/cli/exit"
	"github.com/picket-dev/picket/cmd/picket/cli/term"
	"github.com/picket-dev/picket/internal/text"
)

// completingEvidence returns the evidence of the run that completed the task, or of the
// latest run if the task has no review. It is nil if that run handed in nothing.
// others are the other runs that handed in evidence.
func (s *Connection) completingEvidence(ctx context.Context,
	task picket.Task) (ev *picket.Evidence, others []string, err error) {
	list, err := s.Tasks.Evidence(ctx, task.TaskID)
	if err != nil {
		return nil, nil, err
	}
	for i := range list {
		if list[i].RunID == task.CompletingRun() {
			ev = &list[i]
		} else {
			others = append(others, list[i].RunID)
		}
	}
	return ev, others, nil
}

// diffText shows a diff as a person reads it. Nothing in it can steer the
// terminal: what would is dropped.
func diffText(task string, ev *picket.Evidence, p term.Paint) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s\n", p.Dim("branch"), term.OneLine(ev.Branch))
	if ev.Diff == "" && ev.Diffstat == "" {
		b.WriteString("nothing has been changed\n")
		return b.String()
	}
	b.WriteString(text.Printable(ev.Diffstat))
	b.WriteString("\n")
	for line := range strings.Lines(ev.Diff) {
		b.WriteString(diffLine(strings.TrimSuffix(text.Printable(line), "\n"), p) + "\n")
	}
	if command := ev.DiffCommand(task); ev.Truncated && command != "" {
		fmt.Fprintf(&b, "%s %s\n", p.Dim("the whole diff, in your checkout:"), command)
	}
	return b.String()
}

func diffLine(line string, p term.Paint) string {
	switch {
	case strings.HasPrefix(line, "+++"), strings.HasPrefix(line, "---"), strings.HasPrefix(line, "diff "):
		return p.Bold(line)
	case strings.HasPrefix(line, "+"):
		return p.Good(line)
	case strings.HasPrefix(line, "-"):
		return p.Bad(line)
	case strings.HasPrefix(line, "@@"):
		return p.Dim(line)
	}
	return line
}

// showInPager shows text on a terminal a page at a time; elsewhere it just prints it.
func showInPager(cmd *cobra.Command, text string) error {
	w := cmd.OutOrStdout()
	pager := strings.Fields(os.Getenv("PAGER"))
	if len(pager) == 0 {
		pager = []string{"less"}
	}
	if !term.IsTerminal(w) || !term.IsTerminal(cmd.InOrStdin()) || fitsTerminal(w, text) {
		_, err := io.WriteString(w, text)
		return err
	}
	show := exec.CommandContext(cmd.Context(), pager[0], pager[1:]...)
	show.Stdin, show.Stdout, show.Stderr = strings.NewReader(text), w, cmd.ErrOrStderr()
	show.Env = append(os.Environ(), "LESS=FRX", "LESSSECURE=1")
	if err := show.Start(); err != nil {
		_, err = io.WriteString(w, text)
		return err
	}
	_ = show.Wait() // a pager that was left early has shown what was wanted
	return nil
}

func fitsTerminal(w io.Writer, text string) bool {
	f, ok := w.(*os.File)
	if !ok {
		return true
	}
	_, height, err := xterm.GetSize(f.Fd())
	return err != nil || strings.Count(text, "\n") < height-1
}

// printChanges prints what a task has changed, if it has handed anything in.
func printChanges(cmd *cobra.Command, s *Connection, task picket.Task) error {
	text, err := s.changesText(cmd.Context(), task, term.Painter(cmd.OutOrStdout()))
	if err != nil || text == "" {
		return err
	}
	return showInPager(cmd, text)
}

// changesText describes the changes of the completing run, and names the other
// runs that handed in evidence.
func (s *Connection) changesText(ctx context.Context, task picket.Task, p term.Paint) (string, error) {
	ev, others, err := s.completingEvidence(ctx, task)
	if err != nil {
		return "", err
	}
	text := ""
	if ev != nil {
		text = "\n" + diffText(task.TaskID, ev, p)
	}
	if len(others) > 0 {
		text += "\n" + p.Dim("not part of the result: changes of "+strings.Join(others, ", ")) + "\n"
	}
	return text, nil
}

// printChangesTo is printChanges for what is printed again and again.
func printChangesTo(ctx context.Context, s *Connection, w io.Writer, task picket.Task) error {
	text, err := s.changesText(ctx, task, term.Painter(w))
	if err == nil {
		_, err = io.WriteString(w, text)
	}
	return err
}

// printBundle describes the bundle of a task's branch, if the server keeps one.
func printBundle(ctx context.Context, s *Connection, w io.Writer, task picket.Task) error {
	b, err := s.Tasks.Bundle(ctx, task.TaskID)
	if errors.Is(err, picket.CodeNotFound) {
		return nil
	}
	if err == nil {
		_, err = fmt.Fprintf(w, "\nbundle  %s, commit %.12s of %s, handed in %s by %s\n", SizeText(b.Size), b.Tip,
			term.OneLine(b.Branch), b.At, b.RunID)
	}
	return err
}

func newTaskBundle() *cobra.Command {
	c := OnTask("bundle", "Write the git bundle of a task's branch to standard output",
		func(cmd *cobra.Command, s *Connection, id string) error {
			out := cmd.OutOrStdout()
			if f, ok := out.(*os.File); ok && xterm.IsTerminal(f.Fd()) {
				return exit.Usagef("a bundle is binary: write it to a file, such as with > work.bundle")
			}
			var data bytes.Buffer // nothing is written before the digest is known to be right
			b, err := s.Tasks.DownloadBundle(cmd.Context(), id, &data, picket.MaxBundleSize)
			if err != nil {
				return err
			}
			if _, err := data.WriteTo(out); err != nil {
				return err
			}
			fmt.Fprintf(cmd.ErrOrStderr(), "picket: %s, commit %.12s of %s, based on commit %.12s. An agent has made it: "+
				"check it with git bundle verify before you fetch from it\n", SizeText(b.Size), b.Tip, term.OneLine(b.Branch),
				b.Base)
			return nil
		})
	c.Example = "  picket task bundle TASK > work.bundle"
	return c
}
