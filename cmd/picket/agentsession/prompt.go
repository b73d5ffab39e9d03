package agentsession

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/spf13/cobra"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/cmd/picket/cli"
	"github.com/picket-dev/picket/cmd/picket/cli/exit"
	"github.com/picket-dev/picket/cmd/picket/cli/term"
)

func newPrompt() *cobra.Command {
	c := &cobra.Command{
		Use:   "prompt SESSION TEXT",
		Short: "Send a prompt to a session and print the answer as it comes",
		Long: "Send a prompt to a session and print the answer as it comes. If TEXT is -, it is\n" +
			"read from standard input. A session has one prompt at a time, so the prompt may have to wait.",
		Example: `  picket session prompt coder "What are you working on?"`,
		Args:    cli.CheckArgs(cobra.ExactArgs(2)),
		RunE: func(cmd *cobra.Command, given []string) error {
			text, err := textOf(cmd, given[1])
			if err != nil {
				return err
			}
			s, id, err := find(cmd, given[0])
			if err != nil {
				return err
			}
			return prompt(cmd, s, id, text)
		},
	}
	promptFlags(c)
	c.Flags().Bool("detach", false, "do not wait for the answer")
	return c
}

func promptFlags(c *cobra.Command) {
	c.Flags().Duration("timeout", picket.DefaultPromptSeconds*time.Second,
		"give up after this time, from 1s to 1h, waiting for earlier prompts included")
}

func textOf(cmd *cobra.Command, given string) (string, error) {
	if given != "-" {
		return given, nil
	}
	b, err := io.ReadAll(io.LimitReader(cmd.InOrStdin(), picket.MaxPromptText+1))
	return strings.TrimRight(string(b), "\n"), err
}

// prompt sends a prompt and follows its answer.
func prompt(cmd *cobra.Command, s *cli.Connection, id, text string) error {
	timeout, _ := cmd.Flags().GetDuration("timeout")
	if timeout < time.Second || timeout > picket.MaxPromptSeconds*time.Second {
		return picket.Refuse(exit.CodeUsage, "Give a duration from 1s to 1h, such as 10m.", "--timeout is %s", timeout)
	}
	if len(text) > picket.MaxPromptText {
		return picket.Refuse(exit.CodeUsage, "Put the text into a file that the agent can read, and name the file.",
			"the prompt has more than %d bytes", picket.MaxPromptText)
	}
	seconds := int((timeout + time.Second - 1) / time.Second)
	p, err := s.Sessions.Prompt(cmd.Context(), id, picket.PromptRequest{Text: text, TimeoutSeconds: &seconds})
	if err != nil {
		return err
	}
	if detach, _ := cmd.Flags().GetBool("detach"); detach {
		fmt.Fprintln(cmd.OutOrStdout(), p.PromptID)
		cli.PrintNext(cmd, "picket session logs "+id)
		return nil
	}
	return follow(cmd, s, p)
}

// pollWait is how long one request waits for more of an answer.
const pollWait = 30 * time.Second

// follow prints the answer of a prompt as it comes.
func follow(cmd *cobra.Command, s *cli.Connection, p picket.SessionPrompt) error {
	out, offset := term.SafeOutput(cmd.OutOrStdout()), 0
	ended := true // the last line that was printed
	for !p.State.Ended() {
		var err error
		if p, err = s.Sessions.GetPrompt(cmd.Context(), p.SessionID, p.PromptID, offset, pollWait); err != nil {
			return err
		}
		if p.Answer != "" {
			fmt.Fprint(out, p.Answer)
			ended = strings.HasSuffix(p.Answer, "\n")
			offset += len(p.Answer)
		}
	}
	if !ended {
		fmt.Fprintln(out)
	}
	return outcome(p)
}

// outcome is the error of a prompt that was not answered.
func outcome(p picket.SessionPrompt) error {
	if p.State == picket.PromptAnswered {
		return nil
	}
	why := string(p.State)
	if p.Reason != "" {
		why += ": " + term.OneLine(p.Reason)
	}
	code, _, _ := strings.Cut(p.Reason, ":")
	remedy := remedies[cmp.Or(code, string(p.State))]
	return picket.Refuse(exit.CodeUnanswered, cmp.Or(remedy, "Look at the session: picket session inspect "+p.SessionID),
		"the prompt was not answered: %s", why)
}

// remedies say what helps if a prompt was not answered, by the reason or else the state.
var remedies = map[string]string{
	"timeout":       "Send the prompt again with a longer --timeout.",
	"expired":       "Check that the adapter runs: picket agent list.",
	"session_lost":  "Start the adapter again: picket adapter --as NAME.",
	"keeper_ended":  "Start the adapter again: picket adapter --as NAME.",
	"session_ended": "List the sessions that can be prompted: picket session list.",
	"agent_ended":   "Correct what launch: in picket.yaml starts. The next prompt starts it again.",
	"cannot_start":  "Correct what launch: in picket.yaml starts. The next prompt starts it again.",
}

func newAttach() *cobra.Command {
	c := onSession("attach", "Talk to a session: each line is a prompt, until the end of the input",
		func(cmd *cobra.Command, s *cli.Connection, id string) error {
			a, err := s.Sessions.Get(cmd.Context(), id)
			if err != nil {
				return err
			}
			if a.Health.State == picket.SessionStopped {
				return picket.Refuse(exit.CodeUsage, "List the sessions that can be prompted: picket session list",
					"the session has ended")
			}
			fmt.Fprintf(cmd.ErrOrStderr(), "%s of %s is %s. Each line is a prompt; end with Ctrl-D.\n", id, a.AgentID,
				a.Health.State)
			lines := bufio.NewScanner(cmd.InOrStdin())
			lines.Buffer(nil, picket.MaxPromptText+1)
			for lines.Scan() {
				if strings.TrimSpace(lines.Text()) == "" {
					continue
				}
				err := prompt(cmd, s, id, lines.Text())
				if errors.Is(err, exit.CodeUnanswered) {
					fmt.Fprintln(cmd.ErrOrStderr(), err)
				} else if err != nil {
					return err
				}
			}
			if errors.Is(lines.Err(), bufio.ErrTooLong) {
				return picket.Refuse(exit.CodeUsage, "Send it in several lines.", "a line has more than %d bytes",
					picket.MaxPromptText)
			}
			return lines.Err()
		})
	promptFlags(c)
	return c
}

func newLogs() *cobra.Command {
	c := onSession("logs", "Show the conversation of a session: its prompts and their answers",
		func(cmd *cobra.Command, s *cli.Connection, id string) error {
			format, err := term.FormatOf(cmd)
			if err != nil {
				return err
			}
			limit, _ := cmd.Flags().GetInt("limit")
			if limit < 1 || limit > picket.MaxPromptsListed {
				return exit.Usagef("--limit is %d; use 1 to %d", limit, picket.MaxPromptsListed)
			}
			var all []picket.SessionPrompt
			for cursor := int64(0); len(all) < limit; {
				page, err := s.Sessions.Prompts(cmd.Context(), id, cursor, min(50, limit-len(all)))
				if err != nil {
					return err
				}
				all = append(all, page.Prompts...)
				if cursor = page.Cursor; cursor == 0 {
					break
				}
			}
			if !isTable(format) {
				return printJSON(cmd, format, map[string]any{"prompts": all})
			}
			for i := len(all) - 1; i >= 0; i-- {
				printPrompt(cmd, all[i])
				if i > 0 {
					fmt.Fprintln(cmd.OutOrStdout())
				}
			}
			if len(all) == 0 {
				fmt.Fprintln(cmd.ErrOrStderr(), "nobody has prompted", id, "within the last week")
			}
			return nil
		})
	c.Flags().Int("limit", 20, "how many prompts, the newest")
	return term.FormatFlag(c)
}

// printPrompt prints a prompt and its answer.
func printPrompt(cmd *cobra.Command, p picket.SessionPrompt) {
	w := cmd.OutOrStdout()
	paint := term.Painter(w)
	by := term.OneLine(p.By)
	if p.Wake {
		by = "a wake"
	}
	fmt.Fprintln(w, paint.Dim(ago(p.CreatedAt)+" by "+by+": "+string(p.State)))
	term.Indented(w, p.Text)
	if p.Answer != "" {
		fmt.Fprintln(w, paint.Dim("answer"))
		term.Indented(w, p.Answer)
	}
	if !p.Spent.IsZero() {
		fmt.Fprintln(w, paint.Dim("spent: "+p.Spent.Text()))
	}
	if p.Reason != "" {
		fmt.Fprintln(w, paint.Dim("reason: "+term.OneLine(p.Reason)))
	}
	if p.TaskID != "" {
		fmt.Fprintln(w, paint.Dim("took "+p.TaskID))
	}
}

func printJSON(cmd *cobra.Command, format string, v any) error {
	raw, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return term.PrintValue(cmd.OutOrStdout(), format, raw)
}
