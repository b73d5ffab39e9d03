package console

import (
	"strconv"
	"strings"

	"github.com/picket-dev/picket"
)

// handoffFlash is the page of the hand-off in the address, which reports what was done.
func (v *request) handoffFlash(code string) string {
	return withFlash(handoffPath(v.Param("id")), code, "")
}

func claimHandoff(v *request, by picket.Caller, _ string) (string, error) {
	_, err := v.backend.Handoffs.Claim(v.ctx(), by, v.Param("id"),
		picket.ClaimRequest{TakeOver: v.isChecked("takeOver"), Assignee: strings.TrimSpace(v.formValue("assignee"))})
	return v.handoffFlash("claimed"), err
}

func answerHandoff(v *request, by picket.Caller, _ string) (string, error) {
	h, err := v.backend.Handoffs.Handoff(v.ctx(), v.Param("id"))
	if err != nil {
		return "", err
	}
	var req picket.AnswerRequest
	if req.Option, err = v.chosenOption(h); err != nil {
		return "", err
	}
	if answer := v.formValue("answer"); strings.TrimSpace(answer) != "" {
		req.Answer = quoteJSON(answer)
	}
	if v.isChecked("edit") {
		if req.Input, err = parsePayload("/input", v.formValue("input"), v.formValue("inputAs")); err != nil {
			return "", err
		}
		req.ClearInput = string(req.Input) == "null"
	}
	if req.Option == nil && req.Answer == nil {
		return "", picket.Invalid("/answer", "Press one of the options, or write an answer.", "there is no answer yet")
	}
	_, err = v.backend.Handoffs.Answer(v.ctx(), by, h.HandoffID, req)
	return v.handoffFlash("answered"), err
}

// chosenOption is the option whose button was pressed, if any: a form names it
// by its place, since options can be long.
func (v *request) chosenOption(h picket.Handoff) (*string, error) {
	choice := v.formValue("choice")
	if choice == "" {
		return nil, nil
	}
	n, err := strconv.Atoi(choice)
	if err != nil || n < 0 || n >= len(h.Options) {
		return nil, picket.Invalid("/option", "Press one of the options that are offered.", "there is no such option")
	}
	return &h.Options[n], nil
}

func finishHandoff(v *request, by picket.Caller, _ string) (string, error) {
	typed := v.formValue("output")
	if strings.TrimSpace(typed) == "" {
		return "", picket.Invalid("/output", "Write what the task was to find out or make.", "there is no output yet")
	}
	output, err := parsePayload("/output", typed, v.formValue("as"))
	if err == nil {
		_, err = v.backend.Handoffs.Finish(v.ctx(), by, v.Param("id"), output)
	}
	return v.handoffFlash("finished"), err
}

func cancelHandoff(v *request, by picket.Caller, reason string) (string, error) {
	_, err := v.backend.Handoffs.CancelHandoff(v.ctx(), by, v.Param("id"), reason)
	return v.handoffFlash("cancelled"), err
}

// retryHandoff lets the task of an escalation begin again.
func retryHandoff(v *request, by picket.Caller, reason string) (string, error) {
	h, err := v.backend.Handoffs.Handoff(v.ctx(), v.Param("id"))
	if err != nil {
		return "", err
	}
	t, err := v.backend.Changes.Retry(v.ctx(), by, h.TaskID, reason)
	if err != nil {
		return "", err
	}
	code, id := v.whoTakes(t)
	return withFlash(handoffPath(v.Param("id")), code, id), nil
}

// topUpHandoff adds to the envelope of the task, which answers a hand-off that asks for money.
func topUpHandoff(v *request, by picket.Caller, reason string) (string, error) {
	h, err := v.backend.Handoffs.Handoff(v.ctx(), v.Param("id"))
	if err != nil {
		return "", err
	}
	did, err := v.topUp(by, h.TaskID, h.HandoffID, reason)
	return v.handoffFlash(did), err
}
