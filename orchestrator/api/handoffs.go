package api

import (
	"github.com/picket-dev/picket"
)

// handoffQuery asks for the open ones unless another state is named.
func handoffQuery(r request) (want picket.HandoffQuery, err error) {
	q := r.query("state", "assignee", "limit", "cursor")
	want.Assignee = q.person("assignee")
	want.State = choice(q, "state", picket.HandoffOpen, picket.HandoffStates...)
	want.Limit, want.Cursor = q.page()
	return want, q.err
}

func claimHandoff(c change[picket.ClaimRequest]) (picket.Handoff, error) {
	return c.engine.Claim(c.ctx(), c.by, c.id, c.body)
}

func answerHandoff(c change[picket.AnswerRequest]) (picket.Task, error) {
	return c.engine.Answer(c.ctx(), c.by, c.id, c.body)
}

type finishBody struct {
	Output picket.RawJSON `json:"output"`
}

// finishHandoff takes the work as done by the person.
func finishHandoff(c change[finishBody]) (picket.Task, error) {
	return c.engine.Finish(c.ctx(), c.by, c.id, c.body.Output)
}
