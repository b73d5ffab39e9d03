package a2a

import (
	"fmt"
	"net"
	"net/url"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/cmd/picket/cli"
	"github.com/picket-dev/picket/cmd/picket/cli/exit"
	"github.com/picket-dev/picket/cmd/picket/cli/term"
	"github.com/picket-dev/picket/internal/unixsocket"
)

// target is the agent that a person means.
type target struct {
	given string // as on the command line
	flags string // that a suggested command needs again, each after a blank
	// source is the environment variable that holds the credential, empty if --token-env is not given.
	source string
	// base is the URL of the agent without a slash at its end, for requests.
	base string
	// credential is for the agent, and empty if it gets none.
	credential picket.Secret
	// server is the connection to the Picket server that the agent belongs to, nil for any other agent.
	server *cli.Connection
	// allowed are the hosts, with or without a port, that the card may name besides that of base.
	allowed []string
	// worker is what a worker of a foreign agent knows of it. It is nil on the command line.
	worker *Remote
}

const cardPath = "/.well-known/agent-card.json"

// findTarget finds the address of an agent and the credential for it.
func findTarget(cmd *cobra.Command, given string) (*target, error) {
	t := &target{given: given}
	t.allowed, _ = cmd.Flags().GetStringSlice("allow-host")
	for _, host := range t.allowed {
		t.flags += " --allow-host " + term.ShellQuote(host)
	}
	if t.source, _ = cmd.Flags().GetString("token-env"); t.source != "" {
		t.flags += " --token-env " + term.ShellQuote(t.source)
		if t.credential = picket.Secret(strings.TrimSpace(os.Getenv(t.source))); t.credential == "" {
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
		if ns, ok := picket.KeyNamespace(t.credential.Reveal()); ok && ns != "default" {
			t.base += "/n/" + ns
		}
		t.base += "/agents/" + given
		return t, nil
	}
	address, err := checkAddress(given)
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
		t.base += path
		return t, nil
	}
	t.base = address.String()
	if t.credential != "" && address.Scheme == "http" && !isLoopback(address) {
		fmt.Fprintf(cmd.ErrOrStderr(), "%s is plain http: the credential is sent without encryption\n",
			term.OneLine(t.base))
	}
	return t, nil
}

// connect makes the Picket server the target, with the key for it.
func (t *target) connect(cmd *cobra.Command) (err error) {
	if t.credential != "" {
		t.server, err = cli.ConnectFrom(cmd, t.credential, t.source)
	} else {
		t.server, err = cli.Connect(cmd)
	}
	if err != nil {
		return err
	}
	t.credential = t.server.Key()
	t.base, err = unixsocket.RequestURL(t.server.URL())
	return err
}

// checkAddress reads the URL of an agent, or of its card.
func checkAddress(given string) (*url.URL, error) {
	const remedy = "Give the base URL of the agent, such as https://agents.example.com/builder."
	u, err := url.Parse(given)
	switch {
	case err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Host == "" || u.Opaque != "":
		return nil, picket.Refuse(exit.CodeUsage, remedy, "%.200q is not the URL of an agent", given)
	case u.User != nil:
		return nil, picket.Refuse(exit.CodeUsage, "Put the credential into an environment variable, and name it with "+
			"--token-env.", "the URL of an agent must not hold a user name or a password")
	case u.RawQuery != "" || u.Fragment != "":
		return nil, picket.Refuse(exit.CodeUsage, remedy, "the URL of an agent has no query and no fragment")
	}
	u.Host, u.RawPath = strings.ToLower(u.Host), ""
	u.Path = strings.TrimRight(strings.TrimSuffix(u.Path, cardPath), "/")
	return u, nil
}

// cutURL is the path of an address below the URL of a server. within is false if the address is elsewhere.
func cutURL(address *url.URL, server string) (path string, within bool) {
	at, err := url.Parse(server)
	if err != nil || at.Host == "" || origin(at) != origin(address) {
		return "", false
	}
	path, within = strings.CutPrefix(address.Path, strings.TrimRight(at.Path, "/"))
	return path, within && (path == "" || path[0] == '/') && !slices.Contains(strings.Split(path, "/"), "..")
}

// origin is the scheme, the host and the port of a URL.
func origin(u *url.URL) string {
	port := u.Port()
	switch {
	case port != "":
	case u.Scheme == "https":
		port = "443"
	case u.Scheme == "http":
		port = "80"
	}
	return u.Scheme + "://" + net.JoinHostPort(strings.ToLower(u.Hostname()), port)
}

func isLoopback(u *url.URL) bool {
	ip := net.ParseIP(u.Hostname())
	return ip != nil && ip.IsLoopback() || u.Hostname() == "localhost"
}

// allows reports whether requests may go to a URL: to the origin of the agent, or to a host that the person has
// allowed. A host is not allowed for plain http if the address of the agent is https.
func (t *target) allows(u *url.URL) bool {
	base, err := url.Parse(t.base)
	if err != nil {
		return false
	}
	if origin(base) == origin(u) {
		return true
	}
	safe := u.Scheme == "https" || u.Scheme == "http" && base.Scheme == "http"
	if t.worker != nil {
		return safe && t.worker.guard.NamedInside(u)
	}
	return safe && slices.ContainsFunc(t.allowed, func(host string) bool {
		return strings.EqualFold(host, u.Host) || strings.EqualFold(host, u.Hostname()) && u.Port() == ""
	})
}

// allowRemedy says how a host that the card names can be allowed.
func (t *target) allowRemedy(host string) string {
	if t.worker != nil {
		return "If the host belongs to the agent, add it to agents." + t.worker.Name + ".remote.allow: " +
			term.ShellQuote(host)
	}
	return "If the host belongs to the agent, add --allow-host " + term.ShellQuote(host)
}

// tokenRemedy says where the agent's credential comes from.
func (t *target) tokenRemedy() string {
	switch {
	case t.worker != nil && t.credential == "":
		return "Name the environment variable with the credential for the agent: agents." + t.worker.Name +
			".remote.token_env"
	case t.worker != nil:
		return "Check the credential in " + t.worker.TokenEnv + ", and what it allows."
	case t.credential == "":
		return "Name the environment variable with the credential for the agent: --token-env NAME"
	}
	return "Check the credential that --token-env names, and what it allows."
}

// command is a command about the agent, for a person to run.
func (t *target) command(verb string, words ...string) string {
	line := append([]string{"picket", "a2a", verb, t.given}, words...)
	return term.ShellJoin(line) + t.flags
}
