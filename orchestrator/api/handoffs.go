package api

import (
	"github.com/picket-dev/picket"
)

// listHandoffs shows the open ones unless another state is asked for.
func listHandoffs(r request) error {
	q, err := r.query("state", "limit", "cursor")
	if err != nil {
		return err
	}
	want := picket.HandoffQuery{State: picket.HandoffOpen}
	sent, err := q.text("state")
	if err != nil {
		return err
	}
	if sent != "" {
		if want.State, err = oneOf("state", sent, picket.HandoffStates); err != nil {
			return err
		}
	}
	if want.Limit, want.Cursor, err = q.page(); err != nil {
		return err
	}
	page, err := r.engine.Handoffs(r.ctx(), want)
	return r.respond(page, asParameter(err))
}

func getHandoff(r request) error {
	if err := r.noQuery(); err != nil {
		return err
	}
	id, err := r.id("id", "handoff")
	if err != nil {
		return err
	}
	handoff, err := r.engine.Handoff(r.ctx(), id)
	return r.respond(handoff, err)
}

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

func cancelHandoff(r request) error {
	id, body, by, err := decodeMutation[reasonBody](r, "id", "handoff")
	if err != nil {
		return err
	}
	if err := body.check(); err != nil {
		return err
	}
	task, err := r.engine.CancelHandoff(r.ctx(), by, id, body.Reason)
	return r.respond(task, err)
}
