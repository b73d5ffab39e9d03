package orchestrator

import (
	"cmp"
	"context"
	"errors"
	"strconv"

	"github.com/oklog/ulid/v2"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/orchestrator/heartbeat"
)

// WakePolicy reads the wake policy of an agent name. A name without one has a policy that is not Present.
// The policy is that of the file in the directory of the server, if the file was edited.
func (e *Engine) WakePolicy(ctx context.Context, name string) (picket.WakePolicy, error) {
	stored, err := e.storedPolicy(ctx, name, "")
	return e.policyNow(name, stored), err
}

// CheckOwnsName refuses a key that has registered no live agent of an agent name.
func (e *Engine) CheckOwnsName(ctx context.Context, key, name string) error {
	if err := picket.CheckName("name", name); err != nil {
		return err
	}
	r := e.run(ctx, "owns_name", name, key)
	var v struct {
		Owns bool `reply:"owns"`
	}
	if r.Decode(&v); r.Err != nil || v.Owns {
		return r.Err
	}
	return picket.Refuse(picket.CodeForbidden, "Use the key that registered an agent of this name, or one with scope reviewer.",
		"this key has registered no live agent of the name %s", name)
}

// policyOf shows a stored revision as the policy of a name, under the settings of this process.
func (e *Engine) policyOf(name string, r policyRow) picket.WakePolicy {
	return r.policy(name, e.store.cfg.Wake)
}

// PolicyStatus says what the wake policy of an agent name means at an instant; 0 is now, by the clock of
// the store.
func (e *Engine) PolicyStatus(ctx context.Context, name string, at picket.Instant) (picket.PolicyStatus, error) {
	stored, err := e.storedPolicy(ctx, name, "")
	if err != nil {
		return picket.PolicyStatus{}, err
	}
	at = cmp.Or(at, stored.now)
	wake := e.store.cfg.Wake
	p := e.policyNow(name, stored)
	s := picket.PolicyStatus{AgentName: name, Present: p.Present, Valid: p.Valid, Enabled: p.Enabled,
		Summary: p.Summary, Digest: p.Digest, RevisionID: p.RevisionID, At: at, Diagnostics: p.Diagnostics,
		MinInterval: p.MinInterval, EffectiveMinInterval: p.EffectiveMinInterval, File: p.File,
		Instructions: p.Instructions}
	read, _ := policyRow{Body: p.Body}.parse(wake, heartbeat.ModeFile)
	switch {
	case !wake.Enabled:
		s.Reason = picket.WakeReasonDisabled
	case policyFileError(p) != nil:
		s.Reason = picket.WakeReason(picket.CodePolicyConflict)
	case !p.Present:
		s.Reason = picket.WakeReasonNoPolicy
	case !p.Valid:
		s.Reason = picket.WakeReasonInvalid
	case !p.Enabled:
		s.Reason = picket.WakeReasonDisabled
	case !read.Hours(wake).Allows(at):
		s.Reason = picket.WakeReasonQuietWindow
		if next, ok := read.Hours(wake).Next(at); ok {
			s.NextAllowedAt = &next
		}
	}
	s.Active = s.Reason == ""
	s.WakeBudget, err = e.wakeBudget(ctx, name)
	return s, err
}

// ValidatePolicy returns what a text would be as a wake policy. It changes nothing. The policy of an
// invalid text does not repeat the text, because it may contain a token or a key.
func (e *Engine) ValidatePolicy(name, body string) (picket.WakePolicy, error) {
	if err := picket.CheckName("name", name); err != nil {
		return picket.WakePolicy{}, err
	}
	p := policyRow{Body: body}.shown(name, e.store.cfg.Wake, heartbeat.ModeWrite)
	p.RevisionID, p.WrittenAt, p.WrittenBy = "", nil, ""
	if !p.Valid {
		p.Body, p.Summary = "", ""
	}
	return p, PolicyError(p)
}

// PolicyError is the refusal of an invalid policy, and of one in conflict with its file. It has the policy
// with its diagnostics.
func PolicyError(p picket.WakePolicy) error {
	if err := policyFileError(p); err != nil {
		return err
	}
	if p.Valid || !p.Present {
		return nil
	}
	first := picket.PolicyDiagnostic{}
	for _, d := range p.Diagnostics {
		if d.Severity == string(heartbeat.SeverityError) {
			first = d
			break
		}
	}
	where := first.SourcePath
	if first.Line > 0 {
		where = "line " + strconv.Itoa(first.Line)
	}
	return picket.Refuse(picket.CodePolicyInvalid,
		"Change what the diagnostics name, and check it with picket agent heartbeat validate.",
		"the wake policy is invalid: %s: %s", where, first.Message).With("policy", p)
}

// WritePolicy makes a text the wake policy of an agent name, if the policy still has the digest that the
// request expects. The same request again changes nothing.
func (e *Engine) WritePolicy(ctx context.Context, by picket.Caller, name string,
	w picket.PolicyWrite) (picket.WakePolicy, error) {
	if _, err := e.ValidatePolicy(name, w.Body); err != nil {
		return picket.WakePolicy{}, err
	}
	return e.changePolicy(ctx, by, name, w.ExpectedDigest, policyChange{action: picket.PolicyWritten, body: w.Body})
}

// DeletePolicy leaves an agent name without a wake policy. Its revisions stay.
func (e *Engine) DeletePolicy(ctx context.Context, by picket.Caller, name string,
	c picket.PolicyCondition) (picket.WakePolicy, error) {
	return e.changePolicy(ctx, by, name, c.ExpectedDigest, policyChange{action: picket.PolicyDeleted})
}

// RollbackPolicy makes the exact text of an earlier revision the wake policy again.
func (e *Engine) RollbackPolicy(ctx context.Context, by picket.Caller, name string,
	r picket.PolicyRollback) (picket.WakePolicy, error) {
	if err := cmp.Or(picket.CheckName("name", name), r.Check()); err != nil {
		return picket.WakePolicy{}, err
	}
	target, err := e.revision(ctx, name, r)
	if err != nil {
		return picket.WakePolicy{}, err
	}
	return e.changePolicy(ctx, by, name, r.ExpectedDigest,
		policyChange{action: picket.PolicyRolledBack, body: target.Body, restored: target.ID})
}

// revision finds the revision that a rollback names. A digest is looked for as it was at the time of
// the change, and as it is under the settings of today.
func (e *Engine) revision(ctx context.Context, name string, r picket.PolicyRollback) (policyRow, error) {
	if r.RevisionID != "" {
		stored, err := e.storedPolicy(ctx, name, r.RevisionID)
		row := stored.row
		if err == nil && row.Action == picket.PolicyDeleted {
			err = picket.Invalid("/revision_id", "Name the revision before it, or delete the policy.",
				"the revision is a deletion, and has no text to restore")
		}
		return row, err
	}
	for before := int64(0); ; {
		rows, _, next, err := e.policyRows(ctx, name, before, picket.MaxPolicyRevisions)
		if err != nil {
			return policyRow{}, err
		}
		for _, row := range rows {
			if row.Action != picket.PolicyDeleted &&
				(row.Digest == r.TargetDigest || e.policyOf(name, row).Digest == r.TargetDigest) {
				return row, nil
			}
		}
		if before = next; next == 0 {
			return policyRow{}, picket.Refuse(picket.CodeRevisionNotFound,
				"List them: picket agent heartbeat history "+name+".", "no revision that is kept has this digest")
		}
	}
}

// policyChange is what a change makes of a policy.
type policyChange struct {
	action   string
	body     string
	restored string // id of a revision
}

// maxPolicyTries bounds how often a change looks again at a policy that others change at the same time.
const maxPolicyTries = 5

// noRevision is the id of no revision. A change that expects it is refused, unless the same request was
// made before.
const noRevision = "-"

// changePolicy changes a policy that has the digest that is expected. The script compares the revision
// that was read here, so that nobody changes it in between.
func (e *Engine) changePolicy(ctx context.Context, by picket.Caller, name, expected string,
	c policyChange) (p picket.WakePolicy, err error) {
	id, digest := "revision_"+ulid.Make().String(), ""
	if c.action != picket.PolicyDeleted {
		digest = e.policyOf(name, policyRow{Body: c.body, ID: id}).Digest
	}
	for range maxPolicyTries {
		stored, err := e.storedPolicy(ctx, name, "")
		if err != nil {
			return p, err
		}
		now, from := e.policyNow(name, stored), stored.row.ID
		if !admits(now, expected) || isOfWorkspace(now) {
			from = noRevision
		}
		r := e.run(ctx, "change_policy", name, from, id, c.action, c.restored, c.body, digest,
			cmp.Or(by.Key, by.Actor), by.Idempotency.Key, by.Idempotency.Body, stored.overFile())
		var made policyRow
		switch r.Decode(&made); {
		case r.Err == nil:
			return e.policyOf(name, made), nil
		case !errors.Is(r.Err, picket.CodePolicyConflict):
			return p, r.Err
		case isOfWorkspace(now):
			return p, picket.Refuse(picket.CodeStateConflict, "Edit "+now.File.Path+" beside picket.yaml on the "+
				"server, and run there: picket config trust",
				"the wake policy of %s is in the files beside picket.yaml", name)
		case !admits(now, expected):
			return p, policyConflict(name, now.Digest, expected)
		}
	}
	return p, picket.Refuse(picket.CodePolicyConflict, "Read the policy, and send the change again.",
		"others changed the wake policy of %s at the same time", name)
}

// policyConflict is the refusal of a change that expects another policy than the one that is there.
// digest is that of the policy; it or expected is empty for no policy.
func policyConflict(name, digest, expected string) error {
	is, remedy := name+" has another wake policy now", "Read it: picket agent heartbeat inspect "+name+
		". Then send the change with its digest, as expected_digest or --if-match."
	switch {
	case digest == "":
		is, remedy = name+" has no wake policy", "Leave out expected_digest (--if-match) to make the first one."
	case expected == "":
		is = name + " has a wake policy already"
	}
	return picket.Refuse(picket.CodePolicyConflict, remedy, "%s", is).With("currentDigest", digest)
}

// PolicyHistory pages through the revisions of the wake policy of an agent name, newest first.
func (e *Engine) PolicyHistory(ctx context.Context, name string,
	q picket.PolicyHistoryQuery) (picket.PolicyHistory, error) {
	limit, err := pageLimit(q.Limit, 20, picket.MaxPolicyRevisions)
	if err := cmp.Or(err, picket.CheckName("name", name)); err != nil {
		return picket.PolicyHistory{}, err
	}
	rows, current, next, err := e.policyRows(ctx, name, max(q.Cursor, 0), limit)
	page := picket.PolicyHistory{AgentName: name, Revisions: make([]picket.PolicyRevision, len(rows)), Cursor: next}
	for i, row := range rows {
		page.Revisions[i] = picket.PolicyRevision{RevisionID: row.ID, Action: row.Action, Restored: row.Of,
			Digest: row.Digest, Body: row.Body, WrittenAt: picket.Instant(row.At), WrittenBy: row.By,
			Current: row.ID == current}
	}
	return page, err
}

// policyRows reads revisions, newest first. next is the cursor of the page after these, or 0.
func (e *Engine) policyRows(ctx context.Context, name string, before int64,
	limit int) (rows []policyRow, current string, next int64, err error) {
	r := e.run(ctx, "policy_history", name, before, limit)
	var v struct {
		Rows    []policyRow `reply:"rows"`
		Current string      `reply:"current"`
		More    bool        `reply:"more"`
	}
	r.Decode(&v)
	if n := len(v.Rows); v.More && n > 0 {
		next = v.Rows[n-1].Number
	}
	return v.Rows, v.Current, next, r.Err
}

// storedPolicy reads the current revision of an agent name, or another one that id names.
func (e *Engine) storedPolicy(ctx context.Context, name, id string) (s storedPolicy, err error) {
	if err := picket.CheckName("name", name); err != nil {
		return s, err
	}
	if id == "" && e.refreshPolicy != nil {
		if err := e.refreshPolicy(ctx, name); err != nil {
			e.log.Warn("the file of a wake policy cannot be compared with the store", "name", name, "err", err)
		}
	}
	r := e.run(ctx, "policy", name, id)
	var v policyState
	r.Decode(&v)
	return v.stored(), r.Err
}

// policyRow is policy_row of the scripts.
type policyRow struct {
	ID     string `reply:"id"`
	Agent  string `reply:"agent"`
	Action string `reply:"action"`
	Of     string `reply:"of"`
	By     string `reply:"by"`
	At     int64  `reply:"at"` // ms
	Number int64  `reply:"number"`
	Body   string `reply:"body"`
	Digest string `reply:"digest"`
}

// parse reads the text of a revision.
func (r policyRow) parse(s heartbeat.Settings, mode heartbeat.Mode) (*heartbeat.Policy, []heartbeat.Diagnostic) {
	return heartbeat.Parse([]byte(r.Body), heartbeat.Options{Settings: s, Mode: mode, SourcePath: "HEARTBEAT.md"})
}

// policy shows a revision as the policy of a name. Without one, or after a deletion, it is not present.
func (r policyRow) policy(name string, s heartbeat.Settings) picket.WakePolicy {
	if r.ID == "" || r.Action == picket.PolicyDeleted {
		return picket.WakePolicy{AgentName: name, RevisionID: r.ID, ActiveHours: []picket.TimeWindow{},
			QuietWindows: []picket.TimeWindow{}, Include: []string{}, Diagnostics: []picket.PolicyDiagnostic{}}
	}
	return r.shown(name, s, heartbeat.ModeFile)
}

func (r policyRow) shown(name string, s heartbeat.Settings, mode heartbeat.Mode) picket.WakePolicy {
	read, found := r.parse(s, mode)
	at := picket.Instant(r.At)
	p := picket.WakePolicy{AgentName: name, Present: true, Valid: read.Valid,
		Digest: cmp.Or(read.Digest, read.RawDigest), RevisionID: r.ID, Body: r.Body, Version: read.Version,
		Enabled: read.Enabled, Summary: read.Summary, ActiveHours: timeWindows(read.Windows.Active),
		QuietWindows: timeWindows(read.Windows.Quiet), Include: []string{},
		WrittenAt: &at, WrittenBy: r.By, Diagnostics: policyDiagnostics(found)}
	if read.MinInterval != nil {
		p.MinInterval, p.EffectiveMinInterval = read.MinInterval.String(), read.OwnInterval(s).String()
	}
	for _, part := range read.Include {
		p.Include = append(p.Include, string(part))
	}
	return p
}

func policyDiagnostics(found []heartbeat.Diagnostic) []picket.PolicyDiagnostic {
	out := make([]picket.PolicyDiagnostic, len(found))
	for i, d := range found {
		out[i] = picket.PolicyDiagnostic{Code: string(d.Code), Severity: string(d.Severity),
			Message: d.Message, Path: d.Path, Line: d.Line, Column: d.Column,
			OwnerSurface: d.OwnerSurface, SourcePath: d.SourcePath}
	}
	return out
}

func timeWindows(list []heartbeat.Window) []picket.TimeWindow {
	out := make([]picket.TimeWindow, len(list))
	for i, w := range list {
		out[i] = picket.TimeWindow{Timezone: w.Timezone, Start: w.Start.String(), End: w.End.String()}
	}
	return out
}

// Policies pages through the agent names that have or had a wake policy, and those that have only a file, by
// name. It does not compare the files first, so it shows an edited file after at most two seconds.
func (e *Engine) Policies(ctx context.Context, q picket.PolicyQuery) (picket.PolicyPage, error) {
	limit, err := pageLimit(q.Limit, 50, 100)
	if q.After != "" {
		err = cmp.Or(err, picket.CheckName("after", q.After))
	}
	if err != nil {
		return picket.PolicyPage{}, err
	}
	r := e.run(ctx, "policies", q.After, limit)
	var v struct {
		Rows []policyState `reply:"rows"`
		More bool          `reply:"more"`
	}
	r.Decode(&v)
	page := picket.PolicyPage{Policies: make([]picket.PolicySummary, len(v.Rows))}
	for i, row := range v.Rows {
		p := e.policyNow(row.Name, row.stored())
		page.Policies[i] = picket.PolicySummary{AgentName: p.AgentName, Present: p.Present, Valid: p.Valid,
			Enabled: p.Enabled, Summary: p.Summary, Digest: p.Digest, WrittenAt: p.WrittenAt, File: p.File}
		if v.More {
			page.Next = row.Name
		}
	}
	return page, r.Err
}

// PolicyVersions reads the wake policy of an agent name as the store has it, and as its file has it. They
// differ only if the policy that counts has a File.
func (e *Engine) PolicyVersions(ctx context.Context, name string) (picket.PolicyVersions, error) {
	s, err := e.storedPolicy(ctx, name, "")
	v := picket.PolicyVersions{Now: e.policyNow(name, s), Stored: e.policyOf(name, s.row)}
	v.InFile = v.Stored
	if f := s.differing(); f != nil {
		v.InFile = e.policyInFile(name, name+"/HEARTBEAT.md", f)
	}
	return v, err
}
