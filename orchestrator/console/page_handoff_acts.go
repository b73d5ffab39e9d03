package console

import (
	"context"
	"strconv"
	"strings"

	"github.com/picket-dev/picket"
)

// handoffActs is what a person does to a hand-off.
type handoffActs interface {
	Claim(ctx context.Context, by picket.Caller, handoffID string, takeOver bool) (picket.Handoff, error)
	Answer(ctx context.Context, by picket.Caller, handoffID string, req picket.AnswerRequest) (picket.Task, error)
	Finish(ctx context.Context, by picket.Caller, handoffID string, output picket.RawJSON) (picket.Task, error)
	CancelHandoff(ctx context.Context, by picket.Caller, handoffID, reason string) (picket.Task, error)
}

// decide does what a form of the page of a hand-off asks for. A refusal shows
// the page again, as things stand now and with all that was typed; a success
// goes to that page too.
func (v *visit) decide(form, did string, verb func(by picket.Caller, id string, typed *handoffTyped) error) error {
	typed := handoffTyped{
		Form:    form,
		Answer:  v.typed("answer"),
		Edit:    v.form("edit") != "",
		Input:   v.typed("input"),
		InputAs: v.form("inputAs"),
		Output:  v.typed("output"),
		As:      v.form("as"),
		Reason:  v.typed("reason"),
		USD:     v.form("usd"),
		Tokens:  v.form("tokens"),
	}
	by, err := v.caller()
	if err == nil {
		err = verb(by, v.Param("id"), &typed)
	}
	if err != nil {
		return v.handoffPage(typed, err)
	}
	return v.done(handoffPath(v.Param("id")), did, "")
}

// typed is a text from a form, with its lines as they were before the browser
// sent them.
func (v *visit) typed(name string) string { return strings.ReplaceAll(v.form(name), "\r\n", "\n") }

func claimHandoff(v *visit) error {
	return v.decide("claim", "claimed", func(by picket.Caller, id string, _ *handoffTyped) error {
		_, err := v.desk.Claim(v.ctx(), by, id, v.form("takeOver") != "")
		return err
	})
}

func answerHandoff(v *visit) error {
	return v.decide("answer", "answered", func(by picket.Caller, id string, typed *handoffTyped) (err error) {
		req := picket.AnswerRequest{}
		if req.Option, err = v.chosenOption(id); err != nil {
			return err
		}
		if req.Option != nil {
			typed.Option = *req.Option
		}
		if strings.TrimSpace(typed.Answer) != "" {
			req.Answer = textJSON(typed.Answer)
		}
		if typed.Edit {
			if req.Input, err = typedJSON("/input", typed.Input, typed.InputAs); err != nil {
				return err
			}
			req.ClearInput = string(req.Input) == "null"
		}
		if req.Option == nil && req.Answer == nil {
			return picket.Invalid("/answer", "Press one of the options, or write an answer.", "there is no answer yet")
		}
		_, err = v.desk.Answer(v.ctx(), by, id, req)
		return err
	})
}

// chosenOption is the option whose button was pressed, if any: a form names it
// by its place, since options can be long.
func (v *visit) chosenOption(id string) (*string, error) {
	if v.form("choice") == "" {
		return nil, nil
	}
	h, err := v.desk.Handoff(v.ctx(), id)
	if err != nil {
		return nil, err
	}
	n, err := strconv.Atoi(v.form("choice"))
	if err != nil || n < 0 || n >= len(h.Options) {
		return nil, picket.Invalid("/option", "Press one of the options that are offered.", "there is no such option")
	}
	return &h.Options[n], nil
}

func finishHandoff(v *visit) error {
	return v.decide("finish", "finished", func(by picket.Caller, id string, typed *handoffTyped) error {
		if strings.TrimSpace(typed.Output) == "" {
			return picket.Invalid("/output", "Write what the task was to find out or make.", "there is no output yet")
		}
		output, err := typedJSON("/output", typed.Output, typed.As)
		if err == nil {
			_, err = v.desk.Finish(v.ctx(), by, id, output)
		}
		return err
	})
}

func cancelHandoff(v *visit) error {
	return v.decide("cancel", "cancelled", func(by picket.Caller, id string, typed *handoffTyped) error {
		reason, err := v.reason()
		if err == nil {
			_, err = v.desk.CancelHandoff(v.ctx(), by, id, reason)
		}
		return err
	})
}

// retryHandoff lets the task of an escalation begin again.
func retryHandoff(v *visit) error {
	return v.decide("retry", "retried", func(by picket.Caller, id string, _ *handoffTyped) error {
		reason, err := v.reason()
		if err != nil {
			return err
		}
		h, err := v.desk.Handoff(v.ctx(), id)
		if err == nil {
			_, err = v.desk.Retry(v.ctx(), by, h.TaskID, reason)
		}
		return err
	})
}

// topUpHandoff adds to the envelope of the task; the person answers afterwards.
func topUpHandoff(v *visit) error {
	return v.decide("topup", "toppedup", func(by picket.Caller, id string, _ *handoffTyped) error {
		reason, err := v.reason()
		if err != nil {
			return err
		}
		h, err := v.desk.Handoff(v.ctx(), id)
		if err == nil {
			_, err = v.topUp(by, h.TaskID, reason)
		}
		return err
	})
}
