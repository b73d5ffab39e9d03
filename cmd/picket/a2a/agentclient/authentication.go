package agentclient

import (
	"encoding/base64"
	"net/http"
	"slices"
	"strings"

	protocol "github.com/a2aproject/a2a-go/v2/a2a"

	"github.com/picket-dev/picket"
)

// bearer sends a credential as a bearer token, which is what an agent gets before its card says otherwise.
func bearer(h http.Header, credential string) { h.Set("Authorization", "Bearer "+credential) }

func basic(h http.Header, credential string) {
	h.Set("Authorization", "Basic "+base64.StdEncoding.EncodeToString([]byte(credential)))
}

// howToAuthenticate finds how the card of an agent wants a credential to be sent. It is an error if each way needs
// something that the command line does not have.
func howToAuthenticate(card *protocol.AgentCard) (func(http.Header, string), error) {
	var wanted []string
	for _, option := range card.SecurityRequirements {
		var set func(http.Header, string)
		for name := range option {
			set = schemeOf(card.SecuritySchemes[name])
			wanted = append(wanted, string(name))
		}
		if len(option) == 1 && set != nil {
			return set, nil
		}
	}
	if len(wanted) == 0 {
		return bearer, nil
	}
	slices.Sort(wanted)
	return nil, picket.Refuse(picket.CodeNotAvailable, "Leave out --token-env or remote.token_env if the agent "+
		"also answers without a credential.", "the agent asks for a credential in a way that is not supported: %s",
		Excerpt(strings.Join(wanted, ", ")))
}

// schemeOf is how a credential is sent for a security scheme, nil if it cannot be sent. An API key goes into a header.
func schemeOf(s protocol.SecurityScheme) func(http.Header, string) {
	switch s := s.(type) {
	case protocol.OAuth2SecurityScheme, protocol.OpenIDConnectSecurityScheme:
		return bearer
	case protocol.HTTPAuthSecurityScheme:
		switch {
		case strings.EqualFold(s.Scheme, "bearer"):
			return bearer
		case strings.EqualFold(s.Scheme, "basic"):
			return basic
		}
	case protocol.APIKeySecurityScheme:
		if s.Location == protocol.APIKeySecuritySchemeLocationHeader && mayHoldKey(s.Name) {
			return func(h http.Header, credential string) { h.Set(s.Name, credential) }
		}
	}
	return nil
}

// mayHoldKey reports whether a header that a card names can be set. Those that HTTP itself uses cannot.
func mayHoldKey(name string) bool {
	isLetter := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '-' || r == '_'
	}
	if name == "" || strings.ContainsFunc(name, func(r rune) bool { return !isLetter(r) }) {
		return false
	}
	lower := strings.ToLower(name)
	return !slices.Contains(ownHeaders, lower) && !strings.HasPrefix(lower, "content-") &&
		!strings.HasPrefix(lower, "proxy-")
}

// ownHeaders are headers that HTTP, or the client, uses itself.
var ownHeaders = []string{"host", "connection", "transfer-encoding", "upgrade", "te", "trailer", "expect", "cookie",
	"accept", "accept-encoding", "a2a-version", "keep-alive", "range"}
