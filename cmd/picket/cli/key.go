package cli

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/spf13/cobra"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/cmd/picket/cli/exit"
	"github.com/picket-dev/picket/cmd/picket/cli/term"
)

// NewKey is `picket key`: the API keys of a namespace.
func NewKey() *cobra.Command {
	return CommandGroup("key", "Make and revoke API keys", newKeyCreate(), newKeyList(), newKeyRevoke())
}

func (s *Connection) Keys(ctx context.Context) ([]picket.APIKey, error) {
	var page struct {
		Keys []picket.APIKey `json:"keys"`
	}
	err := s.Get(ctx, "/api/v1/keys", &page, nil)
	return page.Keys, err
}

func newKeyCreate() *cobra.Command {
	c := &cobra.Command{
		Use: "create NAME", Short: "Make a key; it is shown once", Args: CheckArgs(cobra.ExactArgs(1)),
		Example: "  picket key create worker-1 --scope agent --expires 720h",
		RunE: func(cmd *cobra.Command, given []string) error {
			s, err := Connect(cmd)
			if err != nil {
				return err
			}
			req := picket.KeyRequest{Name: given[0]}
			scopes, _ := cmd.Flags().GetStringSlice("scope")
			for _, scope := range scopes {
				req.Scopes = append(req.Scopes, picket.Scope(scope))
			}
			if expires, _ := cmd.Flags().GetString("expires"); expires != "" {
				if req.ExpiresAt, err = instantFlag("expires", expires, 1); err != nil {
					return err
				}
				if !req.ExpiresAt.Time().After(time.Now()) {
					return exit.Usagef("--expires %s: that time is over, the key could not be used", expires)
				}
			}
			var raw jsontext.Value
			var key picket.NewKey
			// Without an idempotency key: the server keeps no copy of a key to
			// answer it a second time.
			if err := s.call(cmd.Context(), http.MethodPost, "/api/v1/keys", req, &key, &raw); err != nil {
				return err
			}
			return printKey(cmd, key, raw)
		},
	}
	c.Flags().StringSlice("scope", []string{string(picket.ScopeAgent)},
		"what it may do: agent, reviewer, operator, admin")
	term.Choices(c, "scope", "agent", "reviewer", "operator", "admin")
	c.Flags().String("expires", "", "when it ends: a duration from now, or RFC 3339 (default: never)")
	return term.FormatFlag(c)
}

func printKey(cmd *cobra.Command, key picket.NewKey, raw jsontext.Value) error {
	format, err := term.FormatOf(cmd)
	if err != nil {
		return err
	}
	switch format {
	case "json", "jsonl", "yaml":
		return term.PrintValue(cmd.OutOrStdout(), format, raw)
	case "name":
		fmt.Fprintln(cmd.OutOrStdout(), key.KeyID)
		return nil
	}
	fmt.Fprintln(cmd.OutOrStdout(), key.Key.Reveal())
	fmt.Fprintln(cmd.ErrOrStderr(), key.KeyID+": the key is not shown again")
	PrintNext(cmd, "export PICKET_API_KEY=<the key>", "picket key revoke "+key.KeyID)
	return nil
}

func newKeyList() *cobra.Command {
	c := &cobra.Command{
		Use:     "list",
		Aliases: []string{"ls"},
		Short:   "List the keys, never their secrets",
		Args:    CheckArgs(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			s, err := Connect(cmd)
			if err != nil {
				return err
			}
			return Listing[picket.APIKey]{
				Cmd: cmd, Member: "keys", Empty: "no keys", Name: func(k picket.APIKey) string { return k.KeyID },
				Columns: []term.Column[picket.APIKey]{
					{Head: "KEY", Cell: func(k picket.APIKey) string { return k.KeyID }},
					{Head: "NAME", Cell: func(k picket.APIKey) string { return k.Name }},
					{Head: "SCOPES", Cell: func(k picket.APIKey) string { return scopeText(k.Scopes) }},
					{Head: "MADE BY", Cell: func(k picket.APIKey) string { return k.ParentKeyID }},
					{Head: "AGE", Cell: func(k picket.APIKey) string { return term.Ago(k.CreatedAt) }},
					{Head: "EXPIRES", Cell: func(k picket.APIKey) string { return k.ExpiresAt.String() }},
					{Head: "REVOKED", Cell: func(k picket.APIKey) string { return k.RevokedAt.String() }},
				},
			}.show(s, topic{kinds: []string{"key."}}, func(ctx context.Context, raw *jsontext.Value) error {
				return s.Get(ctx, "/api/v1/keys", nil, raw)
			})
		},
	}
	return watchFlag(term.FormatFlag(c))
}

func scopeText(scopes []picket.Scope) string {
	var names []string
	for _, s := range scopes {
		names = append(names, string(s))
	}
	return strings.Join(names, ",")
}

func newKeyRevoke() *cobra.Command {
	c := &cobra.Command{
		Use:               "revoke KEY",
		Short:             "End a key, its waiting requests and the leases of its agents",
		Args:              CheckArgs(cobra.ExactArgs(1)),
		ValidArgsFunction: completeFirstID(keyIDs),
		RunE: func(cmd *cobra.Command, given []string) error {
			s, err := Connect(cmd)
			if err != nil {
				return err
			}
			id, err := s.keyID(cmd.Context(), given[0])
			if err != nil {
				return err
			}
			var how picket.KeyRevocation
			if keep, _ := cmd.Flags().GetBool("keep-leases"); cmd.Flags().Changed("keep-leases") {
				how.KeepLeases = &keep
			}
			var k picket.APIKey
			if err := s.call(cmd.Context(), http.MethodDelete, "/api/v1/keys/"+PathSegment(id), how, &k,
				nil); err != nil {
				return err
			}
			fmt.Fprintln(cmd.OutOrStdout(), revokedText(k))
			if k.Leases == picket.KeyLeasesKept {
				PrintNext(cmd, "picket key revoke "+id+" --keep-leases=false")
			}
			return nil
		},
	}
	c.Flags().Bool("keep-leases", false,
		"keep the leases that the key acquired (default: no for a key with scope agent, else yes)")
	return c
}

// revokedText tells what a revocation did.
func revokedText(k picket.APIKey) string {
	if k.Leases == picket.KeyLeasesKept {
		return k.KeyID + " revoked; the leases that it acquired go on"
	}
	return k.KeyID + " revoked; the leases that it acquired have ended"
}
