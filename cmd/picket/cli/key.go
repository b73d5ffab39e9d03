package cli

import (
	"fmt"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/spf13/cobra"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/client"
	"github.com/picket-dev/picket/cmd/picket/cli/exit"
	"github.com/picket-dev/picket/cmd/picket/cli/term"
)

// NewKey is `picket key`: the API keys of a namespace.
func NewKey() *cobra.Command {
	return CommandGroup("key", "Make and revoke API keys", newKeyCreate(), newKeyList(), newKeyRevoke())
}

func newKeyCreate() *cobra.Command {
	c := &cobra.Command{
		Use: "create NAME", Short: "Make a key; it is shown once", Args: CheckArgs(cobra.ExactArgs(1)),
		Example: "  picket key create worker-1 --scope agent --expires 720h",
		RunE: connected(func(cmd *cobra.Command, s *Connection, given []string) (err error) {
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
			key, err := s.Keys.Create(cmd.Context(), req, client.WithBody(&raw))
			if err != nil {
				return err
			}
			return printAnswer(cmd, cmd.OutOrStdout(), raw, key.KeyID, func() error {
				fmt.Fprintln(cmd.OutOrStdout(), key.Key.Reveal())
				fmt.Fprintln(cmd.ErrOrStderr(), key.KeyID+": the key is not shown again")
				PrintNext(cmd, "export PICKET_API_KEY=<the key>", "picket key revoke "+key.KeyID)
				return nil
			})
		}),
	}
	c.Flags().StringSlice("scope", []string{string(picket.ScopeAgent)},
		"what it may do: agent, reviewer, operator, admin")
	term.Choices(c, "scope", "agent", "reviewer", "operator", "admin")
	c.Flags().String("expires", "", "when it ends: a duration from now, or RFC 3339 (default: never)")
	return term.FormatFlag(c)
}

func newKeyList() *cobra.Command {
	return listCommand(&cobra.Command{Short: "List the keys, never their secrets"},
		func(cmd *cobra.Command, s *Connection) error {
			return Listing[picket.APIKey]{
				Cmd: cmd, Member: "keys", Empty: "no keys", Name: func(k picket.APIKey) string { return k.KeyID },
				Columns: []term.Column[picket.APIKey]{
					{Head: "KEY", Cell: func(k picket.APIKey) string { return k.KeyID }},
					{Head: "NAME", Cell: func(k picket.APIKey) string { return k.Name }},
					{Head: "SCOPES", Cell: scopeText},
					{Head: "MADE BY", Cell: func(k picket.APIKey) string { return k.ParentKeyID }},
					{Head: "AGE", Cell: func(k picket.APIKey) string { return term.Ago(k.CreatedAt) }},
					{Head: "EXPIRES", Cell: func(k picket.APIKey) string { return k.ExpiresAt.String() }},
					{Head: "REVOKED", Cell: func(k picket.APIKey) string { return k.RevokedAt.String() }},
				},
			}.show(s, topic{kinds: []string{"key."}}, reading(s.Keys.List))
		})
}

func scopeText(k picket.APIKey) string { return strings.Join(term.Texts(k.Scopes), ",") }

func newKeyRevoke() *cobra.Command {
	c := onOne("revoke KEY", "Revoke a key; its waiting requests and its agents' leases end", (*Connection).keyID,
		keyIDs, func(cmd *cobra.Command, s *Connection, id string) error {
			var how picket.KeyRevocation
			if keep, _ := cmd.Flags().GetBool("keep-leases"); cmd.Flags().Changed("keep-leases") {
				how.KeepLeases = &keep
			}
			k, err := s.Keys.Revoke(cmd.Context(), id, how)
			if err != nil {
				return err
			}
			fmt.Fprintln(cmd.OutOrStdout(), revokedText(k))
			if k.Leases == picket.KeyLeasesKept {
				PrintNext(cmd, "picket key revoke "+id+" --keep-leases=false")
			}
			return nil
		})
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
