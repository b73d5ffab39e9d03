package console

import (
	"strconv"
	"strings"

	"github.com/picket-dev/picket"
)

// handleHandoffForm does what a form of the page of a hand-off asks for. A refusal shows
// the page again, as things stand now and with all that was typed; a success
// goes to that page too.
func (v *request) handleHandoffForm(form, did string,
	verb func(by picket.Caller, id string, typed *handoffInput) error) error {
	typed := handoffInput{
		Form:    form,
		Answer:  v.formText("answer"),
		Edit:    v.isChecked("edit"),
		Input:   v.formText("input"),
		InputAs: v.formValue("inputAs"),
		Output:  v.formText("output"),
		As:      v.formValue("as"),
		Reason:  v.formText("reason"),
		USD:     v.formValue("usd"),
		Tokens:  v.formValue("tokens"),
	}
	by, err := v.caller()
	if err == nil {
		err = verb(by, v.Param("id"), &typed)
	}
	if err != nil {
		return v.handoffPage(typed, err)
	}
	return v.redirectWithFlash(handoffPath(v.Param("id")), did, "")
}

// formText is a text from a form, with its lines as they were before the browser
// sent them.
func (v *request) formText(name string) string {
	return strings.ReplaceAll(v.formValue(name), "\r\n", "\n")
}

func claimHandoff(v *request) error {
	return v.handleHandoffForm("claim", "claimed", func(by picket.Caller, id string, _ *handoffInput) error {
		_, err := v.backend.Handoffs.Claim(v.ctx(), by, id, v.isChecked("takeOver"))
		return err
	})
}

func answerHandoff(v *request) error {
	return v.handleHandoffForm("answer", "answered",
		func(by picket.Caller, id string, typed *handoffInput) (err error) {
			req := picket.AnswerRequest{}
			if req.Option, err = v.chosenOption(id); err != nil {
				return err
			}
			if req.Option != nil {
				typed.Option = *req.Option
			}
			if strings.TrimSpace(typed.Answer) != "" {
				req.Answer = quoteJSON(typed.Answer)
			}
			if typed.Edit {
				if req.Input, err = parsePayload("/input", typed.Input, typed.InputAs); err != nil {
					return err
				}
				req.ClearInput = string(req.Input) == "null"
			}
			if req.Option == nil && req.Answer == nil {
				return picket.Invalid("/answer", "Press one of the options, or write an answer.",
					"there is no answer yet")
			}
			_, err = v.backend.Handoffs.Answer(v.ctx(), by, id, req)
			return err
		})
}

// chosenOption is the option whose button was pressed, if any: a form names it
// by its place, since options can be long.
func (v *request) chosenOption(id string) (*string, error) {
	if v.formValue("choice") == "" {
		return nil, nil
	}
	h, err := v.backend.Handoffs.Handoff(v.ctx(), id)
	if err != nil {
		return nil, err
	}
	n, err := strconv.Atoi(v.formValue("choice"))
	if err != nil || n < 0 || n >= len(h.Options) {
		return nil, picket.Invalid("/option", "Press one of the options that are offered.", "there is no such option")
	}
	return &h.Options[n], nil
}

func finishHandoff(v *request) error {
	return v.handleHandoffForm("finish", "finished", func(by picket.Caller, id string, typed *handoffInput) error {
		if strings.TrimSpace(typed.Output) == "" {
			return picket.Invalid("/output", "Write what the task was to find out or make.", "there is no output yet")
		}
		output, err := parsePayload("/output", typed.Output, typed.As)
		if err == nil {
			_, err = v.backend.Handoffs.Finish(v.ctx(), by, id, output)
		}
		return err
	})
}

func cancelHandoff(v *request) error {
	return v.handleHandoffForm("cancel", "cancelled", func(by picket.Caller, id string, typed *handoffInput) error {
		reason, err := v.formReason()
		if err == nil {
			_, err = v.backend.Handoffs.CancelHandoff(v.ctx(), by, id, reason)
		}
		return err
	})
}

// retryHandoff lets the task of an escalation begin again.
func retryHandoff(v *request) error {
	return v.handleHandoffForm("retry", "retried", func(by picket.Caller, id string, _ *handoffInput) error {
		reason, err := v.formReason()
		if err != nil {
			return err
		}
		h, err := v.backend.Handoffs.Handoff(v.ctx(), id)
		if err == nil {
			_, err = v.backend.Changes.Retry(v.ctx(), by, h.TaskID, reason)
		}
		return err
	})
}

// topUpHandoff adds to the envelope of the task; the person answers afterwards.
func topUpHandoff(v *request) error {
	return v.handleHandoffForm("topup", "toppedup", func(by picket.Caller, id string, _ *handoffInput) error {
		reason, err := v.formReason()
		if err != nil {
			return err
		}
		h, err := v.backend.Handoffs.Handoff(v.ctx(), id)
		if err == nil {
			_, err = v.topUp(by, h.TaskID, reason)
		}
		return err
	})
}
