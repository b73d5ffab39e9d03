package cli

import (
	"fmt"
	"slices"
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
		Example: "  picket key create worker-1 --scope agent --expires 720h\n" +
			"  picket key create partner --scope client --role builder --role reviewer --max-open 20",
		RunE: connected(func(cmd *cobra.Command, s *Connection, given []string) (err error) {
			req := picket.KeyRequest{Name: given[0]}
			scopes, _ := cmd.Flags().GetStringSlice("scope")
			for _, scope := range scopes {
				req.Scopes = append(req.Scopes, picket.Scope(scope))
			}
			if req.Client, err = clientFlags(cmd, req.Scopes); err != nil {
				return err
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
	c.Flags().StringSlice("scope", []string{string(picket.ScopeAgent)}, "what it may do: "+picket.ScopeNames())
	term.Choices(c, "scope", term.Texts(picket.Scopes)...)
	c.Flags().StringSlice("role", nil, "with --scope client: a role to which it may submit tasks, or * for all roles")
	c.Flags().Int("max-open", picket.DefaultClientOpen, "with --scope client: how many of its tasks may be open at once")
	c.Flags().Int("rate-per-minute", 0,
		"with --scope client: how many requests a minute it may send (default: the rate of all keys)")
	c.Flags().String("expires", "", "when it ends: a duration from now, or RFC 3339 (default: never)")
	return term.FormatFlag(c)
}

// clientFlags reads the limits of a client key. They are nil for any other key, which must
// not have these flags.
func clientFlags(cmd *cobra.Command, scopes []picket.Scope) (*picket.ClientLimits, error) {
	if !slices.Contains(scopes, picket.ScopeClient) {
		for _, name := range []string{"role", "max-open", "rate-per-minute"} {
			if cmd.Flags().Changed(name) {
				return nil, exit.Usagef("--%s is only for a key with --scope client", name)
			}
		}
		return nil, nil
	}
	var limits picket.ClientLimits
	limits.Roles, _ = cmd.Flags().GetStringSlice("role")
	limits.MaxOpen, _ = cmd.Flags().GetInt("max-open")
	limits.RatePerMinute, _ = cmd.Flags().GetInt("rate-per-minute")
	switch {
	case len(scopes) > 1:
		return nil, exit.Usagef("--scope client stands alone: make another key for the other scopes")
	case len(limits.Roles) == 0:
		return nil, exit.Usagef("--scope client needs --role: name each role that the key may use, or '*' for all roles")
	case limits.MaxOpen == 0:
		return nil, exit.Usagef("--max-open 0: send a number from 1 to %d", picket.MaxClientOpen)
	case limits.RatePerMinute == 0 && cmd.Flags().Changed("rate-per-minute"):
		return nil, exit.Usagef("--rate-per-minute 0: send a number from 1 to %d", picket.MaxClientRate)
	}
	return &limits, nil
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
					{Head: "CLIENT LIMITS", Cell: clientText},
					{Head: "MADE BY", Cell: func(k picket.APIKey) string { return k.ParentKeyID }},
					{Head: "AGE", Cell: func(k picket.APIKey) string { return term.Ago(k.CreatedAt) }},
					{Head: "EXPIRES", Cell: func(k picket.APIKey) string { return k.ExpiresAt.String() }},
					{Head: "REVOKED", Cell: func(k picket.APIKey) string { return k.RevokedAt.String() }},
				},
			}.show(s, topic{kinds: []string{"key."}}, reading(s.Keys.List))
		})
}

func scopeText(k picket.APIKey) string { return strings.Join(term.Texts(k.Scopes), ",") }

// clientText names the roles and the limits of a client key; it is empty for any other key.
func clientText(k picket.APIKey) string {
	if k.Client == nil {
		return ""
	}
	text := fmt.Sprintf("%s (%d open", strings.Join(k.Client.Roles, ","), k.Client.MaxOpen)
	if k.Client.RatePerMinute > 0 {
		text += fmt.Sprintf(", %d a minute", k.Client.RatePerMinute)
	}
	return text + ")"
}

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
