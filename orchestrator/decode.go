package orchestrator

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	jsonv2 "github.com/go-json-experiment/json"

	"github.com/picket-dev/picket"
)

// reply walks what a script answered. A shape that is not the one expected is
// a bug of ours; the first one is kept and reported by err.
type reply struct {
	script string
	err    error
}

func (r *reply) fail(want string, got any) {
	if r.err == nil {
		r.err = fmt.Errorf("reply of %s: want %s, got %T", r.script, want, got)
	}
}

func (r *reply) list(v any) []any {
	if v == nil {
		return nil
	}
	l, ok := v.([]any)
	if !ok {
		r.fail("a list", v)
	}
	return l
}

func (r *reply) text(v any) string {
	switch v := v.(type) {
	case nil:
		return ""
	case string:
		return v
	case int64:
		return strconv.FormatInt(v, 10)
	}
	r.fail("a string", v)
	return ""
}

func (r *reply) int(v any) int64 {
	switch v := v.(type) {
	case nil:
		return 0
	case int64:
		return v
	case string:
		// Scores come back as floats where they grow large.
		n, err := strconv.ParseFloat(v, 64)
		if v == "" {
			return 0
		}
		if err != nil {
			r.fail("a number", v)
		}
		return int64(n)
	}
	r.fail("a number", v)
	return 0
}

func (r *reply) hash(v any) map[string]string {
	flat := r.list(v)
	m := make(map[string]string, len(flat)/2)
	for i := 0; i+1 < len(flat); i += 2 {
		m[r.text(flat[i])] = r.text(flat[i+1])
	}
	return m
}

func (r *reply) at(l []any, i int) any {
	if i >= len(l) {
		r.fail(fmt.Sprintf("at least %d elements", i+1), l)
		return nil
	}
	return l[i]
}

func (r *reply) json(v any, into any) {
	s := r.text(v)
	if s == "" {
		return
	}
	if err := jsonv2.Unmarshal([]byte(s), into); err != nil && r.err == nil {
		r.err = fmt.Errorf("reply of %s: %w", r.script, err)
	}
}

func parseInt(s string) int64 {
	n, _ := strconv.ParseInt(s, 10, 64)
	return n
}

func optionalString(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

// specRecord is what spec:<task> holds: the submitted fields that scripts do
// not look at, without the input.
type specRecord struct {
	picket.TaskSpec
	Trace *picket.Trace `json:"trace,omitempty"`
}

// task decodes a view.
func (r *reply) task(v any) picket.Task {
	l := r.list(v)
	id, rawMs, nowMs, deadline := r.text(r.at(l, 0)), r.int(r.at(l, 1)), r.int(r.at(l, 2)), r.int(r.at(l, 3))
	t := r.taskRecord(id, r.at(l, 4), r.at(l, 5))
	if in := r.text(r.at(l, 6)); in != "" {
		t.Input = json.RawMessage(in)
	}
	var out outputRecord
	r.json(r.at(l, 7), &out)
	t.Output, t.Summary = out.Output, out.Summary
	r.taskMoney(&t, r.at(l, 13))
	for _, child := range r.list(r.at(l, 14)) {
		t.Children = append(t.Children, r.text(child))
	}
	h := r.hash(r.at(l, 4))
	for _, run := range r.list(r.at(l, 8)) {
		t.Runs = append(t.Runs, r.run(run))
	}
	if n := len(t.Runs); n > 0 && t.State == picket.TaskLeased {
		run := t.Runs[n-1]
		t.CurrentRun = &run
		t.LeaseExpiresAt = picket.Instant(rawMs + deadline - nowMs)
	}
	t.LastReport = r.report(r.at(l, 9), true)
	t.Answers = r.answers(r.at(l, 10))
	if t.Handoff = r.handoff(r.at(l, 11), rawMs, nowMs, t.LastReport); t.Handoff != nil {
		t.Handoff.Title = t.Title
	}
	if rv := r.hash(r.at(l, 12)); len(rv) > 0 {
		t.Review = &picket.Review{
			TaskID:    id,
			RunID:     rv["run"],
			Decision:  optionalString(rv["decision"]),
			Note:      rv["note"],
			By:        rv["by"],
			At:        picket.Instant(parseInt(rv["at"])),
			FixTaskID: optionalString(rv["fix"]),
			Digest:    rv["digest"],
		}
	} else if t.State == picket.TaskReview {
		t.Review = &picket.Review{TaskID: id, RunID: h["run"], Digest: r.text(r.at(l, 15))}
	}
	for i := range t.Runs {
		t.Runs[i].KeepUntil = keepUntil(t, t.Runs[i])
	}
	return t
}

// outputRecord is what out:<task> holds.
type outputRecord struct {
	Output  json.RawMessage `json:"output"`
	Summary string          `json:"summary"`
}

// taskRecord decodes the state hash and the specification.
func (r *reply) taskRecord(id string, hash, spec any) picket.Task {
	h := r.hash(hash)
	var s specRecord
	r.json(spec, &s)
	s.TaskSpec.Trace = s.Trace
	t := taskFromSpec(id, s.TaskSpec)
	t.State = picket.TaskState(h["state"])
	t.Attempts, t.Failures = int(parseInt(h["attempt"])), int(parseInt(h["failures"]))
	t.FencingToken = parseInt(h["token"])
	t.Priority = int(parseInt(h["pri"]))
	t.Fixes, t.Retries, t.RetriedAs, t.Parent = optionalString(h["fixes"]), optionalString(h["retries"]),
		optionalString(h["anew"]),
		optionalString(h["parent"])
	t.Root = cmp.Or(h["root"], id)
	t.ReviewBy = picket.ReviewBy(cmp.Or(h["review"], string(t.ReviewBy)))
	t.Reason, t.CreatedBy = h["reason"], h["by"]
	t.CreatedAt, t.UpdatedAt = picket.Instant(parseInt(h["created"])), picket.Instant(parseInt(h["updated"]))
	return t
}

// taskFromSpec is a task as its specification makes it, queued and never run.
func taskFromSpec(id string, s picket.TaskSpec) picket.Task {
	t := picket.Task{
		TaskID:            id,
		State:             picket.TaskQueued,
		Root:              id,
		Title:             s.Title,
		Input:             s.Input,
		Role:              s.Role,
		Needs:             s.Needs,
		Agent:             s.Agent,
		NotBefore:         s.NotBefore,
		TimeoutSeconds:    s.TimeoutSeconds,
		StallAfterSeconds: s.StallAfterSeconds,
		Escalate:          s.Escalate,
		ReviewBy:          s.Review,
		OnExit:            s.OnExit,
		Labels:            s.Labels,
		Trace:             s.Trace,
		Fixes:             optionalString(s.Fixes),
	}
	if s.Priority != nil {
		t.Priority = *s.Priority
	}
	if s.LeaseWindowSeconds != nil {
		t.LeaseWindowSeconds = *s.LeaseWindowSeconds
	}
	if s.Retry != nil {
		t.Retry = *s.Retry
	}
	if s.BudgetEnvelope != nil {
		t.BudgetEnvelope = *s.BudgetEnvelope
		t.Available = *s.BudgetEnvelope
	}
	return t
}

func (r *reply) run(v any) picket.Run {
	l := r.list(v)
	h := r.hash(r.at(l, 1))
	run := picket.Run{
		RunID:         r.text(r.at(l, 0)),
		TaskID:        h["task"],
		AgentID:       h["agent"],
		FencingToken:  parseInt(h["token"]),
		Attempt:       int(parseInt(h["attempt"])),
		State:         picket.RunState(h["state"]),
		StartedAt:     picket.Instant(parseInt(h["started"])),
		EndedAt:       picket.Instant(parseInt(h["ended"])),
		WorkspacePath: h["workspace"],
		Containment:   h["containment"],
		Spent:         amountColumn(h, "spent"),
	}
	for t := range strings.SplitSeq(strings.Trim(h["tokens"], ","), ",") {
		run.Tokens = append(run.Tokens, parseInt(t))
	}
	if run.State != picket.RunRunning {
		run.Exit = decodeExit(h, r.text(r.at(l, 2)))
	}
	return run
}

func decodeExit(h map[string]string, detail string) *picket.Exit {
	x := &picket.Exit{Class: picket.ExitClass(h["class"]), Signal: optionalString(h["signal"]), Detail: detail}
	if h["code"] != "" {
		code := int(parseInt(h["code"]))
		x.Code = &code
	}
	if h["duration"] != "" {
		ms := parseInt(h["duration"])
		x.DurationMs = &ms
	}
	return x
}

// report decodes "seq at run token json"; nil when there is none.
func (r *reply) report(v any, pinned bool) *picket.Report {
	s := r.text(v)
	if s == "" {
		return nil
	}
	part := strings.SplitN(s, " ", 5)
	if len(part) != 5 {
		r.fail("a report", v)
		return nil
	}
	rep := &picket.Report{
		Seq:          parseInt(part[0]),
		At:           picket.Instant(parseInt(part[1])),
		RunID:        part[2],
		FencingToken: parseInt(part[3]),
		Pinned:       pinned,
	}
	r.json(part[4], &rep.Progress)
	return rep
}

func (r *reply) answers(v any) []picket.Answer {
	var out []picket.Answer
	for _, a := range r.list(v) {
		if one := r.answer(a); one != nil {
			out = append(out, *one)
		}
	}
	return out
}

func (r *reply) answer(v any) *picket.Answer {
	if r.text(v) == "" {
		return nil
	}
	var a struct {
		HandoffID   string          `json:"handoffId"`
		Question    string          `json:"question"`
		Answer      json.RawMessage `json:"answer"`
		Option      *string         `json:"option"`
		Input       json.RawMessage `json:"input"`
		InputEdited bool            `json:"inputEdited"` // not in what was written before there was an input null
		By          string          `json:"by"`
		AtMs        int64           `json:"atMs"`
	}
	r.json(v, &a)
	return &picket.Answer{
		HandoffID:   a.HandoffID,
		Question:    a.Question,
		Answer:      a.Answer,
		Option:      a.Option,
		Input:       a.Input,
		InputEdited: a.InputEdited || !isNull(a.Input),
		By:          a.By,
		At:          picket.Instant(a.AtMs),
	}
}

func (r *reply) handoff(v any, rawMs, nowMs int64, last *picket.Report) *picket.Handoff {
	l := r.list(v)
	if len(l) == 0 {
		return nil
	}
	h := r.hash(r.at(l, 1))
	var body struct {
		Question string   `json:"question"`
		Options  []string `json:"options"`
	}
	r.json(h["body"], &body)
	out := &picket.Handoff{
		HandoffID:  r.text(r.at(l, 0)),
		TaskID:     h["task"],
		RunID:      h["run"],
		Kind:       picket.HandoffKind(h["kind"]),
		Question:   body.Question,
		Options:    body.Options,
		LastReport: last,
		OnDeadline: picket.OnDeadline(h["policy"]),
		ClaimedBy:  h["claimed"],
		State:      picket.HandoffState(h["state"]),
		CreatedAt:  picket.Instant(parseInt(h["created"])),
		Answer:     r.answer(r.at(l, 2)),
		ClaimedAt:  picket.Instant(parseInt(h["claimed_at"])),
		Work:       r.work(r.at(l, 3), r.at(l, 4)),
	}
	if last != nil {
		out.Tried = slices.Clone(last.Attempted)
	}
	if d := parseInt(h["deadline"]); d > 0 {
		out.Deadline = picket.Instant(rawMs + d - nowMs)
	}
	return out
}
