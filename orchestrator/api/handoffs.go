package api

import (
	"github.com/picket-dev/picket"
)

// listHandoffs shows the open ones unless another state is asked for.
func listHandoffs(r request) error {
	q := r.query("state", "limit", "cursor")
	want := picket.HandoffQuery{State: choice(q, "state", picket.HandoffOpen, picket.HandoffStates...)}
	want.Limit, want.Cursor = q.page()
	if q.err != nil {
		return q.err
	}
	page, err := r.engine.Handoffs(r.ctx(), want)
	return r.respond(page, asParameter(err))
}

func getHandoff(r request) error { return answerOne(r, "id", "handoff", r.engine.Handoff) }

func claimHandoff(r request) error {
	id, body, by, err := decodeMutation[picket.ClaimRequest](r, "id", "handoff")
	if err != nil {
		return err
	}
	handoff, err := r.engine.Claim(r.ctx(), by, id, body.TakeOver)
	return r.respond(handoff, err)
}

func answerHandoff(r request) error {
	id, body, by, err := decodeMutation[picket.AnswerRequest](r, "id", "handoff")
	if err != nil {
		return err
	}
	if len(body.Answer) == 0 && body.Option == nil && len(body.Input) == 0 && !body.ClearInput {
		return picket.Invalid("/answer",
			`Send {"answer":"…"}, {"option":"…"} with one of the options offered, or {"input":…}, the new input of the task ({"clearInput":true} for null).`,
			"an answer, an option or an input is required")
	}
	if err := checkPayload("/answer", body.Answer); err != nil {
		return err
	}
	if err := checkPayload("/input", body.Input); err != nil {
		return err
	}
	task, err := r.engine.Answer(r.ctx(), by, id, body)
	return r.respond(task, err)
}

type finishBody struct {
	Output picket.RawJSON `json:"output"`
}

// finishHandoff takes the work as done by the person.
func finishHandoff(r request) error {
	id, body, by, err := decodeMutation[finishBody](r, "id", "handoff")
	if err != nil {
		return err
	}
	if err := checkPayload("/output", body.Output); err != nil {
		return err
	}
	task, err := r.engine.Finish(r.ctx(), by, id, body.Output)
	return r.respond(task, err)
}

func cancelHandoff(r request) error { return changeTask(r, "id", "handoff", r.engine.CancelHandoff) }
