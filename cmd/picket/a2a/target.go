package a2a

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/cmd/picket/a2a/agentclient"
	"github.com/picket-dev/picket/cmd/picket/cli"
	"github.com/picket-dev/picket/cmd/picket/cli/exit"
	"github.com/picket-dev/picket/cmd/picket/cli/term"
	"github.com/picket-dev/picket/internal/unixsocket"
)

// target is the agent that a person means.
type target struct {
	agentclient.Target
	given string // as on the command line
	flags string // that a suggested command needs again, each after a blank
	// source is the environment variable that holds the credential, empty if --token-env is not given.
	source string
}

// findTarget finds the address of an agent and the credential for it.
func findTarget(cmd *cobra.Command, given string) (*target, error) {
	t := &target{given: given}
	hosts, _ := cmd.Flags().GetStringSlice("allow-host")
	t.Allows, t.AllowRemedy = hostIn(hosts), "If the host belongs to the agent, add --allow-host "
	for _, host := range hosts {
		t.flags += " --allow-host " + term.ShellQuote(host)
	}
	if t.source, _ = cmd.Flags().GetString("token-env"); t.source != "" {
		t.flags += " --token-env " + term.ShellQuote(t.source)
		if t.Credential = picket.Secret(strings.TrimSpace(os.Getenv(t.source))); t.Credential == "" {
			return nil, picket.Refuse(exit.CodeUsage, "Set it to the credential, or name another variable.",
				"--token-env: the environment variable %q is not set", t.source)
		}
	}
	if isRole := !strings.Contains(given, ":") && !strings.Contains(given, "/"); isRole {
		if err := picket.CheckName("AGENT", given); err != nil {
			return nil, picket.Refuse(exit.CodeUsage, "Give the role of a pool, such as builder, or the URL of an agent.",
				"%.80q is neither a role nor a URL", given)
		}
		if err := t.connect(cmd); err != nil {
			return nil, err
		}
		if ns, ok := picket.KeyNamespace(t.Credential.Reveal()); ok && ns != "default" {
			t.URL += "/n/" + ns
		}
		t.URL += "/agents/" + given
		return t, nil
	}
	address, err := agentclient.ParseAddress(given)
	if err != nil {
		return nil, err
	}
	server, err := cli.ServerURL(cmd)
	if err != nil {
		return nil, err
	}
	if path, within := cutURL(address, server); within {
		if err := t.connect(cmd); err != nil {
			return nil, err
		}
		t.URL += path
		return t, nil
	}
	t.URL, t.CredentialRemedy = address.String(), "Check the credential that --token-env names, and what it allows."
	if t.Credential == "" {
		t.CredentialRemedy = "Name the environment variable with the credential for the agent: --token-env NAME"
	}
	if t.Credential != "" && address.Scheme == "http" && !isLoopback(address) {
		fmt.Fprintf(cmd.ErrOrStderr(), "%s is plain http: the credential is sent without encryption\n",
			term.OneLine(t.URL))
	}
	return t, nil
}

// connect makes the Picket server the target, with the key for it.
func (t *target) connect(cmd *cobra.Command) (err error) {
	s := ownServer{source: t.source}
	if t.Credential != "" {
		s.Connection, err = cli.ConnectFrom(cmd, t.Credential, t.source)
	} else {
		s.Connection, err = cli.Connect(cmd)
	}
	if err != nil {
		return err
	}
	t.Server, t.Credential = s, s.Key()
	t.URL, err = unixsocket.RequestURL(s.URL())
	return err
}

// ownServer is the Picket server of the command line.
type ownServer struct {
	*cli.Connection
	source string // as in target
}

// WithRemedy adds what helps if the server is not there or does not know the key.
func (s ownServer) WithRemedy(err error) error {
	e, ok := errors.AsType[*picket.Error](err)
	if ok && e.Code == picket.CodeUnauthenticated && s.source != "" {
		e.Remedy = "Set " + s.source + " to a key that " + s.URL() + " knows."
		return e
	}
	return s.Connection.WithRemedy(err)
}

// cutURL is the path of an address below the URL of a server. within is false if the address is elsewhere.
func cutURL(address *url.URL, server string) (path string, within bool) {
	at, err := url.Parse(server)
	if err != nil || at.Host == "" || agentclient.Origin(at) != agentclient.Origin(address) {
		return "", false
	}
	path, within = strings.CutPrefix(address.Path, strings.TrimRight(at.Path, "/"))
	return path, within && (path == "" || path[0] == '/') && !slices.Contains(strings.Split(path, "/"), "..")
}

func isLoopback(u *url.URL) bool {
	ip := net.ParseIP(u.Hostname())
	return ip != nil && ip.IsLoopback() || u.Hostname() == "localhost"
}

// hostIn returns a function that reports whether a URL has one of the hosts. A host without a port stands for the usual
// one.
func hostIn(hosts []string) func(*url.URL) bool {
	return func(u *url.URL) bool {
		return slices.ContainsFunc(hosts, func(host string) bool {
			return strings.EqualFold(host, u.Host) || strings.EqualFold(host, u.Hostname()) && u.Port() == ""
		})
	}
}

// command is a command about the agent, for a person to run.
func (t *target) command(verb string, words ...string) string {
	line := append([]string{"picket", "a2a", verb, t.given}, words...)
	return term.ShellJoin(line) + t.flags
}
