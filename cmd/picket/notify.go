package main

import (
	"strconv"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/spf13/cobra"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/cmd/picket/cli/exit"
	"github.com/picket-dev/picket/cmd/picket/cli/term"
)

func newNotify() *cobra.Command {
	return commandGroup("notify", "Try whether notices reach people", newNotifyTest())
}

func newNotifyTest() *cobra.Command {
	c := &cobra.Command{
		Use:   "test",
		Short: "Post a test notice to every active webhook and say which took it",
		Args:  checkArgs(cobra.NoArgs),
		Long:  "Post a test notice to every active webhook and say which took it. Exits 1 when one did not, or when there is none.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			s, err := connect(cmd)
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
		func(cmd *cobra.Command, s *connection, id string) error {
			return testWebhooks(cmd, s, []string{id})
		}))
}

// testWebhooks posts a test notice to each, one after the other.
func testWebhooks(cmd *cobra.Command, s *connection, ids []string) error {
	format, err := term.FormatOf(cmd)
	if err != nil {
		return err
	}
	tried, taken := []jsontext.Value{}, len(ids) > 0
	for _, id := range ids {
		var raw jsontext.Value
		var t picket.WebhookTest
		if err := s.post(cmd.Context(), "/api/v1/webhooks/"+pathSegment(id)+"/test", nil, &t, &raw); err != nil {
			return err
		}
		tried = append(tried, raw)
		taken = taken && t.Delivered
	}
	list, err := json.Marshal(map[string][]jsontext.Value{"webhooks": tried})
	if err != nil {
		return err
	}
	if err := webhookTestListing(cmd).print(cmd.OutOrStdout(), format, list); err != nil {
		return err
	}
	if len(ids) == 0 {
		printNext(cmd, "picket webhook create URL")
	}
	if !taken {
		return exit.Status(exit.Error)
	}
	return nil
}

func webhookTestListing(cmd *cobra.Command) listing[picket.WebhookTest] {
	return listing[picket.WebhookTest]{
		cmd:    cmd,
		member: "webhooks",
		empty:  "there is no active webhook",
		name:   func(t picket.WebhookTest) string { return t.WebhookID },
		columns: []term.Column[picket.WebhookTest]{
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
