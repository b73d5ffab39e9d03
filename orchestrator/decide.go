package orchestrator

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	jsonv2 "github.com/go-json-experiment/json"
	"github.com/oklog/ulid/v2"

	"github.com/picket-dev/picket"
)

// The verbs of people: hand-offs and reviews.

// Claim notes that the caller looks after a hand-off; anybody may decide it all
// the same. What somebody else has claimed stays theirs (state_conflict) unless
// takeOver is set.
func (e *Engine) Claim(ctx context.Context, by picket.Caller, handoffID string, takeOver bool) (picket.Handoff, error) {
	if err := picket.CheckID("handoffId", "handoff", handoffID); err != nil {
		return picket.Handoff{}, err
	}
	taken := 0
	if takeOver {
		taken = 1
	}
	got, err := e.run(ctx, "claim", handoffID, by.Actor, by.Idempotency.Key, by.Idempotency.Body, taken)
	if err != nil {
		return picket.Handoff{}, err
	}
	r := &reply{script: "claim"}
	l := r.list(got)
	h := r.handoffRow(l[min(2, len(l)):], r.int(r.at(l, 0)), r.int(r.at(l, 1)))
	if h == nil {
		return picket.Handoff{}, cmp.Or(r.err, errors.New("reply of claim: no hand-off"))
	}
	return *h, r.err
}

// Answer decides a hand-off; its task is queued again with the answer in the
// context of all later runs.
func (e *Engine) Answer(ctx context.Context, by picket.Caller, handoffID string,
	req picket.AnswerRequest) (picket.Task, error) {
	if err := picket.CheckID("handoffId", "handoff", handoffID); err != nil {
		return picket.Task{}, err
	}
	if isNull(req.Answer) && req.Option == nil && !editsInput(req) {
		return picket.Task{}, picket.Invalid("/answer",
			`Send {"answer": "…"}, {"option": "…"}, {"input": …} or, for the input null, {"clearInput": true}.`,
			"answer, option or input is required")
	}
	if req.ClearInput && !isNull(req.Input) {
		return picket.Task{}, picket.Invalid("/clearInput", "Send the input or clearInput, not both.",
			"there is an input, and it is to be null")
	}
	if len(req.Answer) > picket.MaxPayload {
		return picket.Task{}, picket.TooLarge("/answer", len(req.Answer))
	}
	if len(req.Input) > picket.MaxPayload {
		return picket.Task{}, picket.TooLarge("/input", len(req.Input))
	}
	answer, input, option, choice := orNull(req.Answer), "", "null", ""
	if editsInput(req) {
		input = orNull(req.Input)
	}
	if req.Option != nil {
		b, err := jsonv2.Marshal(*req.Option)
		if err != nil {
			return picket.Task{}, fmt.Errorf("encode option: %w", err)
		}
		option, choice = string(b), *req.Option
	}
	return e.runForTask(ctx, "answer", handoffID, by.Actor, by.Idempotency.Key, by.Idempotency.Body, answer, option,
		choice, input,
		answerText(req))
}

// editsInput tells whether an answer changes the input of the task.
func editsInput(req picket.AnswerRequest) bool { return req.ClearInput || !isNull(req.Input) }

// orNull is a JSON member as it is stored.
func orNull(raw picket.RawJSON) string {
	if isNull(raw) {
		return "null"
	}
	return string(raw)
}

// answerText is an answer in a few words.
func answerText(req picket.AnswerRequest) string {
	var said []string
	if req.Option != nil {
		said = append(said, *req.Option)
	}
	if !isNull(req.Answer) {
		said = append(said, jsonText(req.Answer))
	}
	if len(said) == 0 {
		return "edited the input"
	}
	return excerpt(strings.Join(said, ": "))
}

// jsonText is a value as a person reads it: text without its quotes.
func jsonText(raw picket.RawJSON) string {
	var text string
	if jsonv2.Unmarshal(raw, &text) == nil {
		return excerpt(text)
	}
	return excerpt(string(raw))
}

// Finish completes the task of a hand-off with a person's own output.
func (e *Engine) Finish(ctx context.Context, by picket.Caller, handoffID string,
	output picket.RawJSON) (picket.Task, error) {
	if err := picket.CheckID("handoffId", "handoff", handoffID); err != nil {
		return picket.Task{}, err
	}
	if isNull(output) {
		return picket.Task{}, picket.Invalid("/output", "Send the result of the task.", "output is required")
	}
	out, err := outputJSON(output, "")
	if err != nil {
		return picket.Task{}, err
	}
	return e.runForTask(ctx, "finish", handoffID, by.Actor, by.Idempotency.Key, by.Idempotency.Body, out,
		jsonText(output))
}

// CancelHandoff cancels the task of an open hand-off.
func (e *Engine) CancelHandoff(ctx context.Context, by picket.Caller, handoffID, reason string) (picket.Task, error) {
	if err := picket.CheckID("handoffId", "handoff", handoffID); err != nil {
		return picket.Task{}, err
	}
	return e.runForTask(ctx, "cancel", handoffID, by.Actor, by.Idempotency.Key, by.Idempotency.Body, reason)
}

// isNull reports whether a JSON member was not sent, or sent as null.
func isNull(raw picket.RawJSON) bool { return len(raw) == 0 || string(raw) == "null" }

// Approve completes a task in review. It fails with CodeVersion if the current
// digest of the review is not d.Digest, and with CodePreconditionRequired if the
// task has evidence and d.Digest is empty.
func (e *Engine) Approve(ctx context.Context, by picket.Caller, taskID string, d picket.Decision) (picket.Task, error) {
	t, _, err := e.review(ctx, by, taskID, "approve", d, nil)
	return t, err
}

// Reject closes a task in review as rejected. With fix it creates, in the same
// step, the task that repairs it and returns that task's id. The digest is
// checked as by Approve.
func (e *Engine) Reject(ctx context.Context, by picket.Caller, taskID string, d picket.Decision,
	fix *picket.TaskSpec) (picket.Task, string, error) {
	return e.review(ctx, by, taskID, "reject", d, fix)
}

func (e *Engine) review(ctx context.Context, by picket.Caller, taskID, decision string, d picket.Decision,
	fix *picket.TaskSpec) (picket.Task, string, error) {
	if err := picket.CheckID("taskId", "task", taskID); err != nil {
		return picket.Task{}, "", err
	}
	if err := d.Check(); err != nil {
		return picket.Task{}, "", err
	}
	args := []any{taskID, decision, by.Actor, by.Idempotency.Key, by.Idempotency.Body, d.Note, d.Digest, "0"}
	if fix != nil {
		spec := *fix
		if spec.Fixes != "" && spec.Fixes != taskID {
			return picket.Task{}, "",
				picket.Invalid("/fix/fixes", "Leave fixes out: it is the rejected task.", "fixes names another task")
		}
		spec.Fixes = taskID
		if err := e.normalize(&spec); err != nil {
			return picket.Task{}, "", picket.PrefixField("/fix", err)
		}
		fields, err := e.specArgs("task_"+ulid.Make().String(), by.Actor, spec)
		if err != nil {
			return picket.Task{}, "", err
		}
		args[7] = "1"
		args = append(args, fields...)
	}
	got, err := e.run(ctx, "review", args...)
	if err != nil {
		return picket.Task{}, "", err
	}
	r := &reply{script: "review"}
	l := r.list(got)
	id, t := r.text(r.at(l, 0)), r.task(r.at(l, 1))
	return t, id, r.err
}
