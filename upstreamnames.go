package picket

import (
	"fmt"
	"strings"
)

// CheckUpstreamNames refuses names of upstreams that leave open whose a tool
// is: a_b_c would be the tool b_c of a, and the tool c of a_b. It returns the
// first name that cannot stay and why; nil when all can.
func CheckUpstreamNames(names []string) (bad string, err error) {
	for i, name := range names {
		if strings.HasPrefix(name+"_", llmNamePrefix) {
			return name,
				fmt.Errorf("the names of its tools would begin as those of calls of language models do, with %s",
					llmNamePrefix)
		}
		for _, other := range names[:i] {
			switch {
			case name == other:
				return name, fmt.Errorf("there are two upstreams %s", name)
			case strings.HasPrefix(name, other+"_"), strings.HasPrefix(other, name+"_"):
				return name,
					fmt.Errorf("the upstreams %s and %s could both have a tool of the same name: one name must not begin with the other and an underscore", other, name)
			}
		}
	}
	return "", nil
}

// llmNamePrefix begins the names under which calls of language models are paid for.
const llmNamePrefix = "llm_"
