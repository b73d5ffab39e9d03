package mcp

import (
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// localName is how a tool or prompt of an upstream is called here.
func (u *upstreamClient) localName(theirs string) string {
	return u.Name + "_" + invalidNameChars.ReplaceAllString(theirs, "_")
}

// byLocalName finds what has each name here, of all that an upstream lists: what is
// called so there, else the first by the alphabet, so that the order of the list
// never leads a call elsewhere.
func byLocalName[T any](u *upstreamClient, list []T, nameOf func(T) string) map[string]T {
	found := map[string]T{}
	for _, item := range list {
		name := u.localName(nameOf(item))
		had, taken := found[name]
		if !taken || u.closer(name, nameOf(item), nameOf(had)) {
			found[name] = item
		}
	}
	return found
}

func (u *upstreamClient) closer(name, one, other string) bool {
	if exact := name == u.Name+"_"+one; exact != (name == u.Name+"_"+other) {
		return exact
	}
	return one < other
}

func toolName(t *mcp.Tool) string     { return t.Name }
func promptName(p *mcp.Prompt) string { return p.Name }
