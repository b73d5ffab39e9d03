package toolproxy

import (
	"fmt"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// CheckUpstreamNames refuses names of upstreams that leave open whose a tool
// is: a_b_c would be the tool b_c of a, and the tool c of a_b. It returns the
// first name that cannot stay and why; nil when all can.
func CheckUpstreamNames(names []string) (bad string, err error) {
	for i, name := range names {
		if begins(name+"_", llmNamePrefix) {
			return name,
				fmt.Errorf("the names of its tools would begin as those of calls of language models do, with %s",
					llmNamePrefix)
		}
		for _, other := range names[:i] {
			switch {
			case name == other:
				return name, fmt.Errorf("there are two upstreams %s", name)
			case begins(name, other+"_"), begins(other, name+"_"):
				return name,
					fmt.Errorf("the upstreams %s and %s could both have a tool of the same name: one name must not begin with the other and an underscore", other, name)
			}
		}
	}
	return "", nil
}

// llmNamePrefix begins the names under which calls of language models are paid for.
const llmNamePrefix = "llm_"

func begins(name, with string) bool { return strings.HasPrefix(name, with) }

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
