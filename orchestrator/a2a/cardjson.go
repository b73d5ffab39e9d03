package a2a

import (
	"net/http"
	"strings"

	protocol "github.com/a2aproject/a2a-go/v2/a2a"
)

// cardJSON is a card in the JSON of the specification, which is that of Protocol Buffers: the scopes of a security
// requirement are an object with a list. The official Go library writes a bare array, which other libraries refuse.
type cardJSON struct {
	*protocol.AgentCard
	SecurityRequirements []securityRequirement `json:"securityRequirements,omitempty"`
}

type securityRequirement struct {
	Schemes map[protocol.SecuritySchemeName]scopes `json:"schemes"`
}

type scopes struct {
	List []string `json:"list"`
}

// goClient begins the User-Agent of clients that use the HTTP client of Go and do not name themselves. The official Go
// library up to version 2.4 is one of them, and it reads cards with bare arrays alone.
const goClient = "Go-http-client/"

// forClient is a card in the form that the client of a request reads.
func forClient(r *http.Request, card *protocol.AgentCard) any {
	if strings.HasPrefix(r.UserAgent(), goClient) {
		return card
	}
	c := cardJSON{AgentCard: card}
	for _, required := range card.SecurityRequirements {
		one := securityRequirement{Schemes: map[protocol.SecuritySchemeName]scopes{}}
		for name, list := range required {
			one.Schemes[name] = scopes{List: append([]string{}, list...)}
		}
		c.SecurityRequirements = append(c.SecurityRequirements, one)
	}
	return c
}
