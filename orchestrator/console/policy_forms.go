package console

import (
	"errors"
	"strconv"

	"github.com/picket-dev/picket"
)

// checkPolicy shows what the text of the form would be as a policy. It changes nothing. The script asks for
// the findings alone, while the person types.
func checkPolicy(v *request) error {
	if !v.isChecked("live") {
		return v.show(showPolicy)
	}
	return v.show(func(v *request) (page, error) {
		e, err := v.typedEditor()
		return page{name: "policycheck", title: "Findings", body: e}, err
	})
}

// policyFlash is the page of the policy in the address, which reports what was done.
func (v *request) policyFlash(code string) string {
	return withFlash(policyPath(v.Param("id")), code, "")
}

// expected is the condition that the policy is still the one that the page showed.
func (v *request) expected() picket.PolicyCondition {
	return picket.PolicyCondition{ExpectedDigest: v.formValue("expected")}
}

func writePolicy(v *request, by picket.Caller, _ string) (string, error) {
	_, err := v.backend.Policies.WritePolicy(v.ctx(), by, v.Param("id"),
		picket.PolicyWrite{Body: v.formValue("body"), PolicyCondition: v.expected()})
	return v.policyFlash("policywritten"),
		policyRefused(err, "Compare what is there now with what you wrote. Saving again replaces what is there.")
}

func deletePolicy(v *request, by picket.Caller, _ string) (string, error) {
	_, err := v.backend.Policies.DeletePolicy(v.ctx(), by, v.Param("id"), v.expected())
	return v.policyFlash("policydeleted"), policyRefused(err, lookAgain)
}

func rollBackPolicy(v *request, by picket.Caller, _ string) (string, error) {
	_, err := v.backend.Policies.RollbackPolicy(v.ctx(), by, v.Param("id"),
		picket.PolicyRollback{RevisionID: v.formValue("revision"), PolicyCondition: v.expected()})
	return v.policyFlash("policyrolledback"), policyRefused(err, lookAgain)
}

const lookAgain = "Look at it as it is now, then decide again."

// policyRefused says to a person why a change of a policy was refused.
func policyRefused(err error, remedy string) error {
	switch {
	case errors.Is(err, picket.CodePolicyConflict):
		return picket.Refuse(picket.CodePolicyConflict, remedy, "somebody has changed the policy since this page was opened")
	case errors.Is(err, picket.CodePolicyInvalid):
		return picket.Refuse(picket.CodePolicyInvalid, "Change what the findings name. What you wrote was not saved.",
			"the text is not a valid policy")
	}
	return err
}

// noDigest is the digest of no policy. A change that expects it is refused, unless the same form was sent
// before.
const noDigest = "-"

// choosePolicy makes the version of the store or that of the file the policy, byte for byte. It is refused
// if one of them is another version than the page showed.
func choosePolicy(v *request, by picket.Caller, _ string) (string, error) {
	name := v.Param("id")
	versions, err := v.backend.Policies.PolicyVersions(v.ctx(), name)
	if err != nil {
		return "", err
	}
	chosen := versions.Stored
	switch v.formValue("version") {
	case "store":
	case "file":
		chosen = versions.InFile
	default:
		return "", picket.Invalid("/version", "Choose the version of the store or that of the file.", "no version was chosen")
	}
	seen := picket.PolicyCondition{ExpectedDigest: versions.Now.Digest}
	if versions.Stored.RevisionID != v.formValue("stored") || versions.InFile.Digest != v.formValue("file") {
		seen.ExpectedDigest = noDigest
	}
	if chosen.Present {
		_, err = v.backend.Policies.WritePolicy(v.ctx(), by, name,
			picket.PolicyWrite{Body: chosen.Body, PolicyCondition: seen})
		return v.policyFlash("policywritten"), policyRefused(err, lookAgain)
	}
	_, err = v.backend.Policies.DeletePolicy(v.ctx(), by, name, seen)
	return v.policyFlash("policydeleted"), policyRefused(err, lookAgain)
}

// policyHistory is what the page of the revisions shows.
type policyHistory struct {
	Name     string
	Expected string // digest of the policy
	Rows     []revisionView
	Next     string
}

// revisionView is a revision with what it changed.
type revisionView struct {
	picket.PolicyRevision
	Diff  policyDiff
	First bool // no revision before it is kept
}

// MayRestore reports whether the text of the revision can become the policy again.
func (r revisionView) MayRestore() bool { return !r.Current && r.Action != picket.PolicyDeleted }

func showPolicyHistory(v *request) (page, error) {
	h := policyHistory{Name: v.Param("id")}
	versions, err := v.backend.Policies.PolicyVersions(v.ctx(), h.Name)
	if err != nil {
		return page{}, err
	}
	h.Expected = versions.Now.Digest
	found, err := v.backend.Policies.PolicyHistory(v.ctx(), h.Name,
		picket.PolicyHistoryQuery{Cursor: v.position("before"), Limit: maxRevisionsShown})
	if err != nil {
		return page{}, err
	}
	if err = v.fillHistory(&h, found); err != nil {
		return page{}, err
	}
	return page{
		name:   "policyhistory",
		title:  "History of the wake policy of " + h.Name,
		topics: []string{"heartbeat_policy."},
		body:   h,
	}, nil
}

// fillHistory compares each revision with the one before it. That of the last one is on the next page.
func (v *request) fillHistory(h *policyHistory, found picket.PolicyHistory) error {
	older := found.Revisions
	if found.Cursor != 0 {
		next, err := v.backend.Policies.PolicyHistory(v.ctx(), h.Name,
			picket.PolicyHistoryQuery{Cursor: found.Cursor, Limit: 1})
		if err != nil {
			return err
		}
		older = append(older, next.Revisions...)
		h.Next = queryPath(policyPath(h.Name)+"/history", "before", strconv.FormatInt(found.Cursor, 10))
	}
	for i, r := range found.Revisions {
		row := revisionView{PolicyRevision: r, First: i+1 >= len(older)}
		if row.First {
			row.Diff = diffTexts("", r.Body)
		} else {
			row.Diff = diffTexts(older[i+1].Body, r.Body)
		}
		h.Rows = append(h.Rows, row)
	}
	return nil
}
