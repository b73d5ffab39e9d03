package orchestrator

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/budget"
	"github.com/picket-dev/picket/internal/text"
	"github.com/picket-dev/picket/orchestrator/store"
)

// The fenced verbs: each takes the credential of a run right after its
// context and is refused unless that run's lease still holds.

func credentialArgs(held picket.LeaseCredential) ([]any, error) {
	if held.OfSession() {
		return nil, picket.LeaseRequired()
	}
	if held.IsZero() {
		return nil, picket.Refuse(picket.CodeUnauthenticated, "Send the lease token as a bearer.",
			"no lease credential was presented")
	}
	return []any{held.TaskID, held.RunID, held.Secret, held.Fence}, nil
}

// runHeld runs a script that begins with a run's credential. A lease from before an adoption is
// reclaimed and the call repeated, so agent and adapter do not notice the adoption.
func (e *Engine) runHeld(ctx context.Context, held picket.LeaseCredential, script string, args ...any) *reply {
	who, err := credentialArgs(held)
	if err != nil {
		return e.newReply(script, nil, err)
	}
	return e.retryReclaimed(ctx, held, func() *reply { return e.run(ctx, script, append(who, args...)...) })
}

// retryReclaimed tries a call of a lease, and tries it once more when the lease had
// to be reclaimed.
func (e *Engine) retryReclaimed(ctx context.Context, held picket.LeaseCredential, try func() *reply) *reply {
	got := try()
	if picket.CodeOf(got.Err) != picket.CodeReclaimRequired {
		return got
	}
	if _, err := e.Reclaim(ctx, held); err != nil {
		got.Err = err
		return got
	}
	got = try()
	if picket.CodeOf(got.Err) == picket.CodeReclaimRequired {
		// While a primary is replaced, two connections can lead to two servers.
		got.Err = store.Unavailable("the store is being replaced", got.Err)
	}
	return got
}

// contentHash makes a closing verb idempotent: the same content again is the
// same call.
func contentHash(parts ...string) string {
	h := sha256.New()
	for _, p := range parts {
		fmt.Fprintf(h, "%d:%s", len(p), p)
	}
	return hex.EncodeToString(h.Sum(nil)[:16])
}

// Renew extends the lease to a full window from now. It never revives one.
func (e *Engine) Renew(ctx context.Context, held picket.LeaseCredential) (picket.Renewal, error) {
	return e.renew(ctx, held, "")
}

// renew renews a lease that was acquired with the key of this id, or with any key if it is empty.
func (e *Engine) renew(ctx context.Context, held picket.LeaseCredential, keyID string) (picket.Renewal, error) {
	start := time.Now()
	r := e.runHeld(ctx, held, "renew", keyID)
	out, left := r.renewal()
	if r.Err == nil {
		e.metrics.recordRenewal(out, left, time.Since(start))
	}
	return out, r.Err
}

// renewal decodes the reply of renew, or its beginning, which reclaim answers. left
// is how many ms of the window were left, "" when the renewal confirms the grant.
func (r *reply) renewal() (out picket.Renewal, left string) {
	var raw int64
	var idle, nudge string
	var newest string
	var execs []execView
	r.Scan(r.Value, &raw, &out.LeaseTTLMs, &out.FencingToken, &idle, &nudge, &execs, &left, &newest)
	out.LeaseExpiresAt = picket.Instant(raw + out.LeaseTTLMs)
	if idle != "" {
		ms := store.ParseInt(idle)
		out.IdleMs = &ms
	}
	out.Commands = append(r.nudgeCommand(nudge), r.execCommands(execs)...)
	out.Commands = append(out.Commands, messagesCommand(newest)...)
	return out, left
}

// Release gives the lease back with the exit of a process that is dead; the
// task's retry policy decides its new state.
func (e *Engine) Release(ctx context.Context, held picket.LeaseCredential, exit picket.Exit) (picket.TaskState, error) {
	if !slices.Contains(picket.ReleaseClasses, exit.Class) {
		return "", invalidExitClass(exit.Class, picket.ReleaseClasses)
	}
	code, signal, ms := exitArgs(exit)
	detail := text.Tail(exit.Detail, 8<<10)
	hash := contentHash(string(exit.Class), code, signal)
	if err := checkLastEvent(exit); err != nil {
		return "", err
	}
	return e.runHeld(ctx, held, "release", hash, string(exit.Class), code, signal, ms, detail,
		lastEventArg(exit)).taskState()
}

func invalidExitClass(class picket.ExitClass, allowed []picket.ExitClass) error {
	names := make([]string, len(allowed))
	for i, c := range allowed {
		names[i] = string(c)
	}
	list := strings.Join(names, ", ")
	return picket.Invalid("/exit/class", "Send one of: "+list+".", "exit class is %q, allowed are %s", class, list)
}

func exitArgs(x picket.Exit) (code, signal, ms string) {
	if x.Code != nil {
		code = fmt.Sprint(*x.Code)
	}
	if x.Signal != nil {
		signal = *x.Signal
	}
	if x.DurationMs != nil {
		ms = fmt.Sprint(*x.DurationMs)
	}
	return code, signal, ms
}

func checkLastEvent(x picket.Exit) error {
	if x.LastEvent != nil && len(*x.LastEvent) > picket.MaxEventID {
		return picket.Invalid("/lastEventId", "Send the id of the last event of the run.",
			"lastEventId has %d bytes, at most %d are allowed", len(*x.LastEvent), picket.MaxEventID)
	}
	return nil
}

// lastEventArg encodes the last event of a run for the scripts: "" if it is not
// named, "none" if no event was sent, else "=" and the id.
func lastEventArg(x picket.Exit) string {
	switch {
	case x.LastEvent == nil:
		return ""
	case *x.LastEvent == "":
		return "none"
	}
	return "=" + *x.LastEvent
}

// taskState is for a script that answers the state that a task has now.
func (r *reply) taskState() (picket.TaskState, error) {
	return picket.TaskState(r.Text(r.Value)), r.Err
}

// Fail is the agent's own word that it cannot do the task; a retryable failure
// is tried again while attempts remain.
func (e *Engine) Fail(ctx context.Context, held picket.LeaseCredential, reason string,
	retryable bool) (picket.TaskState, error) {
	flag := boolArg(retryable)
	return e.runHeld(ctx, held, "fail", contentHash(reason, flag), text.Tail(reason, 8<<10), flag,
		string(picket.ExitAgentFailed)).taskState()
}

// Decline is the agent's own word that it will not do the task. The task has failed then, and nobody tries it again.
func (e *Engine) Decline(ctx context.Context, held picket.LeaseCredential, reason string) (picket.TaskState, error) {
	return e.runHeld(ctx, held, "fail", contentHash(reason, string(picket.ExitRejected)), text.Tail(reason, 8<<10),
		boolArg(false), string(picket.ExitRejected)).taskState()
}

// Report stores a progress report and pins it. The same requestID among the
// run's last 32 gets the same answer; an empty one is never repeated.
func (e *Engine) Report(ctx context.Context, held picket.LeaseCredential, requestID string,
	p picket.Progress) (picket.Reported, error) {
	if strings.TrimSpace(p.Summary) == "" {
		return picket.Reported{}, picket.Invalid("/summary", "Say in a sentence what is done.", "summary is required")
	}
	body, err := json.Marshal(p)
	if err != nil {
		return picket.Reported{}, fmt.Errorf("encode report: %w", err)
	}
	if len(body) > picket.MaxPayload {
		return picket.Reported{}, picket.TooLarge("report", len(body))
	}
	r := e.runHeld(ctx, held, "report", requestID, contentHash(string(body)), string(body),
		describeCall("report_progress", string(body)), e.quotas().ReportBytes,
		text.Shorten(text.OneLine(p.Summary), picket.MaxReportNote), e.quotas().Reports)
	if r.endedByLoop() {
		return picket.Reported{}, loopRefusal("report_progress")
	}
	var v struct {
		Seq    int64  `reply:"seq"`
		Nudge  string `reply:"nudge"`
		Unread int    `reply:"unread"`
	}
	r.Decode(&v)
	return picket.Reported{Seq: v.Seq, Pinned: true, Nudge: r.nudge(v.Nudge), Unread: v.Unread}, r.Err
}

// Complete ends the lease with an output; the task goes to review, or is completed when nobody
// reviews it. With open subtasks it is refused unless c says what happens to them.
func (e *Engine) Complete(ctx context.Context, held picket.LeaseCredential,
	c picket.Completion) (picket.TaskState, error) {
	args, err := completionArgs(c)
	if err != nil {
		return "", err
	}
	return e.runHeld(ctx, held, "complete", args...).taskState()
}

// Reply ends the lease with a message that answers the client of the task, and completes the task.
func (e *Engine) Reply(ctx context.Context, held picket.LeaseCredential, m picket.Reply) (picket.TaskState, error) {
	if err := m.Normalize(); err != nil {
		return "", err
	}
	parts, err := json.Marshal(map[string]any{"parts": m.Parts})
	if err != nil {
		return "", fmt.Errorf("encode message: %w", err)
	}
	out, err := json.Marshal(outputRecord{Output: parts, Reply: true})
	if err != nil {
		return "", fmt.Errorf("encode message: %w", err)
	}
	said := text.OneLine(text.Shorten(m.Text(), maxFactText))
	return e.runHeld(ctx, held, "complete", contentHash(string(out), string(m.Children)), string(out),
		string(m.Children), said, boolArg(true)).taskState()
}

// completionArgs is what complete.lua takes after the credential.
func completionArgs(c picket.Completion) ([]any, error) {
	if err := c.Children.Check(); err != nil {
		return nil, err
	}
	out, err := outputJSON(outputRecord{Output: c.Output, Summary: c.Summary})
	if err != nil {
		return nil, err
	}
	hash := contentHash(out)
	if c.Children != "" {
		hash = contentHash(out, string(c.Children))
	}
	return []any{hash, out, string(c.Children), summaryFact(c)}, nil
}

// What events contain of texts that agents wrote, in bytes and entries.
const (
	maxFactText    = 500
	maxFactOption  = 80
	maxFactOptions = 8
)

// summaryFact is what the event of a result says about it: its summary, or else the
// beginning of the output.
func summaryFact(c picket.Completion) string {
	said := c.Summary
	if said == "" && !isNull(c.Output) {
		said = jsonText(c.Output)
	}
	return text.OneLine(text.Shorten(said, maxFactText))
}

// questionFacts are the members of an event that tell what an agent has asked, after a comma.
func questionFacts(req picket.HelpRequest) (string, error) {
	options := make([]string, 0, maxFactOptions)
	for _, o := range req.Options[:min(len(req.Options), maxFactOptions)] {
		options = append(options, text.OneLine(text.Shorten(o, maxFactOption)))
	}
	b, err := json.Marshal(struct {
		Question string   `json:"question"`
		Options  []string `json:"options"`
		More     int      `json:"moreOptions,omitzero"`
	}{text.OneLine(text.Shorten(req.Question, maxFactText)), options, len(req.Options) - len(options)})
	if err != nil {
		return "", fmt.Errorf("encode question: %w", err)
	}
	return "," + string(b[1:len(b)-1]), nil
}

func outputJSON(o outputRecord) (string, error) {
	if len(o.Output) > picket.MaxPayload {
		return "", picket.TooLarge("/output", len(o.Output))
	}
	if len(o.Summary) > 16<<10 {
		return "", picket.TooLarge("/summary", len(o.Summary))
	}
	out, err := json.Marshal(o)
	if err != nil {
		return "", picket.Invalid("/output", "Send valid JSON.", "output is not valid JSON").WithCause(err)
	}
	return string(out), nil
}

// RequestHelp ends the lease and parks the task until a person acts.
func (e *Engine) RequestHelp(ctx context.Context, held picket.LeaseCredential,
	req picket.HelpRequest) (picket.HelpRequested, error) {
	if err := req.Normalize(); err != nil {
		return picket.HelpRequested{}, err
	}
	body, err := json.Marshal(map[string]any{"question": req.Question, "options": req.Options},
		json.Deterministic(true))
	if err != nil {
		return picket.HelpRequested{}, fmt.Errorf("encode question: %w", err)
	}
	if len(body) > picket.MaxPayload {
		return picket.HelpRequested{}, picket.TooLarge("/question", len(body))
	}
	wait := 0
	if req.DeadlineSeconds != nil {
		wait = *req.DeadlineSeconds * 1000
	}
	hash := contentHash(string(body), string(req.Kind), fmt.Sprint(wait), string(req.OnDeadline))
	facts, err := questionFacts(req)
	if err != nil {
		return picket.HelpRequested{}, err
	}
	r := e.runHeld(ctx, held, "request_help", hash, string(req.Kind), string(body), wait, string(req.OnDeadline), facts)
	return picket.HelpRequested{HandoffID: r.Text(r.Value), State: picket.TaskHandoff}, r.Err
}

// HeldTask shows the holder of a lease its task. Asked again with the same
// requestID it is the same look; with an empty one every look counts.
func (e *Engine) HeldTask(ctx context.Context, held picket.LeaseCredential, requestID string) (picket.Task, error) {
	r := e.runHeld(ctx, held, "get_task", requestID, describeCall("get_task", "{}"))
	if r.endedByLoop() {
		return picket.Task{}, loopRefusal("get_task")
	}
	var shown struct {
		Task     taskView     `reply:"task"`
		Nudge    string       `reply:"nudge"`
		Unread   int          `reply:"unread"`
		Messages []messageRow `reply:"messages"`
	}
	r.Decode(&shown)
	t := r.taskOf(shown.Task)
	t.Nudge, t.Unread, t.Messages = r.nudge(shown.Nudge), shown.Unread, messages(shown.Messages)
	return t, r.Err
}

// Leases lists up to 1,000 live leases with how their runs go, the next to expire first.
func (e *Engine) Leases(ctx context.Context) (picket.LeasePage, error) {
	return e.FindLeases(ctx, picket.LeaseQuery{})
}

// FindLeases lists the live leases that a query selects, with how their runs go. With the order
// by need, only the 1,000 that expire first are looked at.
func (e *Engine) FindLeases(ctx context.Context, q picket.LeaseQuery) (picket.LeasePage, error) {
	limit, err := pageLimit(q.Limit, maxListRows, maxListRows)
	if err := cmp.Or(err, picket.CheckOptionalID("task", "task", q.TaskID),
		picket.CheckOptionalName("agent", q.AgentID)); err != nil {
		return picket.LeasePage{}, err
	}
	if q.TaskID != "" && q.AgentID != "" {
		return picket.LeasePage{}, picket.Invalid("agent", "Send task or agent.",
			"task and agent cannot be combined: a task has one lease")
	}
	if q.Order != "" && q.Order != picket.LeasesByExpiry && q.Order != picket.LeasesByNeed {
		return picket.LeasePage{}, picket.Invalid("order", "Send expiry or look.", "%.40q is not an order of leases",
			q.Order)
	}
	var live struct {
		Raw   int64          `reply:"raw"`
		Total int64          `reply:"total"`
		Rows  []liveLeaseRow `reply:"rows"`
	}
	r := e.run(ctx, "leases", limit, maxListRows, q.TaskID, q.AgentID, boolArg(q.Order == picket.LeasesByNeed))
	r.Decode(&live)
	page := picket.LeasePage{Leases: make([]picket.LiveLease, len(live.Rows)), Total: live.Total}
	for i, row := range live.Rows {
		page.Leases[i] = r.liveLease(row, live.Raw)
	}
	return page, r.Err
}

// liveLeaseRow is a row of leases.lua.
type liveLeaseRow struct {
	TaskID       string          `reply:"taskId"`
	RunID        string          `reply:"runId"`
	AgentID      string          `reply:"agentId"`
	AgentName    string          `reply:"agentName"`
	FencingToken int64           `reply:"fencingToken"`
	LeaseTTLMs   int64           `reply:"leaseTtlMs"`
	Renewals     int64           `reply:"renewals"`
	Attempt      int             `reply:"attempt"`
	StartedMs    int64           `reply:"startedMs"`
	IdleMs       *int64          `reply:"idleMs"`
	Spec         specRecord      `reply:"spec,json"`
	Timeout      *int            `reply:"timeout"`
	Nudge        string          `reply:"nudge"`
	ReportedMs   int64           `reply:"reportedMs"`
	Report       string          `reply:"report"`
	Granted      budget.Envelope `reply:"granted"`
	Spent        budget.Envelope `reply:"spent"`
	Held         budget.Envelope `reply:"held"`
	Carved       budget.Envelope `reply:"carved"`
}

func (r *reply) liveLease(row liveLeaseRow, raw int64) picket.LiveLease {
	l := picket.LiveLease{
		TaskID:            row.TaskID,
		RunID:             row.RunID,
		AgentID:           row.AgentID,
		FencingToken:      row.FencingToken,
		LeaseExpiresAt:    picket.Instant(raw + row.LeaseTTLMs),
		LeaseTTLMs:        row.LeaseTTLMs,
		Renewals:          row.Renewals,
		Title:             row.Spec.Title,
		Role:              row.Spec.Role,
		Labels:            row.Spec.Labels,
		AgentName:         row.AgentName,
		Attempt:           row.Attempt,
		StartedAt:         picket.Instant(row.StartedMs),
		ElapsedMs:         max(0, raw-row.StartedMs),
		TimeoutSeconds:    cmp.Or(row.Spec.TimeoutSeconds, row.Timeout),
		StallAfterSeconds: row.Spec.StallAfterSeconds,
		IdleMs:            row.IdleMs,
		Nudge:             r.nudge(row.Nudge),
		Granted:           row.Granted,
		Spent:             row.Spent,
		Held:              row.Held,
		Carved:            row.Carved,
	}
	if row.ReportedMs > 0 {
		l.LastReport = &picket.ReportNote{Summary: row.Report, At: picket.Instant(row.ReportedMs)}
	}
	return l
}

// Reclaim gives the holder of a lease from before an adoption a higher token
// under the same credential; for any other lease it changes nothing.
func (e *Engine) Reclaim(ctx context.Context, held picket.LeaseCredential) (picket.Renewal, error) {
	who, err := credentialArgs(held)
	if err != nil {
		return picket.Renewal{}, err
	}
	r := e.run(ctx, "reclaim", who...)
	out, _ := r.renewal()
	return out, r.Err
}

// describeCall describes a tool call, for the person who has to judge a loop.
func describeCall(tool, arguments string) string {
	return tool + " " + text.Shorten(arguments, 200)
}

// endedByLoop reports whether a tool call was the one that ended its run.
func (r *reply) endedByLoop() bool { return r.Err == nil && len(r.List(r.Value)) == 0 }

// loopRefusal refuses the call that ended its run, as every later one is refused.
func loopRefusal(tool string) error {
	return picket.Refuse(picket.CodeLeaseReleased, "Stop and exit: the task was taken away from this run.",
		"the same call of %s came too often in a row", tool).With("cause", string(picket.ExitStalled))
}

// nudge reads one from a run's record, nil for "".
func (r *reply) nudge(text string) *picket.Nudge {
	if text == "" {
		return nil
	}
	var n struct {
		Number int64  `json:"number"`
		Cause  string `json:"cause"`
		Reason string `json:"reason"`
		AtMs   int64  `json:"atMs"`
	}
	if err := json.Unmarshal([]byte(text), &n); err != nil {
		r.Err = fmt.Errorf("read nudge: %w", err)
		return nil
	}
	return &picket.Nudge{Number: n.Number, Cause: n.Cause, Reason: n.Reason, At: picket.Instant(n.AtMs)}
}

// nudgeCommand is a nudge as the adapter gets it.
func (r *reply) nudgeCommand(text string) []picket.Command {
	n := r.nudge(text)
	if n == nil {
		return nil
	}
	return []picket.Command{{Command: "nudge", Number: n.Number, Cause: n.Cause, Reason: n.Reason}}
}
