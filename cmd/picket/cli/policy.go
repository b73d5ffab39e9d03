package cli

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/spf13/cobra"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/client"
	"github.com/picket-dev/picket/cmd/picket/cli/exit"
	"github.com/picket-dev/picket/cmd/picket/cli/term"
)

// newAgentPolicy is `picket agent heartbeat`: the wake policies of agent names.
func newAgentPolicy() *cobra.Command {
	c := CommandGroup("heartbeat", "Manage the wake policies of agents, their files HEARTBEAT.md",
		newPolicyInspect(), newPolicyValidate(), newPolicyWrite(), newPolicyDelete(), newPolicyHistory(),
		newPolicyRollback(), newPolicyStatus(), newWake(), newWakes())
	c.Long = "A wake policy says when an agent may be woken, and what it should look at then. It gives no right to\n" +
		"any task. The server keeps each policy with its last 50 revisions.\n" +
		"NAME is the name of an agent, such as a key of agents: in picket.yaml. It is not the id of a registered\n" +
		"agent. With --if-match, a change names the digest of the policy that it changes."
	return c
}

// policyCommand is a command about the wake policy of one agent name.
func policyCommand(verb, short string, act func(cmd *cobra.Command, s *Connection, name string) error) *cobra.Command {
	c := &cobra.Command{
		Use: verb + " NAME", Short: short, Args: CheckArgs(cobra.ExactArgs(1)),
		RunE: connected(func(cmd *cobra.Command, s *Connection, given []string) error {
			if err := picket.CheckName("NAME", given[0]); err != nil {
				return err
			}
			return act(cmd, s, given[0])
		}),
	}
	return term.FormatFlag(c)
}

func newPolicyInspect() *cobra.Command {
	return policyCommand("inspect", "Show the wake policy of an agent",
		func(cmd *cobra.Command, s *Connection, name string) error {
			var raw jsontext.Value
			p, err := s.Policies.Get(cmd.Context(), name, client.WithBody(&raw))
			if err != nil {
				return policyRefusal(cmd, err)
			}
			return printAnswer(cmd, cmd.OutOrStdout(), raw, p.Digest, func() error {
				printPolicy(cmd, p)
				return nil
			})
		})
}

// printPolicy prints a policy as a person reads it: what it means, and then its text.
func printPolicy(cmd *cobra.Command, p picket.WakePolicy) {
	w := cmd.OutOrStdout()
	if !p.Present {
		fmt.Fprintln(cmd.ErrOrStderr(), p.AgentName, "has no wake policy"+removedFile(p.File))
		printHowToWrite(cmd, p.AgentName, p.File)
		return
	}
	rows := [][2]string{{"agent", p.AgentName}, {"digest", p.Digest}, {"revision", cmp.Or(p.RevisionID, "-")},
		{"enabled", yesNo(p.Enabled)}, {"summary", cmp.Or(term.OneLine(p.Summary), "-")},
		{"min interval", cmp.Or(picket.IntervalText(p.MinInterval, p.EffectiveMinInterval), "-")},
		{"active hours", windowTexts(p.ActiveHours, "always")},
		{"quiet windows", windowTexts(p.QuietWindows, "-")}}
	if p.WrittenAt != nil {
		rows = append(rows, [2]string{"written", term.Ago(*p.WrittenAt) + " ago by " + p.WrittenBy})
	}
	if p.File != nil {
		rows = append(rows, [2]string{"file", p.File.Path + ", " + p.File.State})
	}
	if p.Instructions != nil {
		rows = append(rows, [2]string{"instructions", instructionsText(*p.Instructions)})
	}
	for _, row := range rows {
		fmt.Fprintf(w, "%-13s  %s\n", row[0], row[1])
	}
	printDiagnostics(w, p.Diagnostics)
	fmt.Fprintln(w)
	term.Indented(w, p.Body)
}

// printHowToWrite says how a name without a policy gets one. No command writes that of files beside picket.yaml.
func printHowToWrite(cmd *cobra.Command, name string, f *picket.PolicyFile) {
	if f == nil || f.State != picket.PolicyFileWorkspace {
		PrintNext(cmd, "picket agent heartbeat write "+name+" --file HEARTBEAT.md")
		return
	}
	fmt.Fprintln(cmd.ErrOrStderr(), "To give it one, write", f.Path,
		"beside picket.yaml on the server, and run there: picket config trust")
}

// removedFile names the file whose absence leaves a name without a policy.
func removedFile(f *picket.PolicyFile) string {
	switch {
	case f == nil:
		return ""
	case f.State == picket.PolicyFileWorkspace:
		return ": there is no file " + f.Path + " beside picket.yaml"
	}
	return ": the file " + f.Path + " was removed"
}

// instructionsText says which file has the standing instructions, and whether it is used.
func instructionsText(i picket.AgentInstructions) string {
	if len(i.Diagnostics) == 0 {
		return fmt.Sprintf("%s, %d bytes", i.Path, i.Bytes)
	}
	first := i.Diagnostics[0]
	at := i.Path
	if first.Line > 0 {
		at += ":" + strconv.Itoa(first.Line)
	}
	return at + " is refused, and the earlier ones stay: " + term.OneLine(first.Message)
}

func yesNo(b bool) string { return map[bool]string{true: "yes", false: "no"}[b] }

func windowTexts(list []picket.TimeWindow, none string) string {
	var texts []string
	for _, w := range list {
		texts = append(texts, w.Start+" to "+w.End+" "+w.Timezone)
	}
	return cmp.Or(strings.Join(texts, ", "), none)
}

func printDiagnostics(w io.Writer, list []picket.PolicyDiagnostic) {
	for _, d := range list {
		at := d.SourcePath
		if d.Line > 0 {
			at += ":" + strconv.Itoa(d.Line) + ":" + strconv.Itoa(d.Column)
		}
		fmt.Fprintf(w, "%s: %s: %s [%s]\n", at, d.Severity, term.OneLine(d.Message), d.Code)
		switch d.OwnerSurface {
		case "":
		case "not supported":
			fmt.Fprintln(w, "  nothing in Picket does this")
		default:
			fmt.Fprintln(w, "  this is set in:", d.OwnerSurface)
		}
	}
}

// policyRefusal prints the diagnostics of a policy that does not count, and returns its error.
func policyRefusal(cmd *cobra.Command, err error) error {
	var refused *picket.Error
	if !errors.As(err, &refused) || refused.Facts["policy"] == nil {
		return err
	}
	var p picket.WakePolicy
	fact, encodeErr := json.Marshal(refused.Facts["policy"])
	if encodeErr != nil || json.Unmarshal(fact, &p) != nil {
		return err
	}
	raw, encodeErr := json.Marshal(p) // in the order of the members
	if encodeErr != nil {
		return err
	}
	printErr := printAnswer(cmd, cmd.OutOrStdout(), raw, "", func() error {
		printDiagnostics(cmd.OutOrStdout(), p.Diagnostics)
		return nil
	})
	return cmp.Or(printErr, err)
}

func newPolicyValidate() *cobra.Command {
	c := policyCommand("validate", "Check a HEARTBEAT.md for an agent without storing it; exits with 2 if it is invalid",
		func(cmd *cobra.Command, s *Connection, name string) error {
			body, err := policyBody(cmd)
			if err != nil {
				return err
			}
			var raw jsontext.Value
			p, err := s.Policies.Validate(cmd.Context(), name, picket.PolicyValidation{Body: body},
				client.WithBody(&raw))
			if err != nil {
				return policyRefusal(cmd, err)
			}
			return printAnswer(cmd, cmd.OutOrStdout(), raw, p.Digest, func() error {
				printDiagnostics(cmd.OutOrStdout(), p.Diagnostics)
				fmt.Fprintln(cmd.OutOrStdout(), "valid", p.Digest)
				return nil
			})
		})
	return bodyFlags(c)
}

// bodyFlags adds the flags that say where the text of a policy is.
func bodyFlags(c *cobra.Command) *cobra.Command {
	c.Flags().String("file", "", "read the text from this file, such as HEARTBEAT.md")
	c.Flags().Bool("stdin", false, "read the text from standard input")
	c.MarkFlagsMutuallyExclusive("file", "stdin")
	c.MarkFlagsOneRequired("file", "stdin")
	return c
}

// maxPolicyText bounds what is read of a file or of standard input. The server takes less.
const maxPolicyText = 1 << 20

func policyBody(cmd *cobra.Command) (string, error) {
	in := cmd.InOrStdin()
	if cmd.Flags().Changed("file") {
		name, _ := cmd.Flags().GetString("file")
		f, err := os.Open(name)
		if err != nil {
			return "", exit.Usagef("--file: %v", err)
		}
		defer f.Close()
		in = f
	}
	text, err := io.ReadAll(io.LimitReader(in, maxPolicyText+1))
	if err != nil {
		return "", fmt.Errorf("read the policy: %w", err)
	}
	if len(text) > maxPolicyText {
		return "", exit.Usagef("the policy has more than %d bytes", maxPolicyText)
	}
	return string(text), nil
}

func newPolicyWrite() *cobra.Command {
	c := policyCommand("write", "Make a HEARTBEAT.md the wake policy of an agent",
		func(cmd *cobra.Command, s *Connection, name string) error {
			body, err := policyBody(cmd)
			if err != nil {
				return err
			}
			return printChanged(cmd, "written", func(opt client.Option) (picket.WakePolicy, error) {
				w := picket.PolicyWrite{Body: body, PolicyCondition: condition(cmd)}
				return s.Policies.Write(cmd.Context(), name, w, opt)
			})
		})
	c.Example = "  picket agent heartbeat write reviewer --file HEARTBEAT.md\n" +
		"  picket agent heartbeat write reviewer --file HEARTBEAT.md --if-match sha256:1f2e…"
	return matchFlag(bodyFlags(c))
}

// matchFlag adds the digest of the policy that a change expects.
func matchFlag(c *cobra.Command) *cobra.Command {
	c.Flags().String("if-match", "", "the digest of the policy now, as inspect shows it; leave it out if there is no policy")
	return c
}

func condition(cmd *cobra.Command) picket.PolicyCondition {
	digest, _ := cmd.Flags().GetString("if-match")
	return picket.PolicyCondition{ExpectedDigest: digest}
}

// printChanged makes a change and prints the policy that is there now.
func printChanged(cmd *cobra.Command, done string, change func(client.Option) (picket.WakePolicy, error)) error {
	var raw jsontext.Value
	p, err := change(client.WithBody(&raw))
	if err != nil {
		return policyRefusal(cmd, err)
	}
	return printAnswer(cmd, cmd.OutOrStdout(), raw, p.RevisionID, func() error {
		printDiagnostics(cmd.OutOrStdout(), p.Diagnostics)
		fmt.Fprintln(cmd.OutOrStdout(), strings.TrimSpace(p.RevisionID+" "+done+" "+p.Digest))
		PrintNext(cmd, "picket agent heartbeat status "+p.AgentName, "picket agent heartbeat history "+p.AgentName)
		return nil
	})
}

func newPolicyDelete() *cobra.Command {
	return matchFlag(policyCommand("delete", "Delete the wake policy of an agent; its revisions stay",
		func(cmd *cobra.Command, s *Connection, name string) error {
			return printChanged(cmd, "deleted", func(opt client.Option) (picket.WakePolicy, error) {
				return s.Policies.Delete(cmd.Context(), name, condition(cmd), opt)
			})
		}))
}

func newPolicyRollback() *cobra.Command {
	c := policyCommand("rollback", "Make an earlier revision the wake policy of an agent again",
		func(cmd *cobra.Command, s *Connection, name string) error {
			r := picket.PolicyRollback{PolicyCondition: condition(cmd)}
			r.RevisionID, _ = cmd.Flags().GetString("revision-id")
			r.TargetDigest, _ = cmd.Flags().GetString("target-digest")
			return printChanged(cmd, "restored", func(opt client.Option) (picket.WakePolicy, error) {
				return s.Policies.Rollback(cmd.Context(), name, r, opt)
			})
		})
	c.Flags().String("revision-id", "", "the id of the revision, as history lists it")
	c.Flags().String("target-digest", "", "the digest of the revision; of several, the newest is taken")
	c.MarkFlagsMutuallyExclusive("revision-id", "target-digest")
	c.MarkFlagsOneRequired("revision-id", "target-digest")
	return matchFlag(c)
}

func newPolicyHistory() *cobra.Command {
	c := policyCommand("history", "List the revisions of the wake policy of an agent, newest first",
		func(cmd *cobra.Command, s *Connection, name string) error {
			var q picket.PolicyHistoryQuery
			q.Limit, _ = cmd.Flags().GetInt("limit")
			q.Cursor, _ = cmd.Flags().GetInt64("cursor")
			format, err := term.FormatOf(cmd)
			if err != nil {
				return err
			}
			var raw jsontext.Value
			if _, err := s.Policies.History(cmd.Context(), name, q, client.WithBody(&raw)); err != nil {
				return err
			}
			return revisionListing(cmd).Print(cmd.OutOrStdout(), format, raw)
		})
	c.Flags().Int("limit", 20, "at most this many, 1 to 50")
	c.Flags().Int64("cursor", 0, "only older revisions; the page before shows this cursor")
	return c
}

// olderPage says how the next page is listed, if there is one.
func olderPage(members map[string]jsontext.Value, n int) string {
	if cursor := string(members["cursor"]); cursor != "" {
		return fmt.Sprintf("%d shown, there are more: add --cursor %s", n, cursor)
	}
	return ""
}

func revisionListing(cmd *cobra.Command) Listing[picket.PolicyRevision] {
	return Listing[picket.PolicyRevision]{
		Cmd: cmd, Member: "revisions", Empty: "no revisions",
		Name: func(r picket.PolicyRevision) string { return r.RevisionID },
		more: olderPage,
		Columns: []term.Column[picket.PolicyRevision]{
			{Head: "REVISION", Cell: func(r picket.PolicyRevision) string { return r.RevisionID }},
			{Head: "CURRENT", Cell: func(r picket.PolicyRevision) string { return yesNo(r.Current) }},
			{Head: "ACTION", Cell: func(r picket.PolicyRevision) string { return r.Action }},
			{Head: "WRITTEN", Cell: func(r picket.PolicyRevision) string { return term.Ago(r.WrittenAt) }},
			{Head: "BY", Cell: func(r picket.PolicyRevision) string { return r.WrittenBy }},
			{Head: "DIGEST", Cell: func(r picket.PolicyRevision) string { return cmp.Or(r.Digest, "-") }},
		},
	}
}

// policyInstant reads the flag --at. It is 0 if the flag is not set.
func policyInstant(cmd *cobra.Command) (at picket.Instant, err error) {
	text, _ := cmd.Flags().GetString("at")
	if text == "" {
		return 0, nil
	}
	if err := at.UnmarshalJSON([]byte(strconv.Quote(text))); err != nil || at <= 0 {
		return 0, exit.Usagef("--at %s: write a time such as 2026-04-11T10:42:17Z", term.Clip(text, 40))
	}
	return at, nil
}

func newPolicyStatus() *cobra.Command {
	c := policyCommand("status", "Show whether the wake policy of an agent allows wakes now or at another time",
		func(cmd *cobra.Command, s *Connection, name string) error {
			at, err := policyInstant(cmd)
			if err != nil {
				return err
			}
			var raw jsontext.Value
			st, err := s.Policies.Status(cmd.Context(), name, at, client.WithBody(&raw))
			if err != nil {
				return err
			}
			return printAnswer(cmd, cmd.OutOrStdout(), raw, st.Digest, func() error {
				printPolicyStatus(cmd, st)
				return nil
			})
		})
	c.Flags().String("at", "", "ask about another time, such as 2026-04-11T10:42:17Z")
	return c
}

func printPolicyStatus(cmd *cobra.Command, st picket.PolicyStatus) {
	w := cmd.OutOrStdout()
	answer := "allows wakes"
	if !st.Active {
		answer = "allows no wakes: " + string(st.Reason)
	}
	fmt.Fprintf(w, "%s  %s at %s\n", st.AgentName, answer, st.At)
	if st.NextAllowedAt != nil {
		fmt.Fprintln(w, "next allowed at", *st.NextAllowedAt)
	}
	printWakeBudget(w, st.WakeBudget)
	if st.Summary != "" {
		fmt.Fprintln(w, "summary:", term.OneLine(st.Summary))
	}
	if st.MinInterval != "" {
		fmt.Fprintln(w, "min interval:", picket.IntervalText(st.MinInterval, st.EffectiveMinInterval))
	}
	if st.File != nil {
		state := st.File.State
		if state == picket.PolicyFileWorkspace && !st.Present {
			state = "none, and only the files beside picket.yaml count"
		}
		fmt.Fprintf(w, "file %s: %s\n", st.File.Path, state)
	}
	if st.Instructions != nil {
		fmt.Fprintln(w, "instructions:", instructionsText(*st.Instructions))
	}
	printDiagnostics(w, st.Diagnostics)
	if !st.Present {
		printHowToWrite(cmd, st.AgentName, st.File)
	}
}

func printWakeBudget(w io.Writer, b picket.WakeBudget) {
	if b.RenewedAt == nil {
		fmt.Fprintf(w, "wakes may spend nothing on any day, because %s is 0\n", b.Setting)
		return
	}
	fmt.Fprintf(w, "wakes may spend %s more until %s (%s, limited by %s)\n", b.Left.Dollars(), *b.RenewedAt, b.Envelope,
		b.Setting)
}
