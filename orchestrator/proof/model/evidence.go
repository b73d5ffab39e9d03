package model

import (
	"fmt"

	"github.com/picket-dev/picket"
)

// The model of what a reviewer is shown: evidence and exits of a run, and which
// decisions are about something else.

// modelEvidence is what a run has handed in.
type modelEvidence struct {
	evidence string
	replaced int
	exits    int
}

// shown is what a decision about a task is about.
func (m *model) shown(tid string) string {
	r := m.runs[m.tasks[tid].run]
	if r == nil {
		return ""
	}
	return fmt.Sprint(r.closed, " ", r.evidence, " ", r.exits, " ", r.replaced)
}

// staleDigest refuses a decision about something else than there is.
func (m *model) staleDigest(t *modelTask, seen reviewerView) picket.Code {
	r := m.runs[t.run]
	switch {
	case seen.digest == "" && (r == nil || r.evidence == ""):
		return ""
	case seen.digest == "":
		return picket.CodePreconditionRequired
	case seen.means != m.shown(t.id):
		return picket.CodeVersion
	}
	return ""
}

func (m *model) runEvidence(h modelCredential, diff string) picket.Code {
	r, refusal := m.lateHolder(h)
	switch {
	case refusal == "" && r.keyEnded:
		return picket.CodeLeaseExpired
	case refusal != "" || r.evidence == diff:
		return refusal
	}
	if m.tasks[r.task].decided {
		return picket.CodeTaskClosed
	}
	if r.evidence != "" {
		if r.replaced++; r.replaced > 50 {
			return picket.CodeStateConflict
		}
		m.emit(picket.EventEvidenceReplaced, r.task)
	}
	r.evidence = diff
	return ""
}

// reviewerView is what a reviewer has seen of a task: the digest, and what it stood for.
type reviewerView struct {
	digest string
	means  string
}

// lookAt looks at a task now, remembers an earlier look, or does not look at all.
func (x *machine) lookAt(tid string) reviewerView {
	if x.chance("unseen", 15) {
		return reviewerView{}
	}
	if before, ok := x.looks[tid]; ok && x.chance("seen before", 50) {
		return before
	}
	if x.m.tasks[tid] == nil {
		return reviewerView{}
	}
	got, err := x.e.Task(x.ctx, tid)
	x.ok(err)
	if got.State != picket.TaskReview {
		return reviewerView{}
	}
	if x.looks == nil {
		x.looks = map[string]reviewerView{}
	}
	x.looks[tid] = reviewerView{got.Review.Digest, x.m.shown(tid)}
	return x.looks[tid]
}

func (x *machine) evidence() {
	h, mh := x.holderOf(func(r *modelRun) bool {
		return x.m.tasks[r.task].state == picket.TaskReview || x.m.tasks[r.task].decided
	})
	if x.chance("exit", 30) {
		x.exitBy(h, mh)
		return
	}
	x.evidenceBy(h, mh, oneOf(x, "diff", "+a", "+b", "+c"))
}

func (x *machine) evidenceBy(h picket.LeaseCredential, mh modelCredential, diff string) {
	err := x.e.RunEvidence(x.ctx, h, picket.Evidence{Branch: "picket/t", Diff: diff})
	x.agree(err, x.m.runEvidence(mh, diff), "evidence of %+v", mh)
}

// reviewSwapped decides behind an open page: evidence or an exit comes between the look and
// the decision.
func (x *machine) reviewSwapped() {
	tid := x.task(picket.TaskReview)
	if x.m.tasks[tid] == nil {
		return
	}
	x.lookAt(tid)
	run := x.m.tasks[tid].run
	h, mh := x.holderOf(func(r *modelRun) bool { return r.id == run })
	if x.chance("exit", 30) {
		x.exitBy(h, mh)
	} else {
		x.evidenceBy(h, mh, oneOf(x, "diff", "+a", "+b", "+c"))
	}
	x.review()
}
