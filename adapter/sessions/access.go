package sessions

import (
	"cmp"
	"strings"

	"github.com/picket-dev/picket"
)

// access is what an agent reaches Picket with while it works on one prompt, or what a process does while it works on
// several, one after the other. The zero value stands for nothing.
type access struct {
	capability picket.Secret
	proxyURL   string
	namespace  string
}

// newAccess makes a capability for a prompt, or for the process of a session, if the server admits any.
func (c *Config) newAccess(from picket.SessionCommand, promptOrSessionID string) access {
	a := c.wantedAccess(from)
	if a != (access{}) {
		a.capability = picket.NewSessionCapability(a.namespace, promptOrSessionID)
	}
	return a
}

// wantedAccess is the access of a prompt, without the capability.
func (c *Config) wantedAccess(from picket.SessionCommand) access {
	proxyURL := strings.TrimSuffix(cmp.Or(from.ProxyURL, c.ProxyURL), "/")
	if !isPrompt(from) || from.Namespace == "" || proxyURL == "" {
		return access{}
	}
	return access{proxyURL: proxyURL, namespace: from.Namespace}
}

// access makes a capability for each prompt.
func (s *session) access(from picket.SessionCommand) access {
	return s.k.cfg.newAccess(from, from.CommandID)
}

// hash is what the server gets of the capability; empty: there is none.
func (a access) hash() string {
	if a.capability == "" {
		return ""
	}
	return picket.SessionCapabilityHash(a.capability)
}

// contextURL answers the context of the agent.
func (a access) contextURL() string {
	if a.capability == "" {
		return ""
	}
	return a.proxyURL + "/agent/context"
}

// env are the variables of a process that answers this prompt alone.
func (a access) env() []string {
	if a.capability == "" {
		return nil
	}
	return []string{
		"PICKET_SESSION_CAPABILITY=" + a.capability.Reveal(),
		"PICKET_PROXY_URL=" + a.proxyURL,
		"PICKET_MCP_URL=" + a.proxyURL + "/mcp",
		"PICKET_CONTEXT_URL=" + a.contextURL(),
	}
}
