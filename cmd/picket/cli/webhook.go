package cli

import (
	"cmp"
	"context"
	"fmt"
	"io"
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

// NewNotify is `picket notify`: a message about events to people.
func NewNotify() *cobra.Command {
	return CommandGroup("notify", "Test whether notices reach people", newNotifyTest())
}

func newNotifyTest() *cobra.Command {
	c := &cobra.Command{
		Use:   "test",
		Short: "Post a test notice to every active webhook, and print which accepted it",
		Args:  CheckArgs(cobra.NoArgs),
		Long: "Post a test notice to every active webhook, and print which of them accepted it. Exits with 1 if\n" +
			"one did not, or if no webhook is active.",
		RunE: connected(func(cmd *cobra.Command, s *Connection, _ []string) error {
			hooks, err := s.Webhooks.List(cmd.Context())
			if err != nil {
				return err
			}
			var ids []string
			for _, w := range hooks {
				if w.State == picket.WebhookActive {
					ids = append(ids, w.WebhookID)
				}
			}
			return testWebhooks(cmd, s, ids)
		}),
	}
	return term.FormatFlag(c)
}

func newWebhookTest() *cobra.Command {
	return term.FormatFlag(onWebhook("test", "Post a test notice to a target; exits with 1 if it is not accepted",
		func(cmd *cobra.Command, s *Connection, id string) error {
			return testWebhooks(cmd, s, []string{id})
		}))
}

// testWebhooks posts a test notice to each, one after the other.
func testWebhooks(cmd *cobra.Command, s *Connection, ids []string) error {
	format, err := term.FormatOf(cmd)
	if err != nil {
		return err
	}
	tried, taken := []jsontext.Value{}, len(ids) > 0
	for _, id := range ids {
		var raw jsontext.Value
		t, err := s.Webhooks.Test(cmd.Context(), id, client.WithBody(&raw))
		if err != nil {
			return err
		}
		tried = append(tried, raw)
		taken = taken && t.Delivered
	}
	list, err := json.Marshal(map[string][]jsontext.Value{"webhooks": tried})
	if err != nil {
		return err
	}
	if err := webhookTestListing(cmd).Print(cmd.OutOrStdout(), format, list); err != nil {
		return err
	}
	if len(ids) == 0 {
		PrintNext(cmd, "picket webhook create URL")
	}
	if !taken {
		return exit.Status(exit.Error)
	}
	return nil
}

func webhookTestListing(cmd *cobra.Command) Listing[picket.WebhookTest] {
	return Listing[picket.WebhookTest]{
		Cmd:    cmd,
		Member: "webhooks",
		Empty:  "there is no active webhook",
		Name:   func(t picket.WebhookTest) string { return t.WebhookID },
		Columns: []term.Column[picket.WebhookTest]{
			{Head: "WEBHOOK", Cell: func(t picket.WebhookTest) string { return t.WebhookID }},
			{Head: "NAME", Cell: func(t picket.WebhookTest) string { return t.Name }},
			{
				Head: "TAKEN",
				Cell: func(t picket.WebhookTest) string {
					return map[bool]string{true: "yes", false: "no"}[t.Delivered]
				},
			},
			{Head: "ANSWER", Cell: func(t picket.WebhookTest) string {
				if t.Error != "" {
					return t.Error
				}
				return "HTTP " + strconv.Itoa(t.Status)
			}},
		},
	}
}

// NewWebhook is `picket webhook`: the receivers of events.
func NewWebhook() *cobra.Command {
	return CommandGroup("webhook", "Post events to other systems, such as Slack",
		newWebhookCreate(), newWebhookList(), newWebhookShow(), newWebhookDelete(), newWebhookRevive(),
		newWebhookTest())
}

// webhookTopic is what can change a webhook that is watched. What it has taken
// writes no event.
var webhookTopic = topic{kinds: []string{"webhook."}}

func newWebhookCreate() *cobra.Command {
	c := &cobra.Command{
		Use:   "create URL",
		Short: "Add a target; the secret of its signatures is shown once",
		Args:  CheckArgs(cobra.ExactArgs(1)),
		Long: "Add a target. From now on events are posted to it in order, each at least once and in a request\n" +
			"of its own. Without --type it gets the notices that matter to people. If the URL is a secret, as\n" +
			"Slack's URLs are, use - to read it from standard input. It is not shown again.",
		Example: "  picket webhook create https://ops.example.com/picket\n  picket webhook create - --format slack --name '#agents' < slack-url\n" +
			"  picket webhook create https://ops.example.com/audit --type task.approved --type task.rejected",
		RunE: connected(func(cmd *cobra.Command, s *Connection, given []string) error {
			target := given[0]
			if target == "-" {
				text, err := io.ReadAll(io.LimitReader(cmd.InOrStdin(), picket.MaxPayload))
				if err != nil {
					return err
				}
				target = strings.TrimSpace(string(text))
			}
			spec := picket.WebhookSpec{URL: picket.Secret(target)}
			spec.Name, _ = cmd.Flags().GetString("name")
			spec.Types, _ = cmd.Flags().GetStringSlice("type")
			format, _ := cmd.Flags().GetString("format")
			spec.Format = picket.WebhookFormat(format)
			var raw jsontext.Value
			made, err := s.Webhooks.Create(cmd.Context(), spec, client.WithBody(&raw))
			if err != nil {
				return err
			}
			return printAnswer(cmd, cmd.OutOrStdout(), raw, made.WebhookID, func() error {
				fmt.Fprintln(cmd.OutOrStdout(), made.Secret.Reveal())
				fmt.Fprintln(cmd.ErrOrStderr(),
					made.WebhookID+": the secret verifies its signatures and is not shown again")
				PrintNext(cmd, "picket webhook test "+made.WebhookID, "picket webhook delete "+made.WebhookID)
				return nil
			})
		}),
	}
	c.Flags().String("name", "", "what people call it (default: the host)")
	c.Flags().StringSlice("type", nil,
		"send only events of this type; repeatable (default: the notices that matter to people)")
	term.Choices(c, "type", picket.EventTypes...)
	c.Flags().String("format", "standard", "standard, the event as JSON, or slack, a message")
	term.Choices(c, "format", "standard", "slack")
	return term.FormatFlag(c)
}

func webhookListing(cmd *cobra.Command) Listing[picket.Webhook] {
	return Listing[picket.Webhook]{
		Cmd: cmd, Member: "webhooks", Empty: "no webhooks", Name: func(w picket.Webhook) string { return w.WebhookID },
		Columns: []term.Column[picket.Webhook]{
			{Head: "WEBHOOK", Cell: func(w picket.Webhook) string { return w.WebhookID }},
			{Head: "NAME", Cell: func(w picket.Webhook) string { return w.Name }},
			{Head: "STATE", Cell: func(w picket.Webhook) string { return string(w.State) }},
			{Head: "FORMAT", Cell: func(w picket.Webhook) string { return string(w.Format) }, Wide: true},
			{Head: "TYPES", Cell: func(w picket.Webhook) string { return strings.Join(w.Types, ",") }, Wide: true},
			{Head: "CURSOR", Cell: func(w picket.Webhook) string { return w.Cursor }, Wide: true},
			{Head: "FAILURES", Cell: func(w picket.Webhook) string { return strconv.Itoa(w.Failures) }},
			{Head: "NEXT TRY", Cell: func(w picket.Webhook) string { return w.NextAttemptAt.String() }, DropOrder: 1},
			{Head: "URL", Cell: func(w picket.Webhook) string { return w.URL }, DropOrder: 2},
			{Head: "LAST", Cell: lastDeliveryText},
		},
	}
}

// lastDeliveryText is what the target said last.
func lastDeliveryText(w picket.Webhook) string {
	switch {
	case w.LastError != "":
		return w.LastError
	case w.LastStatus > 0:
		return "HTTP " + strconv.Itoa(w.LastStatus)
	}
	return "-"
}

func newWebhookList() *cobra.Command {
	return listCommand(&cobra.Command{Short: "List the targets and whether events reach them"},
		func(cmd *cobra.Command, s *Connection) error {
			return webhookListing(cmd).show(s, webhookTopic, reading(s.Webhooks.List))
		})
}

// onWebhook is a verb on one target.
func onWebhook(use, short string, act func(cmd *cobra.Command, s *Connection, id string) error) *cobra.Command {
	return onOne(use+" WEBHOOK", short, (*Connection).webhookID, webhookIDs, act)
}

func newWebhookShow() *cobra.Command {
	c := onWebhook("show", "Show a target: its events and whether they reach it",
		func(cmd *cobra.Command, s *Connection, id string) error {
			return showOne(cmd, s, webhookTopic, id, s.Webhooks.Get,
				func(_ context.Context, w io.Writer, hook picket.Webhook, raw jsontext.Value) error {
					return printWebhook(cmd, w, hook, raw)
				})
		})
	c.Aliases = []string{"get"}
	return watchFlag(term.FormatFlag(c))
}

func printWebhook(cmd *cobra.Command, w io.Writer, hook picket.Webhook, raw jsontext.Value) error {
	return printAnswer(cmd, w, raw, hook.WebhookID, func() error {
		d := term.NewDescription(w)
		d.Row("webhook", hook.WebhookID)
		d.Row("name", term.OneLine(hook.Name))
		d.Row("url", term.OneLine(hook.URL))
		d.Row("state", d.State(string(hook.State)))
		d.Row("format", string(hook.Format))
		d.Row("types", cmp.Or(strings.Join(hook.Types, ", "), "the notices that matter to people"))
		d.Row("cursor", hook.Cursor)
		d.Row("failures", strconv.Itoa(hook.Failures))
		d.Row("last", term.OneLine(lastDeliveryText(hook)))
		d.Add("next try", hook.NextAttemptAt.String())
		d.Row("created", term.Ago(hook.CreatedAt)+" ago by "+hook.CreatedBy)
		d.Print()
		if hook.State != picket.WebhookActive {
			PrintNext(cmd, "picket webhook revive "+hook.WebhookID)
		}
		return nil
	})
}

func newWebhookDelete() *cobra.Command {
	return onWebhook("delete", "Delete a target; nothing more is sent to it",
		func(cmd *cobra.Command, s *Connection, id string) error {
			if err := s.Webhooks.Delete(cmd.Context(), id); err != nil {
				return err
			}
			fmt.Fprintln(cmd.OutOrStdout(), id+" deleted")
			return nil
		})
}

func newWebhookRevive() *cobra.Command {
	return term.FormatFlag(onWebhook("revive", "Start a target again that is dead or off; it continues where it stopped",
		func(cmd *cobra.Command, s *Connection, id string) error {
			var raw jsontext.Value
			hook, err := s.Webhooks.Revive(cmd.Context(), id, client.WithBody(&raw))
			if err != nil {
				return err
			}
			return printWebhook(cmd, cmd.OutOrStdout(), hook, raw)
		}))
}
