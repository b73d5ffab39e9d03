package orchestrator

import (
	"cmp"
	stdjson "encoding/json"
	"slices"
	"strings"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/orchestrator/store"
)

// reply decodes what a script answered into the nouns of this package. If the script
// failed, Err holds why, and every value is empty.
type reply struct {
	store.Reply
	keep picket.WorkspaceRetention
}

func (e *Engine) newReply(script string, value any, err error) *reply {
	r := &reply{store.NewReply(script, value), e.store.cfg.Workspaces}
	r.Err = err
	return r
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
	Trace  *picket.Trace      `json:"trace,omitempty"`
	Client *picket.ClientTask `json:"client,omitempty"`
}

// taskView is what the script function task_view shows.
type taskView struct {
	ID       string            `reply:"id"`
	Raw      int64             `reply:"raw"` // the server's own clock, ms
	Now      int64             `reply:"now"` // store time, ms
	Seq      int64             `reply:"seq"` // of the last event before it was read
	Deadline int64             `reply:"deadline"`
	Record   map[string]string `reply:"record"`
	Spec     specRecord        `reply:"spec,json"`
	Input    string            `reply:"input"`
	Output   outputRecord      `reply:"output,json"`
	Runs     []runView         `reply:"runs"`
	Report   string            `reply:"report"`
	Answers  []string          `reply:"answers"`
	Handoff  *handoffView      `reply:"handoff"`
	Review   map[string]string `reply:"review"`
	Envelope map[string]string `reply:"envelope"`
	Children []string          `reply:"children"`
	Emitted  []string          `reply:"emitted"`
	Digest   string            `reply:"digest"`
}

// task decodes a taskView.
func (r *reply) task() (picket.Task, error) {
	var v taskView
	r.Decode(&v)
	return r.taskOf(v), r.Err
}

func (r *reply) taskOf(v taskView) picket.Task {
	t := taskRecord(v.ID, v.Record, v.Spec)
	t.AsOf = v.Seq
	if v.Input != "" {
		t.Input = stdjson.RawMessage(v.Input)
	}
	t.Output, t.Summary, t.Reply = v.Output.Output, v.Output.Summary, v.Output.Reply
	taskMoney(&t, v.Envelope)
	t.Children = v.Children
	for _, run := range v.Runs {
		t.Runs = append(t.Runs, run.run())
	}
	if n := len(t.Runs); n > 0 && t.State == picket.TaskLeased {
		run := t.Runs[n-1]
		t.CurrentRun = &run
		t.LeaseExpiresAt = picket.Instant(v.Raw + v.Deadline - v.Now)
	}
	t.LastReport = r.report(v.Report, true)
	t.Answers = r.answers(v.Answers)
	for _, entry := range v.Emitted {
		t.Emitted = append(t.Emitted, r.emission(entry))
	}
	if t.Handoff = r.handoff(v.Handoff, v.Raw, v.Now, t.LastReport); t.Handoff != nil {
		t.Handoff.Title = t.Title
	}
	if rv := v.Review; len(rv) > 0 {
		t.Review = &picket.Review{
			TaskID:    v.ID,
			RunID:     rv["run"],
			Decision:  optionalString(rv["decision"]),
			Note:      rv["note"],
			By:        rv["by"],
			At:        picket.Instant(store.ParseInt(rv["at"])),
			FixTaskID: optionalString(rv["fix"]),
			Digest:    rv["digest"],
		}
	} else if t.State == picket.TaskReview {
		t.Review = &picket.Review{TaskID: v.ID, RunID: v.Record["run"], Digest: v.Digest}
	}
	for i := range t.Runs {
		t.Runs[i].KeepUntil = keepUntil(t, t.Runs[i], r.keep)
	}
	return t
}

// outputRecord is what out:<task> holds.
type outputRecord struct {
	Output  stdjson.RawMessage `json:"output"`
	Summary string             `json:"summary"`
	Reply   bool               `json:"reply,omitzero"` // the output is a message to the client
}

// taskRecord makes a task of its state hash and its specification.
func taskRecord(id string, h map[string]string, s specRecord) picket.Task {
	s.TaskSpec.Trace = s.Trace
	if h["client"] != "" { // a task that repeats another one has its specification, and not its client
		s.TaskSpec.Client = s.Client
	}
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
		Client:            s.Client,
		Assignee:          s.Assignee,
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

// runView is what the script function run_view shows.
type runView struct {
	ID     string            `reply:"id"`
	Record map[string]string `reply:"record"`
	Detail string            `reply:"detail"`
}

func (v runView) run() picket.Run {
	h := v.Record
	run := picket.Run{
		RunID:         v.ID,
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
		run.Exit = decodeExit(h, v.Detail)
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

// emission decodes "seq at run token json".
func (r *reply) emission(s string) (e picket.Emission) {
	part := strings.SplitN(s, " ", 5)
	if len(part) != 5 {
		r.Fail("an emission", s)
		return e
	}
	var said emittedRecord
	r.JSON(part[4], &said)
	return picket.Emission{
		Seq:          store.ParseInt(part[0]),
		At:           picket.Instant(store.ParseInt(part[1])),
		RunID:        part[2],
		FencingToken: store.ParseInt(part[3]),
		Artifact:     said.Artifact,
		Status:       said.Status,
	}
}

// report decodes "seq at run token json"; nil when there is none.
func (r *reply) report(s string, pinned bool) *picket.Report {
	if s == "" {
		return nil
	}
	part := strings.SplitN(s, " ", 5)
	if len(part) != 5 {
		r.Fail("a report", s)
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

func (r *reply) answers(texts []string) []picket.Answer {
	var out []picket.Answer
	for _, text := range texts {
		if one := r.answer(text); one != nil {
			out = append(out, *one)
		}
	}
	return out
}

func (r *reply) answer(text string) *picket.Answer {
	if text == "" {
		return nil
	}
	var a struct {
		HandoffID   string             `json:"handoffId"`
		Question    string             `json:"question"`
		Answer      stdjson.RawMessage `json:"answer"`
		Option      *string            `json:"option"`
		Input       stdjson.RawMessage `json:"input"`
		InputEdited bool               `json:"inputEdited"` // not in what was written before there was an input null
		By          string             `json:"by"`
		AtMs        int64              `json:"atMs"`
	}
	r.JSON(text, &a)
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

// handoffView is what the script function handoff_view shows.
type handoffView struct {
	ID        string            `reply:"id"`
	Record    map[string]string `reply:"record"`
	Answer    string            `reply:"answer"`
	Workspace string            `reply:"workspace"`
	Work      string            `reply:"work"`
}

func (r *reply) handoff(v *handoffView, rawMs, nowMs int64, last *picket.Report) *picket.Handoff {
	if v == nil {
		return nil
	}
	h := v.Record
	var body struct {
		Question string   `json:"question"`
		Options  []string `json:"options"`
	}
	r.JSON(h["body"], &body)
	out := &picket.Handoff{
		HandoffID:  v.ID,
		TaskID:     h["task"],
		RunID:      h["run"],
		Kind:       picket.HandoffKind(h["kind"]),
		Question:   body.Question,
		Options:    body.Options,
		LastReport: last,
		OnDeadline: picket.OnDeadline(h["policy"]),
		ClaimedBy:  h["claimed"],
		Assignee:   h["assignee"],
		State:      picket.HandoffState(h["state"]),
		CreatedAt:  picket.Instant(store.ParseInt(h["created"])),
		Answer:     r.answer(v.Answer),
		ClaimedAt:  picket.Instant(store.ParseInt(h["claimed_at"])),
		Work:       r.work(v.Workspace, v.Work),
	}
	if last != nil {
		out.Tried = slices.Clone(last.Attempted)
	}
	if d := store.ParseInt(h["deadline"]); d > 0 {
		out.Deadline = picket.Instant(rawMs + d - nowMs)
	}
	return out
}
