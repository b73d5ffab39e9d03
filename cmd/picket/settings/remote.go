package settings

import (
	"cmp"
	"fmt"
	"net/url"
	"strings"

	"github.com/picket-dev/picket/internal/outbound"
)

// Remote is the foreign agent to which the workers of an entry pass their tasks on. Without a URL there is none.
type Remote struct {
	URL      string   `yaml:"url" check:"card_url" doc:"The URL of a foreign agent that speaks A2A 1.0. A worker passes its tasks on to it instead of starting a program."`
	TokenEnv string   `yaml:"token_env" check:"env" doc:"The variable of the worker's environment that holds the credential for remote.url. Without it none is sent."`
	Allow    []string `yaml:"allow" check:"inside" doc:"Hosts and networks that the worker may reach although they are not public, and hosts that the card of the agent may name. Plain http is allowed there only."`
}

// Guard decides where the requests to the foreign agent may lead. Addresses that are not public are refused, except
// those of remote.allow.
func (e Agent) Guard() (outbound.Guard, error) {
	return outbound.New(outbound.Config{Inside: e.Remote.Allow, Setting: "agents." + e.Name + ".remote.allow"})
}

// checkInside takes a host, with or without a port, or a network.
func checkInside(text string) error {
	if _, err := outbound.New(outbound.Config{Inside: []string{text}}); err != nil {
		return fmt.Errorf("%q is neither a host, host:port, an address nor a network such as 10.0.0.0/8", text)
	}
	return nil
}

// checkRemote refuses a foreign agent beside another agent, and one that is reached in a way that others can read.
func (e Agent) checkRemote() error {
	r := e.Remote
	if r.URL == "" {
		if r.TokenEnv != "" || len(r.Allow) > 0 {
			key := "remote.token_env"
			if r.TokenEnv == "" {
				key = "remote.allow"
			}
			return e.refuse(key, "is given without remote.url", "Add the URL of the agent: remote: {url: https://…}")
		}
		return nil
	}
	switch {
	case e.Launch.Preset != "" || len(e.Launch.Command) > 0 || len(e.Launch.Env) > 0:
		return e.refuse("remote.url", "is given beside launch, and a worker has one kind of agent",
			"Leave out launch, or remote.")
	case e.Session.Max > 0 || e.Session.Only:
		return e.refuse("session", "is given, and a worker of a foreign agent keeps no sessions", "Leave out session.")
	case strings.HasPrefix(r.TokenEnv, "PICKET_"):
		return e.refuse("remote.token_env", "names a variable of Picket, whose credentials no foreign agent gets",
			"Put the credential for the agent into a variable of another name.")
	}
	return e.checkRemoteURL()
}

// checkRemoteURL refuses plain http to a host that remote.allow does not name.
func (e Agent) checkRemoteURL() error {
	u, err := url.Parse(e.Remote.URL)
	guard, bad := e.Guard()
	switch {
	case err != nil || bad != nil:
		return cmp.Or(err, bad)
	case strings.ContainsAny(e.Remote.URL, "?#"):
		return e.refuse("remote.url", "has a query or a fragment", "Write https://HOST or https://HOST/PATH.")
	case u.Scheme != "https" && !guard.NamedInside(u):
		return e.refuse("remote.url", "is plain http, so others can read the credential and the tasks",
			"Write https://, or add "+u.Host+" to remote.allow.")
	}
	return nil
}
