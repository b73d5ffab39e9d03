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
