package doctor

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/cmd/picket/cli"
	"github.com/picket-dev/picket/cmd/picket/cli/exit"
	"github.com/picket-dev/picket/cmd/picket/cli/term"
)

// WithInvariants adds the whole pass of the invariant scanner to the doctor.
// The reaper makes the same pass all the time, slowly.
func WithInvariants(c *cobra.Command) *cobra.Command {
	usual := c.RunE
	f := c.Flags()
	f.Bool("invariants", false,
		"hold the whole store against its invariants instead; exit code 1 when one was violated")
	f.Bool("repair", false, "with --invariants: also repair what is safe to repair")
	c.RunE = func(cmd *cobra.Command, given []string) error {
		whole, _ := f.GetBool("invariants")
		repair, _ := f.GetBool("repair")
		switch {
		case whole:
			return runInvariantChecks(cmd, repair)
		case repair:
			return exit.Usagef("--repair repairs what --invariants finds: give both")
		}
		return usual(cmd, given)
	}
	return c
}

// maxPrintedViolations bounds what is printed; the event log has the rest.
const maxPrintedViolations = 100

// InvariantReport collects what a pass found, each thing once.
type InvariantReport struct {
	checked  int64
	events   int
	compared int
	agents   int // compared
	found    []picket.Violation
	known    map[picket.Violation]bool
}

func (v *InvariantReport) addViolations(found ...picket.Violation) {
	for _, f := range found {
		if !v.known[f] {
			v.known[f] = true
			v.found = append(v.found, f)
		}
	}
}

func runInvariantChecks(cmd *cobra.Command, repair bool) error {
	s, err := cli.Connect(cmd)
	if err != nil {
		return err
	}
	v := &InvariantReport{known: map[picket.Violation]bool{}}
	say := newProgressPrinter(cmd.ErrOrStderr())
	if err := inspectStore(cmd.Context(), s, repair, v, say); err != nil {
		return err
	}
	if err := replayLog(cmd.Context(), s, v, say); err != nil {
		return err
	}
	v.print(cmd.OutOrStdout())
	if len(v.found) > 0 {
		return exit.Status(exit.Error)
	}
	return nil
}

// inspectStore asks for one part of the pass after the other.
func inspectStore(ctx context.Context, s *cli.Connection, repair bool, v *InvariantReport,
	say func(string, ...any)) error {
	for ask := (picket.InspectRequest{Repair: repair}); ; {
		part, err := s.Server.Inspect(ctx, ask)
		if err != nil {
			return err
		}
		v.checked += part.Checked
		v.addViolations(part.Violations...)
		say("%d entries looked at", v.checked)
		if ask.Cursor = part.Next; ask.Cursor == "" {
			return nil
		}
	}
}

// newProgressPrinter tells how far a long pass has come, every two seconds.
func newProgressPrinter(w io.Writer) func(format string, args ...any) {
	last := time.Now()
	return func(format string, args ...any) {
		if time.Since(last) > 2*time.Second {
			last = time.Now()
			fmt.Fprintf(w, format+" …\n", args...)
		}
	}
}

func (v *InvariantReport) print(w io.Writer) {
	p := term.Painter(w)
	var rows [][]string
	repaired, repairable := 0, 0
	for i, f := range v.found {
		grade := "fail"
		switch {
		case f.Repaired:
			grade = "warn"
			repaired++
		case picket.InvariantKinds[f.Kind]:
			repairable++
		}
		if i < maxPrintedViolations {
			rows = append(rows, []string{p.State(grade), f.Kind, term.OneLine(f.Subject), term.OneLine(f.Detail)})
		}
	}
	term.PrintRows(w, rows)
	if more := len(v.found) - len(rows); more > 0 {
		fmt.Fprintf(w, "and %d more: picket events --type invariant.violated,invariant.repaired\n", more)
	}
	agents := ""
	if v.agents > 0 {
		agents = fmt.Sprintf(" and %d agents", v.agents)
	}
	fmt.Fprintf(w, "%d entries looked at, %d events replayed, %d tasks%s compared with them\n", v.checked, v.events,
		v.compared, agents)
	if len(v.found) == 0 {
		fmt.Fprintln(w, p.Good("every invariant holds"))
		return
	}
	fmt.Fprintln(w, p.Bad(fmt.Sprintf("%d violations, %d of them repaired", len(v.found), repaired)))
	if repairable > 0 {
		fmt.Fprintln(w, p.Dim("fix: ")+"picket doctor --invariants --repair")
	}
	if alarms := len(v.found) - repaired - repairable; alarms > 0 {
		fmt.Fprintf(w, "%sno repair is known to be safe for %d of them: see docs/invariants.md\n", p.Dim("fix: "),
			alarms)
	}
}
