package orchestrator

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/go-json-experiment/json"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/internal/lazyregexp"
	"github.com/picket-dev/picket/internal/text"
)

// Claim notes that the caller looks after a hand-off; anybody may decide it all
// the same. What somebody else has claimed stays theirs (state_conflict) unless
// req.TakeOver is set. req.Assignee names the person for whom it is claimed.
func (e *Engine) Claim(ctx context.Context, by picket.Caller, handoffID string,
	req picket.ClaimRequest) (picket.Handoff, error) {
	refused := cmp.Or(picket.CheckID("handoffId", "handoff", handoffID),
		picket.CheckAssignee("/assignee", req.Assignee))
	r := e.runChecked(ctx, refused, "claim", handoffID, by.Actor, by.Idempotency.Key, by.Idempotency.Body,
		boolArg(req.TakeOver), req.Assignee)
	var c struct {
		Raw int64      `reply:"raw"`
		Now int64      `reply:"now"`
		Row handoffRow `reply:"row"`
	}
	r.Decode(&c)
	h := r.handoffOf(c.Row, c.Raw, c.Now)
	if h == nil {
		return picket.Handoff{}, cmp.Or(r.Err, errors.New("reply of claim: no hand-off"))
	}
	return *h, r.Err
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
			"the request has an input and also clears it")
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
		b, err := json.Marshal(*req.Option)
		if err != nil {
			return picket.Task{}, fmt.Errorf("encode option: %w", err)
		}
		option, choice = string(b), *req.Option
	}
	return e.changeTask(ctx, by, nil, "answer", handoffID, answer, option, choice, input, answerText(req))
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

// maxAnswerText is how many characters of an answer a refusal repeats.
const maxAnswerText = 500

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
	return text.Excerpt(strings.Join(said, ": "), maxAnswerText)
}

// jsonText is a value as a person reads it: text without its quotes.
func jsonText(raw picket.RawJSON) string {
	var plain string
	if json.Unmarshal(raw, &plain) == nil {
		return text.Excerpt(plain, maxAnswerText)
	}
	return text.Excerpt(string(raw), maxAnswerText)
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
	out, err := outputJSON(outputRecord{Output: output})
	return e.changeTask(ctx, by, err, "finish", handoffID, out, jsonText(output))
}

// CancelHandoff cancels the task of an open hand-off.
func (e *Engine) CancelHandoff(ctx context.Context, by picket.Caller, handoffID, reason string) (picket.Task, error) {
	return e.changeTask(ctx, by, picket.CheckID("handoffId", "handoff", handoffID), "cancel", handoffID, reason)
}

// isNull reports whether a JSON member was not sent, or sent as null.
func isNull(raw picket.RawJSON) bool { return len(raw) == 0 || string(raw) == "null" }

// Handoffs lists a page of the hand-offs of a state, oldest first. A page has
// fewer rows than asked for where they would be more than 4 MiB.
func (e *Engine) Handoffs(ctx context.Context, q picket.HandoffQuery) (picket.HandoffPage, error) {
	q.State = cmp.Or(q.State, picket.HandoffOpen)
	if !q.State.Valid() {
		return picket.HandoffPage{},
			picket.Invalid("state", "Send open, answered, finished or cancelled.", "%q is not a state of a hand-off",
				q.State)
	}
	score, before, err := handoffCursor(q.Cursor)
	err = cmp.Or(err, picket.CheckAssignee("assignee", q.Assignee))
	if err == nil {
		q.Limit, err = pageLimit(q.Limit, 50, 200)
	}
	return e.handoffs(ctx, err, string(q.State), q.Limit, score, before, q.Assignee)
}

// Handoff shows one hand-off.
func (e *Engine) Handoff(ctx context.Context, handoffID string) (picket.Handoff, error) {
	page, err := e.handoffs(ctx, picket.CheckID("handoffId", "handoff", handoffID), handoffID, 1, "", "", "")
	if err != nil {
		return picket.Handoff{}, err
	}
	if len(page.Handoffs) == 0 {
		return picket.Handoff{}, errors.New("reply of handoffs: no hand-off")
	}
	return page.Handoffs[0], nil
}

func (e *Engine) handoffs(ctx context.Context, refused error, which string, limit int,
	score, before, assignee string) (page picket.HandoffPage, err error) {
	r := e.runChecked(ctx, refused, "handoffs", which, limit, score, before, assignee)
	var p struct {
		Raw   int64        `reply:"raw"`
		Now   int64        `reply:"now"`
		Total int64        `reply:"total"`
		Next  string       `reply:"next"`
		Rows  []handoffRow `reply:"rows"`
	}
	r.Decode(&p)
	page = picket.HandoffPage{
		Handoffs:   []picket.Handoff{},
		Total:      p.Total,
		NextCursor: optionalString(p.Next),
	}
	for _, row := range p.Rows {
		if h := r.handoffOf(row, p.Raw, p.Now); h != nil {
			page.Handoffs = append(page.Handoffs, *h)
		}
	}
	return page, r.Err
}

// handoffRow is a hand-off as it stands in a list.
type handoffRow struct {
	Handoff *handoffView `reply:"handoff"`
	Report  string       `reply:"report"` // the last one of its task
	Spec    specRecord   `reply:"spec,json"`
}

func (r *reply) handoffOf(row handoffRow, rawMs, nowMs int64) *picket.Handoff {
	h := r.handoff(row.Handoff, rawMs, nowMs, r.report(row.Report, true))
	if h != nil {
		h.Title, h.Assignee = row.Spec.Title, cmp.Or(h.Assignee, row.Spec.Assignee)
	}
	return h
}

// handoffCursorSyntax is a cursor of hand-offs: the instant and the id of a row.
var handoffCursorSyntax = lazyregexp.New(`^([0-9]{1,15})\.(handoff_[0-9A-Z]{26})$`)

func handoffCursor(cursor string) (score, id string, err error) {
	if cursor == "" {
		return "", "", nil
	}
	m := handoffCursorSyntax().FindStringSubmatch(cursor)
	if m == nil {
		return "", "", badCursor("nextCursor")
	}
	return m[1], m[2], nil
}
