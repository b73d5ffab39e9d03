package llm

import "github.com/picket-dev/picket/budget"

// Rewritten is the body of a prompt as its vendor is sent it.
func Rewritten(body []byte, anthropic bool, list *budget.PriceList) ([]byte, error) {
	d := openAIResponses
	if anthropic {
		d = anthropicMessages
	}
	q, err := parseRequest(body, d)
	if err != nil {
		return nil, err
	}
	if _, err := q.fees(d, list); err != nil || len(q.members) == 0 {
		return body, err // nothing is sent without a model
	}
	return q.rewrite(d, 1000), nil
}

// Prompts bounds prompts one after the other, as a proxy does whose vendor has answered
// each of them but the last with so many tokens.
func Prompts(name string, tokens int64, bodies ...string) (bound int64, err error) {
	d := map[string]*dialect{"messages": anthropicMessages, "chat": openAIChat, "responses": openAIResponses}[name]
	var known knownPrompts
	for _, body := range bodies {
		q, err := parseRequest([]byte(body), d)
		if err != nil {
			return 0, err
		}
		size := q.measure(d)
		bound = known.maxTokensRead(size)
		if q.usesExternal {
			bound += externalContextTokens
		} else {
			known.learn(size, tokens)
		}
	}
	return bound, nil
}
