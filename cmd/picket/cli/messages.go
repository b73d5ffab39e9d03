package cli

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/spf13/cobra"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/client"
	"github.com/picket-dev/picket/cmd/picket/cli/exit"
	"github.com/picket-dev/picket/cmd/picket/cli/term"
)

// Messages to tasks and to agents: what both commands share.

// inbox is a task or an agent, to which messages are sent.
type inbox struct {
	kind     string // task or agent
	receiver string // for people
	example  string // an id
	complete func(*Connection, context.Context, string) (string, error)
	offered  func(*Connection) candidateLister
	tell     func(*Connection) func(context.Context, string, picket.MessageRequest,
		...client.Option) (picket.MessageSent, error)
	messages func(*Connection) func(context.Context, string, picket.MessageQuery,
		...client.Option) (picket.MessagePage, error)
	events func(id string) topic
}

var taskInbox = inbox{"task", "the agent that works on a task", "K7QD", (*Connection).taskID, taskIDs,
	func(s *Connection) func(context.Context, string, picket.MessageRequest,
		...client.Option) (picket.MessageSent, error) {
		return s.Tasks.Tell
	},
	func(s *Connection) func(context.Context, string, picket.MessageQuery,
		...client.Option) (picket.MessagePage, error) {
		return s.Tasks.Messages
	},
	func(id string) topic { return topic{task: id} },
}

var agentInbox = inbox{"agent", "an agent", "coder-1", (*Connection).agentID, agentIDs,
	func(s *Connection) func(context.Context, string, picket.MessageRequest,
		...client.Option) (picket.MessageSent, error) {
		return s.Agents.Tell
	},
	func(s *Connection) func(context.Context, string, picket.MessageQuery,
		...client.Option) (picket.MessagePage, error) {
		return s.Agents.Messages
	},
	func(string) topic { return topic{kinds: []string{"message."}, polled: true} },
}

func (b inbox) newTell() *cobra.Command {
	c := &cobra.Command{
		Use:   "tell " + strings.ToUpper(b.kind) + " MESSAGE",
		Short: "Send a message to " + b.receiver,
		Long: "Send a message. It waits until the agent reads it, with the tool read_messages; a running agent learns\n" +
			"of it with its next tool call. It changes nothing else. MESSAGE is - for standard input.",
		Example:           "  picket " + b.kind + " tell " + b.example + ` "Use the staging database."`,
		Args:              CheckArgs(cobra.ExactArgs(2)),
		ValidArgsFunction: completeFirstID(b.offered),
		RunE: connected(func(cmd *cobra.Command, s *Connection, given []string) error {
			m, err := messageOf(cmd, given[1])
			if err != nil {
				return err
			}
			id, err := b.complete(s, cmd.Context(), given[0])
			if err != nil {
				return err
			}
			var raw jsontext.Value
			sent, err := b.tell(s)(cmd.Context(), id, m, client.WithBody(&raw))
			if err != nil {
				return err
			}
			w := cmd.OutOrStdout()
			return printAnswer(cmd, w, raw, sent.MessageID, func() error {
				fmt.Fprintln(w, sent.MessageID, "sent to", id)
				PrintNext(cmd, "picket "+b.kind+" messages "+id)
				return nil
			})
		}),
	}
	f := c.Flags()
	f.String("type", "", "a word that tells the agent what kind of message it is")
	f.String("data", "", "JSON that goes with the message")
	f.String("reply-to", "", "the id of the message that it answers")
	return term.FormatFlag(c)
}

// messageOf is the message of the flags. The client sends it with an idempotency key, so a request that
// is repeated is the same message.
func messageOf(cmd *cobra.Command, body string) (m picket.MessageRequest, err error) {
	if body == "-" {
		text, err := io.ReadAll(io.LimitReader(cmd.InOrStdin(), picket.MaxMessage+1))
		if err != nil {
			return m, fmt.Errorf("read the message from standard input: %w", err)
		}
		body = strings.TrimRight(string(text), "\n")
	}
	m = picket.MessageRequest{Body: body}
	f := cmd.Flags()
	m.Type, _ = f.GetString("type")
	m.ReplyTo, _ = f.GetString("reply-to")
	if data, _ := f.GetString("data"); data != "" {
		if m.Data = picket.RawJSON(data); !jsontext.Value(m.Data).IsValid() {
			return m, exit.Usagef("--data is not JSON: %s", term.Clip(data, 60))
		}
	}
	return m, m.Check()
}

func (b inbox) newMessages() *cobra.Command {
	c := onOne("messages "+strings.ToUpper(b.kind), map[string]string{
		"task":  "Show the messages from and to a task",
		"agent": "Show the messages from and to an agent",
	}[b.kind], b.complete, b.offered, func(cmd *cobra.Command, s *Connection, id string) error {
		if all, _ := cmd.Flags().GetBool("all"); all {
			return b.showAll(cmd, s, id)
		}
		var q picket.MessageQuery
		q.Limit, _ = cmd.Flags().GetInt("limit")
		q.Before, _ = cmd.Flags().GetInt64("before")
		read := func(ctx context.Context, id string, opts ...client.Option) (picket.MessagePage, error) {
			return b.messages(s)(ctx, id, q, opts...)
		}
		return showOne(cmd, s, b.events(id), id, read,
			func(_ context.Context, w io.Writer, page picket.MessagePage, raw jsontext.Value) error {
				return printAnswer(cmd, w, raw, "", func() error {
					b.printConversation(cmd, w, id, page)
					return nil
				})
			})
	})
	c.Flags().Int("limit", 50, "at most this many, 1 to 100")
	c.Flags().Int64("before", 0, "only messages before this cursor, which the page before names")
	c.Flags().Bool("all", false, "the whole conversation; with -o jsonl one message on each line")
	c.MarkFlagsMutuallyExclusive("all", "limit")
	c.MarkFlagsMutuallyExclusive("all", "before")
	return watchFlag(term.FormatFlag(c))
}

// showAll shows a whole conversation.
func (b inbox) showAll(cmd *cobra.Command, s *Connection, id string) error {
	format, err := term.FormatOf(cmd)
	if err != nil {
		return err
	}
	return showOrWatch(cmd, s, b.events(id), func(ctx context.Context, w io.Writer) error {
		all, each, err := b.readAll(ctx, s, id)
		if err != nil {
			return err
		}
		raw, err := json.Marshal(struct {
			Messages []jsontext.Value `json:"messages"`
			Unread   int              `json:"unread"`
		}{each, all.Unread})
		if err != nil {
			return err
		}
		term.NoteAnswer(w, raw)
		if format != "jsonl" {
			return printAnswer(cmd, w, raw, "", func() error {
				b.printConversation(cmd, w, id, all)
				return nil
			})
		}
		for _, message := range each {
			if err := term.PrintValue(w, format, message); err != nil {
				return err
			}
		}
		return nil
	})
}

// readAll reads a conversation from its newest page to its oldest. each is the messages as the
// server wrote them. Both are in the order in which the messages were sent.
func (b inbox) readAll(ctx context.Context, s *Connection, id string) (all picket.MessagePage, each []jsontext.Value,
	err error) {
	each = []jsontext.Value{}
	for q := (picket.MessageQuery{Limit: 100}); ; {
		var raw jsontext.Value
		page, err := b.messages(s)(ctx, id, q, client.WithBody(&raw))
		if err != nil {
			return all, nil, err
		}
		var members struct {
			Messages []jsontext.Value `json:"messages"`
		}
		if err := json.Unmarshal(raw, &members); err != nil {
			return all, nil, err
		}
		if q.Before == 0 {
			all.Unread = page.Unread
		}
		all.Messages = slices.Concat(page.Messages, all.Messages)
		each = slices.Concat(members.Messages, each)
		if q.Before = page.Before; q.Before == 0 {
			return all, each, nil
		}
	}
}

// printConversation prints messages as a person reads a conversation, oldest first.
func (b inbox) printConversation(cmd *cobra.Command, w io.Writer, id string, page picket.MessagePage) {
	p := term.Painter(w)
	if page.Before > 0 {
		fmt.Fprintln(w, p.Dim(fmt.Sprintf("older messages: picket %s messages %s --before %d", b.kind, id, page.Before)))
	}
	if len(page.Messages) == 0 {
		fmt.Fprintln(w, "no messages")
		return
	}
	for _, m := range page.Messages {
		about := senderText(m.From) + " to " + term.OneLine(receiverText(m, id)) + ", " + term.Ago(m.SentAt) + " ago"
		switch {
		case m.ReadAt != nil:
			about += ", read"
		case m.Incoming(m.To):
			about += ", not read yet"
		}
		fmt.Fprintln(w, p.Bold(about))
		if m.Body != "" {
			term.Indented(w, m.Body)
		}
		if len(m.Data) > 0 {
			fmt.Fprintln(w, p.Dim("  data "+term.Clip(string(m.Data), 200)))
		}
	}
}

func senderText(s picket.MessageSender) string {
	return s.Kind + " " + term.OneLine(cmp.Or(s.Name, s.ID))
}

// receiverText names the receiver of a message in the conversation of a task or an agent.
func receiverText(m picket.Message, of string) string {
	switch {
	case !m.Incoming(m.To):
		return "the people who follow"
	case m.To == of:
		return "this " + kindOf(of)
	}
	return m.To
}

func kindOf(id string) string {
	if strings.HasPrefix(id, "task_") {
		return "task"
	}
	return "agent"
}
