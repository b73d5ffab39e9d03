package orchestrator

import (
	"cmp"
	"encoding/json"
	"slices"
	"strings"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/orchestrator/store"
)

// reply decodes what a script answered into the nouns of this package.
type reply struct{ store.Reply }

func newReply(script string) *reply { return &reply{store.NewReply(script)} }

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
	l := r.List(v)
	id, rawMs, nowMs, deadline := r.Text(r.At(l, 0)), r.Int(r.At(l, 1)), r.Int(r.At(l, 2)), r.Int(r.At(l, 3))
	t := r.taskRecord(id, r.At(l, 4), r.At(l, 5))
	if in := r.Text(r.At(l, 6)); in != "" {
		t.Input = json.RawMessage(in)
	}
	var out outputRecord
	r.JSON(r.At(l, 7), &out)
	t.Output, t.Summary = out.Output, out.Summary
	r.taskMoney(&t, r.At(l, 13))
	for _, child := range r.List(r.At(l, 14)) {
		t.Children = append(t.Children, r.Text(child))
	}
	h := r.Hash(r.At(l, 4))
	for _, run := range r.List(r.At(l, 8)) {
		t.Runs = append(t.Runs, r.run(run))
	}
	if n := len(t.Runs); n > 0 && t.State == picket.TaskLeased {
		run := t.Runs[n-1]
		t.CurrentRun = &run
		t.LeaseExpiresAt = picket.Instant(rawMs + deadline - nowMs)
	}
	t.LastReport = r.report(r.At(l, 9), true)
	t.Answers = r.answers(r.At(l, 10))
	if t.Handoff = r.handoff(r.At(l, 11), rawMs, nowMs, t.LastReport); t.Handoff != nil {
		t.Handoff.Title = t.Title
	}
	if rv := r.Hash(r.At(l, 12)); len(rv) > 0 {
		t.Review = &picket.Review{
			TaskID:    id,
			RunID:     rv["run"],
			Decision:  optionalString(rv["decision"]),
			Note:      rv["note"],
			By:        rv["by"],
			At:        picket.Instant(store.ParseInt(rv["at"])),
			FixTaskID: optionalString(rv["fix"]),
			Digest:    rv["digest"],
		}
	} else if t.State == picket.TaskReview {
		t.Review = &picket.Review{TaskID: id, RunID: h["run"], Digest: r.Text(r.At(l, 15))}
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
	h := r.Hash(hash)
	var s specRecord
	r.JSON(spec, &s)
	s.TaskSpec.Trace = s.Trace
	t := taskFromSpec(id, s.TaskSpec)
	t.State = picket.TaskState(h["state"])
	t.Attempts, t.Failures = int(store.ParseInt(h["attempt"])), int(store.ParseInt(h["failures"]))
	t.FencingToken = store.ParseInt(h["token"])
	t.Priority = int(store.ParseInt(h["pri"]))
	t.Fixes, t.Retries, t.RetriedAs, t.Parent = optionalString(h["fixes"]), optionalString(h["retries"]),
		optionalString(h["anew"]),
		optionalString(h["parent"])
	t.Root = cmp.Or(h["root"], id)
	t.ReviewBy = picket.ReviewBy(cmp.Or(h["review"], string(t.ReviewBy)))
	t.Reason, t.CreatedBy = h["reason"], h["by"]
	t.CreatedAt, t.UpdatedAt = picket.Instant(store.ParseInt(h["created"])),
		picket.Instant(store.ParseInt(h["updated"]))
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
	l := r.List(v)
	h := r.Hash(r.At(l, 1))
	run := picket.Run{
		RunID:         r.Text(r.At(l, 0)),
		TaskID:        h["task"],
		AgentID:       h["agent"],
		FencingToken:  store.ParseInt(h["token"]),
		Attempt:       int(store.ParseInt(h["attempt"])),
		State:         picket.RunState(h["state"]),
		StartedAt:     picket.Instant(store.ParseInt(h["started"])),
		EndedAt:       picket.Instant(store.ParseInt(h["ended"])),
		WorkspacePath: h["workspace"],
		Containment:   h["containment"],
		Spent:         amountColumn(h, "spent"),
	}
	for t := range strings.SplitSeq(strings.Trim(h["tokens"], ","), ",") {
		run.Tokens = append(run.Tokens, store.ParseInt(t))
	}
	if run.State != picket.RunRunning {
		run.Exit = decodeExit(h, r.Text(r.At(l, 2)))
	}
	return run
}

func decodeExit(h map[string]string, detail string) *picket.Exit {
	x := &picket.Exit{Class: picket.ExitClass(h["class"]), Signal: optionalString(h["signal"]), Detail: detail}
	if h["code"] != "" {
		code := int(store.ParseInt(h["code"]))
		x.Code = &code
	}
	if h["duration"] != "" {
		ms := store.ParseInt(h["duration"])
		x.DurationMs = &ms
	}
	return x
}

// report decodes "seq at run token json"; nil when there is none.
func (r *reply) report(v any, pinned bool) *picket.Report {
	s := r.Text(v)
	if s == "" {
		return nil
	}
	part := strings.SplitN(s, " ", 5)
	if len(part) != 5 {
		r.Fail("a report", v)
		return nil
	}
	rep := &picket.Report{
		Seq:          store.ParseInt(part[0]),
		At:           picket.Instant(store.ParseInt(part[1])),
		RunID:        part[2],
		FencingToken: store.ParseInt(part[3]),
		Pinned:       pinned,
	}
	r.JSON(part[4], &rep.Progress)
	return rep
}

func (r *reply) answers(v any) []picket.Answer {
	var out []picket.Answer
	for _, a := range r.List(v) {
		if one := r.answer(a); one != nil {
			out = append(out, *one)
		}
	}
	return out
}

func (r *reply) answer(v any) *picket.Answer {
	if r.Text(v) == "" {
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
	r.JSON(v, &a)
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
	l := r.List(v)
	if len(l) == 0 {
		return nil
	}
	h := r.Hash(r.At(l, 1))
	var body struct {
		Question string   `json:"question"`
		Options  []string `json:"options"`
	}
	r.JSON(h["body"], &body)
	out := &picket.Handoff{
		HandoffID:  r.Text(r.At(l, 0)),
		TaskID:     h["task"],
		RunID:      h["run"],
		Kind:       picket.HandoffKind(h["kind"]),
		Question:   body.Question,
		Options:    body.Options,
		LastReport: last,
		OnDeadline: picket.OnDeadline(h["policy"]),
		ClaimedBy:  h["claimed"],
		State:      picket.HandoffState(h["state"]),
		CreatedAt:  picket.Instant(store.ParseInt(h["created"])),
		Answer:     r.answer(r.At(l, 2)),
		ClaimedAt:  picket.Instant(store.ParseInt(h["claimed_at"])),
		Work:       r.work(r.At(l, 3), r.At(l, 4)),
	}
	if last != nil {
		out.Tried = slices.Clone(last.Attempted)
	}
	if d := store.ParseInt(h["deadline"]); d > 0 {
		out.Deadline = picket.Instant(rawMs + d - nowMs)
	}
	return out
}
