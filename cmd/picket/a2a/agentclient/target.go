package agentclient

import (
	"net"
	"net/http"
	"net/url"
	"strings"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/cmd/picket/cli/exit"
	"github.com/picket-dev/picket/cmd/picket/cli/term"
)

// Target is an agent: where it is, what it is sent, and what helps a person if it refuses.
type Target struct {
	// URL is that of the agent, without a slash at its end.
	URL string
	// Credential is for the agent, and empty if it gets none.
	Credential picket.Secret
	// Server is the Picket server that the agent belongs to, nil for any other agent. The addresses of its agents are
	// known without their cards, and its refusals are shown as it words them.
	Server Server
	// Transport sends the requests. If it is nil, they are sent like those of a client of the Picket server.
	Transport http.RoundTripper
	// Allows reports whether requests may also go to a URL of another origin than that of URL. If it is nil, they may
	// not. It is not asked for plain http if the scheme of URL is https.
	Allows func(*url.URL) bool
	// AllowRemedy begins the advice on a host that is not allowed. The host follows it.
	AllowRemedy string
	// CredentialRemedy is the advice if the agent does not accept the credential, or the lack of one.
	CredentialRemedy string
	// WithoutHistory has tasks read without their messages. Otherwise an agent sends as many as it likes.
	WithoutHistory bool
}

// Server is the Picket server that an agent belongs to.
type Server interface {
	// WithRemedy adds what helps to an error of a call.
	WithRemedy(err error) error
}

const cardPath = "/.well-known/agent-card.json"

// ParseAddress reads the URL of an agent, or of its card. It returns that of the agent, without a slash at its end.
func ParseAddress(given string) (*url.URL, error) {
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

// Origin is the scheme, the host and the port of a URL.
func Origin(u *url.URL) string {
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

// mayCall reports whether requests may go to a URL: to the origin of the agent, or to a host that is allowed. A host is
// not allowed for plain http if the address of the agent is https.
func (t *Target) mayCall(u *url.URL) bool {
	base, err := url.Parse(t.URL)
	if err != nil {
		return false
	}
	if Origin(base) == Origin(u) {
		return true
	}
	safe := u.Scheme == "https" || u.Scheme == "http" && base.Scheme == "http"
	return safe && t.Allows != nil && t.Allows(u)
}

// notAllowed refuses to send requests to a host.
func (t *Target) notAllowed(host, format string, args ...any) error {
	return picket.Refuse(exit.CodeUsage, t.AllowRemedy+term.ShellQuote(host), format, args...)
}
