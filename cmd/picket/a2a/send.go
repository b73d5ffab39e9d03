package a2a

import (
	"context"
	stdjson "encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	protocol "github.com/a2aproject/a2a-go/v2/a2a"
	"github.com/spf13/cobra"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/cmd/picket/a2a/agentclient"
	"github.com/picket-dev/picket/cmd/picket/cli"
	"github.com/picket-dev/picket/cmd/picket/cli/exit"
	"github.com/picket-dev/picket/cmd/picket/cli/term"
)

// maxSent is how many bytes the text and the files of a message may have.
const maxSent = 8 << 20

const exitHelp = "The exit code is 0 if the task is completed, 1 if it has failed or was rejected or cancelled, 4 if it\n" +
	"waits for an answer or an approval, and 124 if --timeout is over."

func newSend() *cobra.Command {
	c := &cobra.Command{
		Use:   "send AGENT [TEXT]",
		Short: "Send a task to an agent, and wait until it has ended or asks something",
		Long: "Send a task to an agent, and wait until it has ended or asks something. If TEXT is -, it is read from\n" +
			"standard input. TEXT can be left out if --file or --data is given. Ctrl-C ends the waiting, and the task\n" +
			"goes on. If a person reviews results, the task is working until the review. " + exitHelp,
		Example: "  picket a2a send builder \"Add a test for the parser.\"\n" +
			"  picket a2a send builder \"Review this.\" --file 'notes.md;type=text/plain' --no-wait",
		Args: cli.CheckArgs(cobra.RangeArgs(1, 2)),
		RunE: onAgent(func(cmd *cobra.Command, a *agent, rest []string) error {
			m, err := messageOf(cmd, rest)
			if err != nil {
				return err
			}
			m.ContextID, _ = cmd.Flags().GetString("context")
			wait, _ := cmd.Flags().GetBool("wait")
			noWait, _ := cmd.Flags().GetBool("no-wait")
			return a.send(cmd, m, wait && !noWait)
		}),
	}
	messageFlags(c)
	c.Flags().String("context", "", "the id of the context, which is a conversation, that the task belongs to")
	c.Flags().Bool("wait", true, "wait until the task has ended or asks something")
	c.Flags().Bool("no-wait", false, "do not wait: print the task at once")
	return term.FormatFlag(c)
}

func newTell() *cobra.Command {
	c := &cobra.Command{
		Use:   "tell AGENT TASK [TEXT]",
		Short: "Answer the question of a task, or send a message to the agent that works on it",
		Long: "Answer the question of a task, or send a message to the agent that works on it. If TEXT is -, it is read\n" +
			"from standard input. TEXT can be left out if --file or --data is given. With --wait it goes on as send\n" +
			"does: until the task has ended or asks something. " + exitHelp,
		Example: "  picket a2a tell builder task_01… \"Use PostgreSQL.\"\n" +
			"  picket a2a tell builder task_01… red --wait --timeout 10m",
		Args: cli.CheckArgs(cobra.RangeArgs(2, 3)),
		RunE: onAgent(func(cmd *cobra.Command, a *agent, rest []string) error {
			m, err := messageOf(cmd, rest[1:])
			if err != nil {
				return err
			}
			if m.TaskID = protocol.TaskID(rest[0]); m.TaskID == "" {
				return picket.Refuse(exit.CodeUsage, "List the tasks: "+a.command("list"), "TASK is empty")
			}
			wait, _ := cmd.Flags().GetBool("wait")
			return a.send(cmd, m, wait)
		}),
	}
	messageFlags(c)
	c.Flags().Bool("wait", false, "wait until the task has ended or asks something")
	return term.FormatFlag(c)
}

func messageFlags(c *cobra.Command) {
	c.Flags().StringArray("file", nil, "send a file, too; PATH;type=TYPE sets its media type")
	c.Flags().String("data", "", "send this JSON, too")
	c.Flags().String("message-id", "", "the id of the message (default: a new one); repeat it to send the same message again")
	c.Flags().Duration("timeout", 0, "stop waiting after this time, and let the task go on; 0 means never")
}

func newStream() *cobra.Command {
	c := onTask("stream", "Follow a task until it has ended, also when the connection is lost",
		func(cmd *cobra.Command, a *agent, id protocol.TaskID) error {
			format, err := term.FormatOf(cmd)
			if err != nil {
				return err
			}
			ctx, stop := waiting(cmd)
			defer stop()
			status, err := a.follow(ctx, cmd, id, false, a.printing(cmd, format))
			if err != nil {
				return err
			}
			return outcome(status.State)
		})
	c.Long = "Follow a task until it has ended, also when the connection is lost. Ctrl-C ends that, and the task goes on.\n" +
		exitHelp
	c.Flags().Duration("timeout", 0, "stop after this time, and let the task go on; 0 means never")
	return term.FormatFlag(c)
}

// messageOf makes the message of a command: its text, its data and its files.
func messageOf(cmd *cobra.Command, text []string) (*protocol.Message, error) {
	var parts protocol.ContentParts
	if len(text) > 0 && text[0] != "" {
		body, err := textOf(cmd, text[0])
		if err != nil {
			return nil, err
		}
		parts = append(parts, protocol.NewTextPart(body))
	}
	if data, _ := cmd.Flags().GetString("data"); data != "" {
		value, err := jsonOf(data)
		if err != nil {
			return nil, err
		}
		parts = append(parts, protocol.NewDataPart(value))
	}
	files, _ := cmd.Flags().GetStringArray("file")
	left := int64(maxSent)
	for _, given := range files {
		p, err := filePart(given, left)
		if err != nil {
			return nil, err
		}
		left -= int64(len(p.Raw()))
		parts = append(parts, p)
	}
	if len(parts) == 0 {
		return nil, picket.Refuse(exit.CodeUsage, "Give a TEXT, --file or --data.", "the message is empty")
	}
	m := protocol.NewMessage(protocol.MessageRoleUser, parts...)
	if id, _ := cmd.Flags().GetString("message-id"); id != "" {
		m.ID = id
	}
	return m, nil
}

func textOf(cmd *cobra.Command, given string) (string, error) {
	if given != "-" {
		return given, nil
	}
	b, err := io.ReadAll(io.LimitReader(cmd.InOrStdin(), maxSent+1))
	switch {
	case err != nil:
		return "", err
	case len(b) > maxSent:
		return "", picket.Refuse(exit.CodeUsage, "Send less.", "the text has more than %d MiB", maxSent>>20)
	case len(b) == 0:
		return "", picket.Refuse(exit.CodeUsage, "Write the text to standard input.", "the message is empty")
	}
	return strings.TrimRight(string(b), "\n"), nil
}

// jsonOf reads JSON. Numbers keep their digits.
func jsonOf(data string) (value any, err error) {
	d := stdjson.NewDecoder(strings.NewReader(data))
	d.UseNumber()
	if err = d.Decode(&value); err == nil {
		if _, err = d.Token(); errors.Is(err, io.EOF) {
			return value, nil
		}
		err = errors.New("more follows the first value")
	}
	return nil, picket.Refuse(exit.CodeUsage, `Give one JSON value, such as '{"a": 1}'.`, "--data is not JSON: %v", err)
}

// filePart reads a file of at most so many bytes. given is PATH or PATH;type=TYPE.
func filePart(given string, most int64) (*protocol.Part, error) {
	path, kind, _ := strings.Cut(given, ";type=")
	f, err := os.Open(path)
	if err != nil {
		return nil, picket.Refuse(exit.CodeUsage, "Give the path of a file that can be read.", "--file: %v", err)
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, most+1))
	switch {
	case err != nil:
		return nil, picket.Refuse(exit.CodeUsage, "Give the path of a file that can be read.", "--file: %v", err)
	case int64(len(b)) > most:
		return nil, picket.Refuse(exit.CodeUsage, "Send less, or put the file where the agent can read it.",
			"the files have more than %d MiB", maxSent>>20)
	}
	if kind == "" {
		if kind = mime.TypeByExtension(filepath.Ext(path)); kind == "" {
			kind = http.DetectContentType(b)
		}
		kind, _, _ = mime.ParseMediaType(kind)
	}
	p := protocol.NewRawPart(b)
	p.Filename, p.MediaType = filepath.Base(path), kind
	return p, nil
}

// send sends a message, and prints what became of it.
func (a *agent) send(cmd *cobra.Command, m *protocol.Message, wait bool) error {
	format, err := term.FormatOf(cmd)
	if err != nil {
		return err
	}
	ctx, stop := waiting(cmd)
	defer stop()
	result, err := a.Send(ctx, m)
	if err != nil {
		return a.unsent(ctx, cmd, m, err)
	}
	w := cmd.OutOrStdout()
	t, isTask := result.(*protocol.Task)
	if !isTask {
		said := result.(*protocol.Message)
		return printAnswer(w, format, said, said.ID, func() { printParts(w, said.Parts) })
	}
	if t.ID == "" {
		return agentclient.NotA2A("the task that the agent answered has no id")
	}
	if wait && !t.Status.State.Terminal() && !agentclient.Interrupted(t.Status.State) {
		notes := &progress{w: cmd.ErrOrStderr()}
		fmt.Fprintln(notes.w, "task "+term.OneLine(string(t.ID)))
		if err := notes.take(t); err != nil {
			return err
		}
		if _, err := a.follow(ctx, cmd, t.ID, true, notes.take); err != nil {
			return err
		}
		if t, err = a.Task(cmd.Context(), t.ID); err != nil {
			return err
		}
	}
	if err := printAnswer(w, format, t, string(t.ID), func() { printTask(w, t) }); err != nil {
		return err
	}
	a.suggest(cmd, t.ID, t.Status.State)
	if !wait {
		return nil
	}
	return outcome(t.Status.State)
}

// waiting is the context of a command that waits: it ends with Ctrl-C, and with --timeout.
func waiting(cmd *cobra.Command) (context.Context, context.CancelFunc) {
	ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGINT, syscall.SIGTERM)
	timeout, _ := cmd.Flags().GetDuration("timeout")
	if timeout <= 0 {
		return ctx, stop
	}
	timed, end := context.WithTimeout(ctx, timeout)
	return timed, func() { end(); stop() }
}

// unsent explains why a message was not sent. The agent may have taken a message whose answer was lost.
func (a *agent) unsent(ctx context.Context, cmd *cobra.Command, m *protocol.Message, err error) error {
	again := "Send it again with --message-id " + term.ShellQuote(m.ID) + ", so that the agent can see that it is the same."
	if ctx.Err() != nil {
		fmt.Fprintln(cmd.ErrOrStderr(), "the agent may have taken the message. "+again)
		return exit.Status(ended(ctx))
	}
	var dial *net.OpError
	notTaken := errors.As(err, &dial) && dial.Op == "dial"
	if e, ok := errors.AsType[*picket.Error](err); ok && errors.Is(err, picket.ErrUnknown) && !notTaken {
		e.Remedy = "The agent may have taken the message. " + again
	}
	return err
}

// ended is the exit code of a command whose waiting has ended.
func ended(ctx context.Context) int {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return exit.Timeout
	}
	return exit.Interrupted
}

// follow follows a task. If ctx, which is that of waiting, ends, it says how to go on.
func (a *agent) follow(ctx context.Context, cmd *cobra.Command, id protocol.TaskID, untilAsked bool,
	event func(protocol.Event) error) (protocol.TaskStatus, error) {
	f := &agentclient.Follower{Agent: a.Agent, ID: id, UntilAsked: untilAsked, Event: event,
		Lost: func(err error) { fmt.Fprintf(cmd.ErrOrStderr(), "%v; going on when the agent answers\n", err) }}
	err := f.Run(ctx)
	if err != nil && ctx.Err() != nil {
		fmt.Fprintln(cmd.ErrOrStderr(), "the task goes on")
		cli.PrintNext(cmd, a.command("stream", string(id)), a.command("cancel", string(id)))
		return f.Status, exit.Status(ended(ctx))
	}
	return f.Status, err
}

// suggest says what a person can do next with a task. An agent inside a run can only follow its subtask.
func (a *agent) suggest(cmd *cobra.Command, task protocol.TaskID, s protocol.TaskState) {
	id := string(task)
	insideRun := strings.HasPrefix(a.Credential.Reveal(), picket.LeaseTokenPrefix)
	switch {
	case insideRun && agentclient.Interrupted(s):
		fmt.Fprintln(cmd.ErrOrStderr(), "a person has to answer before the subtask goes on")
	case insideRun && !s.Terminal():
		cli.PrintNext(cmd, a.command("stream", id))
	case s == protocol.TaskStateInputRequired:
		cli.PrintNext(cmd, a.command("tell", id, "…"))
	case s == protocol.TaskStateAuthRequired:
		fmt.Fprintln(cmd.ErrOrStderr(), "a person at the agent has to approve something before the task goes on")
		cli.PrintNext(cmd, a.command("stream", id))
	case !s.Terminal():
		cli.PrintNext(cmd, a.command("stream", id), a.command("cancel", id))
	}
}

// outcome is the exit code for the state of a task that was waited for.
func outcome(s protocol.TaskState) error {
	switch s {
	case protocol.TaskStateFailed, protocol.TaskStateRejected, protocol.TaskStateCanceled:
		return exit.Status(exit.Error)
	case protocol.TaskStateInputRequired, protocol.TaskStateAuthRequired:
		return exit.Status(exit.Conflict)
	}
	return nil
}
