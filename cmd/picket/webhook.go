package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/spf13/cobra"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/adapter"
)

func newWebhook() *cobra.Command {
	return commandGroup("webhook", "Post events to other systems, such as Slack",
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
		Args:  checkArgs(cobra.ExactArgs(1)),
		Long: "Add a target that events are posted to from now on, one a request, in order, at least once. Without --type it is sent what\n" +
			"people want to hear of. A URL can be a secret, as Slack's are: - reads it from stdin, and it is not shown again.",
		Example: "  picket webhook create https://ops.example.com/picket\n  picket webhook create - --format slack --name '#agents' < slack-url\n" +
			"  picket webhook create https://ops.example.com/audit --type task.approved --type task.rejected",
		RunE: func(cmd *cobra.Command, given []string) error {
			s, err := connect(cmd)
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
			if err := s.post(cmd.Context(), "/api/v1/webhooks", spec, &made, &raw); err != nil {
				return err
			}
			return printNewWebhook(cmd, made, raw)
		},
	}
	c.Flags().String("name", "", "what people call it (default: the host)")
	c.Flags().StringSlice("type", nil,
		"send only events of this type; repeatable (default: what people want to hear of)")
	choices(c, "type", picket.EventTypes...)
	c.Flags().String("format", "standard", "standard, the event as JSON, or slack, a message")
	choices(c, "format", "standard", "slack")
	return formatFlag(c)
}

func printNewWebhook(cmd *cobra.Command, made picket.NewWebhook, raw jsontext.Value) error {
	format, err := formatOf(cmd)
	if err != nil {
		return err
	}
	switch format {
	case "json", "jsonl", "yaml":
		return printValue(cmd.OutOrStdout(), format, raw)
	case "name":
		fmt.Fprintln(cmd.OutOrStdout(), made.WebhookID)
		return nil
	}
	fmt.Fprintln(cmd.OutOrStdout(), made.Secret.Reveal())
	fmt.Fprintln(cmd.ErrOrStderr(), made.WebhookID+": the secret verifies its signatures and is not shown again")
	printNext(cmd, "picket webhook test "+made.WebhookID, "picket webhook delete "+made.WebhookID)
	return nil
}

func webhookListing(cmd *cobra.Command) listing[picket.Webhook] {
	return listing[picket.Webhook]{
		cmd: cmd, member: "webhooks", empty: "no webhooks", name: func(w picket.Webhook) string { return w.WebhookID },
		columns: []column[picket.Webhook]{
			{head: "WEBHOOK", cell: func(w picket.Webhook) string { return w.WebhookID }},
			{head: "NAME", cell: func(w picket.Webhook) string { return w.Name }},
			{head: "STATE", cell: func(w picket.Webhook) string { return string(w.State) }},
			{head: "FORMAT", cell: func(w picket.Webhook) string { return string(w.Format) }, wide: true},
			{head: "TYPES", cell: func(w picket.Webhook) string { return strings.Join(w.Types, ",") }, wide: true},
			{head: "CURSOR", cell: func(w picket.Webhook) string { return w.Cursor }, wide: true},
			{head: "FAILURES", cell: func(w picket.Webhook) string { return strconv.Itoa(w.Failures) }},
			{head: "NEXT TRY", cell: func(w picket.Webhook) string { return w.NextAttemptAt.String() }, dropOrder: 1},
			{head: "URL", cell: func(w picket.Webhook) string { return w.URL }, dropOrder: 2},
			{head: "LAST", cell: lastDeliveryText},
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
	return watchFlag(formatFlag(&cobra.Command{
		Use: "list", Aliases: []string{"ls"}, Short: "List the targets and how they do", Args: checkArgs(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			s, err := connect(cmd)
			if err != nil {
				return err
			}
			return webhookListing(cmd).show(s, webhookTopic, func(ctx context.Context, raw *jsontext.Value) error {
				return s.get(ctx, "/api/v1/webhooks", nil, raw)
			})
		},
	}))
}

// onWebhook is a verb on one target.
func onWebhook(use, short string, act func(cmd *cobra.Command, s *connection, id string) error) *cobra.Command {
	return &cobra.Command{
		Use:               use + " WEBHOOK",
		Short:             short,
		Args:              checkArgs(cobra.ExactArgs(1)),
		ValidArgsFunction: completeFirstID(webhookIDs),
		RunE: func(cmd *cobra.Command, given []string) error {
			s, err := connect(cmd)
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
		func(cmd *cobra.Command, s *connection, id string) error {
			return showOrWatch(cmd, s, webhookTopic, func(ctx context.Context, w io.Writer) error {
				var raw jsontext.Value
				var hook picket.Webhook
				if err := s.get(ctx, "/api/v1/webhooks/"+pathSegment(id), &hook, &raw); err != nil {
					return err
				}
				noteAnswer(w, raw)
				return printWebhook(cmd, w, hook, raw)
			})
		})
	c.Aliases = []string{"get"}
	return watchFlag(formatFlag(c))
}

func printWebhook(cmd *cobra.Command, w io.Writer, hook picket.Webhook, raw jsontext.Value) error {
	format, err := formatOf(cmd)
	if err != nil {
		return err
	}
	switch format {
	case "json", "jsonl", "yaml":
		return printValue(w, format, raw)
	case "name":
		fmt.Fprintln(w, hook.WebhookID)
		return nil
	}
	p := painter(w)
	kinds := strings.Join(hook.Types, ", ")
	if kinds == "" {
		kinds = "what people want to hear of"
	}
	rows := [][]string{{p.dim("webhook"), hook.WebhookID}, {p.dim("name"), oneLine(hook.Name)},
		{p.dim("url"), oneLine(hook.URL)},
		{p.dim("state"), p.state(string(hook.State))}, {p.dim("format"), string(hook.Format)}, {p.dim("types"), kinds},
		{p.dim("cursor"), hook.Cursor}, {p.dim("failures"), strconv.Itoa(hook.Failures)},
		{p.dim("last"), oneLine(lastDeliveryText(hook))}}
	if !hook.NextAttemptAt.IsZero() {
		rows = append(rows, []string{p.dim("next try"), hook.NextAttemptAt.String()})
	}
	printRows(w, append(rows, []string{p.dim("created"), ago(hook.CreatedAt) + " ago by " + hook.CreatedBy}))
	if hook.State != picket.WebhookActive {
		printNext(cmd, "picket webhook revive "+hook.WebhookID)
	}
	return nil
}

func newWebhookDelete() *cobra.Command {
	return onWebhook("delete", "Send a target nothing any more",
		func(cmd *cobra.Command, s *connection, id string) error {
			if err := s.call(cmd.Context(), http.MethodDelete, "/api/v1/webhooks/"+pathSegment(id), nil, nil, nil,
				adapter.WithIdempotencyKey(newIdempotencyKey())); err != nil {
				return err
			}
			fmt.Fprintln(cmd.OutOrStdout(), id+" deleted")
			return nil
		})
}

func newWebhookRevive() *cobra.Command {
	return formatFlag(onWebhook("revive", "Go on with a target that is dead or off, where it stopped",
		func(cmd *cobra.Command, s *connection, id string) error {
			var raw jsontext.Value
			var hook picket.Webhook
			if err := s.post(cmd.Context(), "/api/v1/webhooks/"+pathSegment(id)+"/revive", nil, &hook,
				&raw); err != nil {
				return err
			}
			return printWebhook(cmd, cmd.OutOrStdout(), hook, raw)
		}))
}

func (s *connection) webhookCandidates(ctx context.Context) ([]candidate, error) {
	hooks, err := s.webhooks(ctx)
	var all []candidate
	for _, w := range hooks {
		all = append(all, candidate{w.WebhookID, w.Name + " " + string(w.State)})
	}
	return all, err
}

func (s *connection) webhooks(ctx context.Context) ([]picket.Webhook, error) {
	var list struct {
		Webhooks []picket.Webhook `json:"webhooks"`
	}
	err := s.get(ctx, "/api/v1/webhooks", &list, nil)
	return list.Webhooks, err
}

func webhookIDs(s *connection) candidateLister { return s.webhookCandidates }
