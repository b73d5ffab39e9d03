package foreign

import (
	"context"
	"net/http"
	"net/url"
	"os"
	"strings"

	protocol "github.com/a2aproject/a2a-go/v2/a2a"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/cmd/picket/a2a/agentclient"
	"github.com/picket-dev/picket/cmd/picket/cli/exit"
	"github.com/picket-dev/picket/cmd/picket/cli/term"
	"github.com/picket-dev/picket/cmd/picket/settings"
	"github.com/picket-dev/picket/internal/outbound"
)

// Remote is a foreign agent to which workers pass their tasks on, as an entry of picket.yaml describes it.
type Remote struct {
	Name     string // of the entry
	URL      string // of the agent, without a slash at its end
	TokenEnv string // names the variable that holds the credential; empty: the agent gets none

	credential picket.Secret
	guard      outbound.Guard
	transport  *http.Transport // dials through the guard
}

// NewRemote prepares the requests to the foreign agent of an entry. It refuses a variable that is not set, and an
// address that is not public and not allowed.
func NewRemote(ctx context.Context, e settings.Agent) (*Remote, error) {
	r := &Remote{Name: e.Name, TokenEnv: e.Remote.TokenEnv}
	if r.TokenEnv != "" {
		if r.credential = picket.Secret(strings.TrimSpace(os.Getenv(r.TokenEnv))); r.credential == "" {
			return nil, picket.Refuse(exit.CodeUsage, "Set it to the credential for the agent, or leave out token_env.",
				"agents.%s.remote.token_env: the environment variable %q is not set", e.Name, r.TokenEnv)
		}
	}
	address, err := agentclient.ParseAddress(e.Remote.URL)
	if err != nil {
		return nil, err
	}
	r.URL = address.String()
	if r.guard, err = e.Guard(); err != nil {
		return nil, err
	}
	if err := r.guard.CheckReachable(ctx, address); err != nil {
		return nil, err
	}
	r.transport = r.guard.Transport(nil)
	return r, nil
}

// Close closes the connections to the agent.
func (r *Remote) Close() { r.transport.CloseIdleConnections() }

// open reads the card of the agent and prepares calls to it.
func (r *Remote) open(ctx context.Context) (*agentclient.Agent, error) {
	return agentclient.Open(ctx, r.target())
}

// target is the agent as a client calls it.
func (r *Remote) target() *agentclient.Target {
	entry := "agents." + r.Name + ".remote"
	t := &agentclient.Target{
		URL:              r.URL,
		Credential:       r.credential,
		Transport:        r.transport,
		Allows:           r.guard.NamedInside,
		AllowRemedy:      "If the host belongs to the agent, add it to " + entry + ".allow: ",
		CredentialRemedy: "Check the credential in " + r.TokenEnv + ", and what it allows.",
		WithoutHistory:   true, // a worker has no use for it
	}
	if r.credential == "" {
		t.CredentialRemedy = "Name the environment variable with the credential for the agent: " + entry + ".token_env"
	}
	return t
}

// readCommand is a command for a person that shows a task of the agent.
func (r *Remote) readCommand(id protocol.TaskID) string {
	line := []string{"picket", "a2a", "get", r.URL, string(id)}
	if r.TokenEnv != "" {
		line = append(line, "--token-env", r.TokenEnv)
	}
	return term.ShellJoin(line)
}

// Host is the host of the agent, for people.
func (r *Remote) Host() string {
	u, err := url.Parse(r.URL)
	if err != nil {
		return r.URL
	}
	return u.Host
}

// Check reads the card of the agent, and a list of tasks to see whether the credential is accepted. It returns the
// name of the agent.
func (r *Remote) Check(ctx context.Context) (name string, err error) {
	card, _, err := agentclient.ReadCard(ctx, r.target())
	if err != nil {
		return "", err
	}
	a, err := r.open(ctx)
	if err != nil {
		return "", err
	}
	if _, _, err = a.List(ctx, protocol.ListTasksRequest{}, 1); picket.CodeOf(err) == picket.CodeNotAvailable {
		err = nil // the agent has no lists, and the first task shows whether the credential is accepted
	}
	return agentclient.Excerpt(card.Name), err
}
