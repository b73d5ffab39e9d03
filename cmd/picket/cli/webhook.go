package cli

import (
	"context"
	"fmt"
	"io"
	"net/http"
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
	return CommandGroup("notify", "Try whether notices reach people", newNotifyTest())
}

func newNotifyTest() *cobra.Command {
	c := &cobra.Command{
		Use:   "test",
		Short: "Post a test notice to every active webhook and say which took it",
		Args:  CheckArgs(cobra.NoArgs),
		Long:  "Post a test notice to every active webhook and say which took it. Exits 1 when one did not, or when there is none.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			s, err := Connect(cmd)
			if err != nil {
				return err
			}
			hooks, err := s.webhooks(cmd.Context())
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
		},
	}
	return term.FormatFlag(c)
}

func newWebhookTest() *cobra.Command {
	return term.FormatFlag(onWebhook("test", "Post a test notice to a target; exits 1 when it is not taken",
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
		var t picket.WebhookTest
		if err := s.Post(cmd.Context(), "/api/v1/webhooks/"+PathSegment(id)+"/test", nil, &t, &raw); err != nil {
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
		Long: "Add a target that events are posted to from now on, one a request, in order, at least once. Without --type it is sent what\n" +
			"people want to hear of. A URL can be a secret, as Slack's are: - reads it from stdin, and it is not shown again.",
		Example: "  picket webhook create https://ops.example.com/picket\n  picket webhook create - --format slack --name '#agents' < slack-url\n" +
			"  picket webhook create https://ops.example.com/audit --type task.approved --type task.rejected",
		RunE: func(cmd *cobra.Command, given []string) error {
			s, err := Connect(cmd)
			if err != nil {
				return err
			}
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
			var made picket.NewWebhook
			if err := s.Post(cmd.Context(), "/api/v1/webhooks", spec, &made, &raw); err != nil {
				return err
			}
			return printNewWebhook(cmd, made, raw)
		},
	}
	c.Flags().String("name", "", "what people call it (default: the host)")
	c.Flags().StringSlice("type", nil,
		"send only events of this type; repeatable (default: what people want to hear of)")
	term.Choices(c, "type", picket.EventTypes...)
	c.Flags().String("format", "standard", "standard, the event as JSON, or slack, a message")
	term.Choices(c, "format", "standard", "slack")
	return term.FormatFlag(c)
}

func printNewWebhook(cmd *cobra.Command, made picket.NewWebhook, raw jsontext.Value) error {
	format, err := term.FormatOf(cmd)
	if err != nil {
		return err
	}
	switch format {
	case "json", "jsonl", "yaml":
		return term.PrintValue(cmd.OutOrStdout(), format, raw)
	case "name":
		fmt.Fprintln(cmd.OutOrStdout(), made.WebhookID)
		return nil
	}
	fmt.Fprintln(cmd.OutOrStdout(), made.Secret.Reveal())
	fmt.Fprintln(cmd.ErrOrStderr(), made.WebhookID+": the secret verifies its signatures and is not shown again")
	PrintNext(cmd, "picket webhook test "+made.WebhookID, "picket webhook delete "+made.WebhookID)
	return nil
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
	return watchFlag(term.FormatFlag(&cobra.Command{
		Use: "list", Aliases: []string{"ls"}, Short: "List the targets and how they do", Args: CheckArgs(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			s, err := Connect(cmd)
			if err != nil {
				return err
			}
			return webhookListing(cmd).show(s, webhookTopic, func(ctx context.Context, raw *jsontext.Value) error {
				return s.Get(ctx, "/api/v1/webhooks", nil, raw)
			})
		},
	}))
}

// onWebhook is a verb on one target.
func onWebhook(use, short string, act func(cmd *cobra.Command, s *Connection, id string) error) *cobra.Command {
	return &cobra.Command{
		Use:               use + " WEBHOOK",
		Short:             short,
		Args:              CheckArgs(cobra.ExactArgs(1)),
		ValidArgsFunction: completeFirstID(webhookIDs),
		RunE: func(cmd *cobra.Command, given []string) error {
			s, err := Connect(cmd)
			if err != nil {
				return err
			}
			id, err := resolveID(cmd.Context(), "webhook", given[0], s.webhookCandidates)
			if err != nil {
				return err
			}
			return act(cmd, s, id)
		},
	}
}

func newWebhookShow() *cobra.Command {
	c := onWebhook("show", "Show a target: what it is sent and how it does",
		func(cmd *cobra.Command, s *Connection, id string) error {
			return showOrWatch(cmd, s, webhookTopic, func(ctx context.Context, w io.Writer) error {
				var raw jsontext.Value
				var hook picket.Webhook
				if err := s.Get(ctx, "/api/v1/webhooks/"+PathSegment(id), &hook, &raw); err != nil {
					return err
				}
				term.NoteAnswer(w, raw)
				return printWebhook(cmd, w, hook, raw)
			})
		})
	c.Aliases = []string{"get"}
	return watchFlag(term.FormatFlag(c))
}

func printWebhook(cmd *cobra.Command, w io.Writer, hook picket.Webhook, raw jsontext.Value) error {
	format, err := term.FormatOf(cmd)
	if err != nil {
		return err
	}
	switch format {
	case "json", "jsonl", "yaml":
		return term.PrintValue(w, format, raw)
	case "name":
		fmt.Fprintln(w, hook.WebhookID)
		return nil
	}
	p := term.Painter(w)
	kinds := strings.Join(hook.Types, ", ")
	if kinds == "" {
		kinds = "what people want to hear of"
	}
	rows := [][]string{{p.Dim("webhook"), hook.WebhookID}, {p.Dim("name"), term.OneLine(hook.Name)},
		{p.Dim("url"), term.OneLine(hook.URL)},
		{p.Dim("state"), p.State(string(hook.State))}, {p.Dim("format"), string(hook.Format)}, {p.Dim("types"), kinds},
		{p.Dim("cursor"), hook.Cursor}, {p.Dim("failures"), strconv.Itoa(hook.Failures)},
		{p.Dim("last"), term.OneLine(lastDeliveryText(hook))}}
	if !hook.NextAttemptAt.IsZero() {
		rows = append(rows, []string{p.Dim("next try"), hook.NextAttemptAt.String()})
	}
	term.PrintRows(w, append(rows, []string{p.Dim("created"), term.Ago(hook.CreatedAt) + " ago by " + hook.CreatedBy}))
	if hook.State != picket.WebhookActive {
		PrintNext(cmd, "picket webhook revive "+hook.WebhookID)
	}
	return nil
}

func newWebhookDelete() *cobra.Command {
	return onWebhook("delete", "Send a target nothing any more",
		func(cmd *cobra.Command, s *Connection, id string) error {
			if err := s.call(cmd.Context(), http.MethodDelete, "/api/v1/webhooks/"+PathSegment(id), nil, nil, nil,
				client.WithIdempotencyKey(newIdempotencyKey())); err != nil {
				return err
			}
			fmt.Fprintln(cmd.OutOrStdout(), id+" deleted")
			return nil
		})
}

func newWebhookRevive() *cobra.Command {
	return term.FormatFlag(onWebhook("revive", "Go on with a target that is dead or off, where it stopped",
		func(cmd *cobra.Command, s *Connection, id string) error {
			var raw jsontext.Value
			var hook picket.Webhook
			if err := s.Post(cmd.Context(), "/api/v1/webhooks/"+PathSegment(id)+"/revive", nil, &hook,
				&raw); err != nil {
				return err
			}
			return printWebhook(cmd, cmd.OutOrStdout(), hook, raw)
		}))
}

func (s *Connection) webhookCandidates(ctx context.Context) ([]candidate, error) {
	hooks, err := s.webhooks(ctx)
	var all []candidate
	for _, w := range hooks {
		all = append(all, candidate{w.WebhookID, w.Name + " " + string(w.State)})
	}
	return all, err
}

func (s *Connection) webhooks(ctx context.Context) ([]picket.Webhook, error) {
	var list struct {
		Webhooks []picket.Webhook `json:"webhooks"`
	}
	err := s.Get(ctx, "/api/v1/webhooks", &list, nil)
	return list.Webhooks, err
}

func webhookIDs(s *Connection) candidateLister { return s.webhookCandidates }
