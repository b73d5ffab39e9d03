package console

import (
	"cmp"
	"errors"
	"net/http"
	"strconv"
	"strings"

	"github.com/aymanbagabas/go-udiff"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/internal/text"
)

// Bounds of the pages of wake policies.
const (
	maxRevisionsShown  = 10
	maxPolicyDiff      = 12 << 10 // bytes of a difference
	maxPolicyDiffLines = 300
	maxNumberedLines   = 5000
	maxFindingsShown   = 50
)

// policyList is what the list of wake policies shows.
type policyList struct {
	Rows  []picket.PolicySummary
	Next  string
	Typed string // a name that was refused
}

// listPolicies answers the list, or goes to the page of the name that was typed.
func listPolicies(v *request) error {
	name := v.parameter("name")
	if name != "" && picket.CheckName("name", name) == nil {
		return v.Redirect(http.StatusSeeOther, policyPath(name))
	}
	return v.show(func(v *request) (page, error) {
		q := picket.PolicyQuery{After: v.parameter("after"), Limit: pageRows}
		found, err := v.backend.Policies.Policies(v.ctx(), q)
		list := policyList{Rows: found.Policies, Typed: name}
		if found.Next != "" {
			list.Next = queryPath(policiesPath, "after", found.Next)
		}
		return page{
			name:    "policies",
			title:   "Wake policies",
			topics:  []string{"heartbeat_policy."},
			body:    list,
			problem: cmp.Or(err, picket.CheckOptionalName("name", name)),
		}, nil
	})
}

// policyView is what the page of a wake policy shows.
type policyView struct {
	picket.PolicyVersions
	Name   string
	Status picket.PolicyStatus
	Editor policyEditor
	Apart  bool       // file and store differ
	Diff   policyDiff // from the store to the file
	Lost   *policyLost
	Wakes  []picket.WakeRecord // the newest decisions about wakes
}

// maxWakesShown is how many decisions about wakes the page of a policy shows.
const maxWakesShown = 20

// policyEditor is a text with its line numbers and the findings about it.
type policyEditor struct {
	Name     string
	Text     string
	Expected string // digest of the policy that the text was read from
	Hidden   bool   // the policy has characters that the text does not show
	Typed    bool   // the text is what the person has typed
	Checked  picket.WakePolicy
	Findings []finding
	More     int // findings that are not shown
	Lines    []numberedLine
}

// finding is a diagnostic with the line that it is about.
type finding struct {
	picket.PolicyDiagnostic
	Source string
}

// numberedLine is a line number, with the severity of the worst finding in its line.
type numberedLine struct {
	Number   int
	Severity string
}

// policyLost is what a person wrote while somebody else changed the policy.
type policyLost struct {
	Theirs excerpt
	Diff   policyDiff // from theirs to what the person wrote
}

func showPolicy(v *request) (page, error) {
	name := v.Param("id")
	versions, err := v.backend.Policies.PolicyVersions(v.ctx(), name)
	if err != nil {
		return page{}, err
	}
	w := policyView{PolicyVersions: versions, Name: name, Apart: versions.Now.File != nil}
	if w.Status, err = v.backend.Policies.PolicyStatus(v.ctx(), name, 0); err != nil {
		return page{}, err
	}
	wakes, err := v.backend.Policies.Wakes(v.ctx(), name, picket.WakeQuery{Limit: maxWakesShown})
	if err != nil {
		return page{}, err
	}
	w.Wakes = wakes.Wakes
	if w.Apart {
		w.Diff = diffTexts(w.Stored.Body, w.InFile.Body)
	}
	switch v.route.name {
	case "policy.write", "policy.check":
		err = v.fillTyped(&w)
	default:
		w.Editor = storedEditor(versions)
	}
	return page{
		name:   "policy",
		title:  "Wake policy of " + name,
		topics: []string{"heartbeat_policy.", "agent_session.woken"},
		body:   &w,
	}, err
}

// fillTyped fills the editor with what the person has typed. After a conflict the text is compared with the
// policy of the other person, and saving it again replaces that one.
func (v *request) fillTyped(w *policyView) (err error) {
	if w.Editor, err = v.typedEditor(); err != nil {
		return err
	}
	if errors.Is(v.problem, picket.CodePolicyConflict) {
		w.Editor.Expected = w.Now.Digest
		theirs := editable(w.Now.Body)
		w.Lost = &policyLost{Theirs: newExcerpt(theirs, maxPolicyDiff), Diff: diffTexts(theirs, w.Editor.Text)}
	}
	return nil
}

// typedEditor is the editor with the text of the form, which it checks.
func (v *request) typedEditor() (policyEditor, error) {
	e := policyEditor{Name: v.Param("id"), Text: v.formValue("body"), Expected: v.formValue("expected"), Typed: true}
	checked, err := v.backend.Policies.ValidatePolicy(e.Name, e.Text)
	if err != nil && !errors.Is(err, picket.CodePolicyInvalid) {
		return e, err
	}
	e.find(checked)
	return e, nil
}

// storedEditor is the editor with the policy that counts. Where none does, or where its text is not known, it
// is the text of the store.
func storedEditor(versions picket.PolicyVersions) policyEditor {
	from := versions.Now
	if from.File != nil && from.File.State != picket.PolicyFileWorkspace &&
		(from.File.State != picket.PolicyFileEdited || from.Body == "" && !from.Valid) {
		from = versions.Stored
	}
	e := policyEditor{Name: from.AgentName, Expected: versions.Now.Digest, Text: editable(from.Body)}
	e.Hidden = e.Text != strings.ReplaceAll(from.Body, "\r\n", "\n")
	e.find(from)
	return e
}

// OfStore reports whether the editor begins with the text of the store, in place of what counts.
func (w policyView) OfStore() bool {
	return w.Apart && !w.Editor.Typed && w.Stored.Present && w.Editor.Text == editable(w.Stored.Body)
}

// editable is a text without what a field of a form would hide, or a browser would change.
func editable(body string) string { return text.Printable(strings.ReplaceAll(body, "\r\n", "\n")) }

// find takes the diagnostics of a policy, with the lines of the text that they are about.
func (e *policyEditor) find(p picket.WakePolicy) {
	e.Checked = p
	lines := strings.Split(e.Text, "\n")
	worst := map[int]string{}
	shown, more := firstRows(p.Diagnostics, maxFindingsShown)
	e.More = more
	for _, d := range shown {
		f := finding{PolicyDiagnostic: d}
		if d.Line > 0 && d.Line <= len(lines) {
			f.Source = lines[d.Line-1]
			if worst[d.Line] != severityError {
				worst[d.Line] = d.Severity
			}
		}
		e.Findings = append(e.Findings, f)
	}
	for n := 1; n <= min(len(lines), maxNumberedLines); n++ {
		e.Lines = append(e.Lines, numberedLine{n, worst[n]})
	}
}

const severityError = "error"

// Rows is how many lines the field has, with room to write.
func (e policyEditor) Rows() int { return min(max(len(e.Lines), 12), maxNumberedLines) }

// policyWords says in a sentence whether a policy allows wakes, and why it does not.
func policyWords(s picket.PolicyStatus) string {
	switch s.Reason {
	case "":
		return "The policy allows wakes now."
	case picket.WakeReasonNoPolicy:
		return "The name has no policy, so no wake is allowed."
	case picket.WakeReasonInvalid:
		return "The policy is not valid, so no wake is allowed."
	case picket.WakeReason(picket.CodePolicyConflict):
		return "The file and the store were both changed. Neither counts, and no wake is allowed."
	case picket.WakeReasonQuietWindow:
		if s.NextAllowedAt == nil {
			return "Its windows never allow a wake."
		}
		return "It is outside of the active hours, or in a quiet window."
	case picket.WakeReasonDisabled:
		if s.Enabled {
			return "The settings of the server turn all wake policies off."
		}
		return "The policy is turned off, or has no text."
	}
	return "No wake is allowed."
}

// FileWords says in a sentence how the file of a policy differs from the store.
func (w policyView) FileWords() string {
	if !w.Apart {
		return ""
	}
	switch w.Now.File.State {
	case picket.PolicyFileEdited:
		return "The file was edited, and it is the policy now. The store still has the version before."
	case picket.PolicyFileRemoved:
		return "The file is gone, so the name has no policy now. The store still has the version before."
	case picket.PolicyFileConflict:
		return "The file and the store were both changed. Choose one of them, or save another text below."
	case picket.PolicyFileRefused:
		return "A link, or something else than a file, is in the place of the file. The server does not read it."
	case picket.PolicyFileWorkspace:
		return "The name has files beside picket.yaml, and only these count. To write or change the policy, edit the file " +
			"on the server, and run picket config trust there."
	}
	return ""
}

// OfWorkspace reports whether the policy is in the trusted files beside picket.yaml, so that nobody changes it here.
func (w policyView) OfWorkspace() bool {
	return w.Apart && w.Now.File.State == picket.PolicyFileWorkspace
}

// MayUseFile reports whether what the file has can become the policy.
func (w policyView) MayUseFile() bool {
	return w.Apart && !w.OfWorkspace() && w.Now.File.State != picket.PolicyFileRefused &&
		(w.InFile.Valid || !w.InFile.Present)
}

// MayUseStore reports whether what the store has can become the policy again.
func (w policyView) MayUseStore() bool {
	return w.Apart && !w.OfWorkspace() && (w.Stored.Valid || !w.Stored.Present)
}

// policyDiff is the difference of two texts.
type policyDiff struct {
	Lines []diffLine
	More  bool
}

// diffTexts compares two untrusted texts line by line.
func diffTexts(before, after string) policyDiff {
	before, after = editable(before), editable(after)
	u, err := udiff.ToUnifiedDiff("", "", before, udiff.Lines(before, after), udiff.DefaultContextLines)
	if err != nil { // it cannot be: the edits are those of the text
		return policyDiff{More: true}
	}
	var d policyDiff
	size := 0
	for i, h := range u.Hunks {
		if i > 0 {
			d.Lines = append(d.Lines, diffLine{"hunk", "@@ line " + strconv.Itoa(h.ToLine)})
		}
		for _, l := range h.Lines {
			if size += len(l.Content); len(d.Lines) >= maxPolicyDiffLines || size > maxPolicyDiff {
				d.More = true
				return d
			}
			d.Lines = append(d.Lines, lineOfDiff(l))
		}
	}
	return d
}

func lineOfDiff(l udiff.Line) diffLine {
	content, ended := strings.CutSuffix(l.Content, "\n")
	if !ended {
		content += " (no line break at the end)"
	}
	switch l.Kind {
	case udiff.Insert:
		return diffLine{"added", "+" + content}
	case udiff.Delete:
		return diffLine{"removed", "-" + content}
	}
	return diffLine{"", " " + content}
}
