package cli

import (
	"fmt"
	"net/http"

	"github.com/spf13/cobra"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/adapter/agents"
	"github.com/picket-dev/picket/cmd/picket/cli/term"
)

// NewPinned prints the task and the last report for an agent that has shortened its memory. Coding
// agents are configured to call it automatically.
func NewPinned() *cobra.Command {
	return &cobra.Command{
		Use:    "pinned",
		Short:  "Print the task and its last report (for agents)",
		Args:   CheckArgs(cobra.NoArgs),
		Hidden: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			proxy, err := proxyFromEnvironment()
			if err != nil {
				return err
			}
			var task picket.Task
			err = RetryUnanswered(cmd.Context(), ToolPatience, cmd.ErrOrStderr(), func() error {
				return proxy.Call(cmd.Context(), http.MethodPost, "/v1/tools/get_task", struct{}{}, &task,
					fencingHeader())
			})
			if err != nil {
				return err
			}
			out := cmd.OutOrStdout()
			fmt.Fprintf(out, "You work on the task %s: %s\n", task.TaskID, task.Title)
			if len(task.Input) > 0 && string(task.Input) != "null" {
				fmt.Fprintf(out, "Its input: %s\n", term.Clip(string(task.Input), 4000))
			}
			if task.LastReport != nil {
				fmt.Fprint(out, agents.ReportText(*task.LastReport))
			}
			fmt.Fprintln(out,
				"Report with report_progress, hand in with mark_complete, both tools of the MCP server picket.")
			return nil
		},
	}
}
