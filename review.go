package picket

import (
	"slices"
	"strings"

	"github.com/picket-dev/picket/budget"
	"github.com/picket-dev/picket/internal/lazyregexp"
)

// Decision is what a reviewer says of a task in review.
type Decision struct {
	Note string `json:"note,omitempty"`
	// Digest is the Review.Digest of what the reviewer looked at. If the digest
	// has changed, the decision is refused with CodeVersion. It may be left out
	// only if the completing run has handed in no evidence.
	Digest string `json:"digest,omitempty"`
}

// Check refuses a decision that is out of bounds.
func (d Decision) Check() error {
	if len(d.Note) > MaxNote {
		return TooLarge("/note", len(d.Note))
	}
	return CheckDigest("/digest", d.Digest)
}

var digestPattern = lazyregexp.New(`^[0-9a-z-]{0,128}$`)

// CheckDigest refuses a text that cannot be the digest of a review. An empty one
// means that there is none.
func CheckDigest(field, digest string) error {
	if digestPattern().MatchString(digest) {
		return nil
	}
	return Invalid(field, "Copy the digest from the review, or leave it out.", "%s is not a digest of a review", field)
}

// DigestChange describes which parts of a review differ between two of its
// digests.
func DigestChange(shown, now string) string {
	was, is := strings.Split(shown, "-"), strings.Split(now, "-")
	var changed []string
	for i, part := range []string{"the result", "the evidence", "the exit", "the evidence"} {
		if (i >= len(was) || i >= len(is) || was[i] != is[i]) && !slices.Contains(changed, part) {
			changed = append(changed, part)
		}
	}
	if len(was) != 4 || len(is) != 4 || len(changed) == 0 {
		return "the digest differs"
	}
	return strings.Join(changed, " and ") + " changed"
}

// CompletingRun is the run whose result a review is about. Without a review it is
// the latest run, and "" if there was none.
func (t Task) CompletingRun() string {
	switch {
	case t.Review != nil:
		return t.Review.RunID
	case len(t.Runs) > 0:
		return t.Runs[len(t.Runs)-1].RunID
	}
	return ""
}

// Review is the decision on a completed task. A zero Decision is pending.
type Review struct {
	TaskID    string  `json:"taskId"`
	RunID     string  `json:"runId"`
	Decision  *string `json:"decision"` // approve, reject or null while pending
	Note      string  `json:"note"`
	By        string  `json:"by"`
	At        Instant `json:"at"`
	FixTaskID *string `json:"fixTaskId"`
	// Digest names what the completing run has handed in: its result, its evidence
	// and its exit. While the review is pending it changes with them; a decision
	// keeps the one that it was made on.
	Digest string `json:"digest"`
}

// PendingReview is a row of the review queue, oldest first.
type PendingReview struct {
	TaskID       string            `json:"taskId"`
	RunID        string            `json:"runId"`
	Title        string            `json:"title"`
	Role         string            `json:"role"`
	Labels       map[string]string `json:"labels"`
	Assignee     string            `json:"assignee"` // who should take it; "" is nobody
	Parent       *string           `json:"parent"`   // the task that delegated this one
	Output       RawJSON           `json:"output"`
	Summary      string            `json:"summary"`
	SubmittedAt  Instant           `json:"submittedAt"`
	FencingToken int64             `json:"fencingToken"` // of its run
	Attempts     int               `json:"attempts"`     // runs granted so far
	Spent        budget.Envelope   `json:"spent"`
	Work         WorkSummary       `json:"work"`
	Digest       string            `json:"digest"` // as in Review
}

// ReviewQuery selects a page of the review queue. Filters are AND-ed.
type ReviewQuery struct {
	Role   string
	Parent string            // the subtasks of this task
	Labels map[string]string // all of them match
	// Assignee is who should take them.
	Assignee string
	Limit    int    // 1 to 200, default 50
	Cursor   string // from the previous page
}

// ReviewPage is a page of the review queue; Total counts all that wait,
// whatever the filter.
type ReviewPage struct {
	Reviews    []PendingReview `json:"reviews"`
	Total      int64           `json:"total"`
	NextCursor *string         `json:"nextCursor"`
}

// ReviewFilter says which tasks in review are meant; members are AND-ed, and
// at least one is needed.
type ReviewFilter struct {
	Role     string            `json:"role,omitempty"`
	Parent   string            `json:"parent,omitempty"`
	Labels   map[string]string `json:"labels,omitempty"`
	Assignee string            `json:"assignee,omitempty"`
	TaskIDs  []string          `json:"taskIds,omitempty"`
}

// BulkApproval is the body of POST /api/v1/reviews/approve. Count is how many
// tasks the person saw: when the filter matches another number, nothing is
// decided (version_conflict with the fact count, or limit beyond 500).
type BulkApproval struct {
	Filter ReviewFilter `json:"filter"`
	Count  int          `json:"count"` // 1 to 500
	Note   string       `json:"note"`
	// Digests are those that the person saw, by task, as in Decision. A task whose
	// digest differs, or is missing though it has evidence, is not approved.
	Digests map[string]string `json:"digests,omitempty"`
}

// BulkApproved answers it: each decision is one of its own, so some can be lost
// to somebody who decided at the same time.
type BulkApproved struct {
	Approved []string   `json:"approved"`
	Lost     []LostRace `json:"lost"`
}

// LostRace is a task that somebody else decided first, that is in review no more,
// or that has changed since the person saw it (CodeVersion).
type LostRace struct {
	TaskID string `json:"taskId"`
	Code   Code   `json:"code"`
	By     string `json:"by"`
	// Digest is the present one, where the one that the person saw differs.
	Digest string `json:"digest,omitempty"`
}

// Evidence is what a run has changed, handed in by its adapter: it never
// changes the task, and a person reads it before deciding.
type Evidence struct {
	RunID string `json:"runId"`
	// Repository is the directory on the adapter's machine that Branch can be
	// merged into.
	Repository string        `json:"repository"`
	Branch     string        `json:"branch"`
	Base       string        `json:"base"` // the commit that Diff starts from
	Diffstat   string        `json:"diffstat"`
	Diff       string        `json:"diff"`      // unified; ends with a marker when it was cut
	Truncated  bool          `json:"truncated"` // Diff, Diffstat or Files were cut
	Files      []ChangedFile `json:"files"`
	At         Instant       `json:"at"` // when it was handed in
	// Digest is the SHA-256 of all fields except RunID and At.
	Digest string `json:"digest"`
}

// ChangedFile is one line of the list of what a run has changed.
type ChangedFile struct {
	Path    string `json:"path"`
	Added   *int   `json:"added"`   // lines; null for a binary file
	Removed *int   `json:"removed"` // lines; null for a binary file
}

// Bounds of evidence.
const (
	MaxChangedFiles = 1000
	maxBranch       = 255  // bytes
	maxPath         = 4096 // bytes
)

// Check refuses evidence that is out of bounds. RunID and At are the server's.
func (e *Evidence) Check() error {
	switch {
	case e.Branch == "" || len(e.Branch) > maxBranch:
		return Invalid("/branch", "Name the branch that holds the changes.", "branch has %d bytes, allowed are 1 to %d",
			len(e.Branch), maxBranch)
	case len(e.Base) > maxBranch:
		return Invalid("/base", "Send the name of a commit.", "base has %d bytes, at most %d are allowed", len(e.Base),
			maxBranch)
	case len(e.Repository) > maxPath:
		return Invalid("/repository", "Send the directory of the repository.",
			"repository has %d bytes, at most %d are allowed", len(e.Repository), maxPath)
	case len(e.Files) > MaxChangedFiles:
		return Invalid("/files", "Send the first ones and truncated.", "files has %d entries, at most %d are allowed",
			len(e.Files), MaxChangedFiles)
	}
	for _, f := range e.Files {
		for _, n := range []*int{f.Added, f.Removed} {
			if n != nil && (*n < 0 || int64(*n) > MaxNumber) {
				return Invalid("/files", "Send counts of lines.", "%d is not a count of lines", *n)
			}
		}
	}
	return nil
}

// WorkBranch is the branch on which an adapter puts the work of a task.
func WorkBranch(taskID string) string { return "picket/" + taskID }

// onWorkBranch reports whether the evidence is about the branch that an
// adapter makes for the task.
func (e *Evidence) onWorkBranch(taskID string) bool {
	return CheckID("taskId", "task", taskID) == nil && e.Branch == WorkBranch(taskID)
}

// MergeCommand is the command that merges the work of a task. It is run in the
// person's own checkout. The command holds no text of the evidence, which an
// agent can write: a repository path could lead to another repository, and a
// branch could be an option of git. It is empty for another branch.
func (e *Evidence) MergeCommand(taskID string) string {
	if !e.onWorkBranch(taskID) {
		return ""
	}
	return "git merge " + WorkBranch(taskID)
}

var objectID = lazyregexp.New(`^([0-9a-f]{40}|[0-9a-f]{64})$`)

// DiffCommand is the command that shows all changes of a task in the person's
// own checkout. It is empty unless the base is a full object id and the branch
// is the one that an adapter makes.
func (e *Evidence) DiffCommand(taskID string) string {
	if !e.onWorkBranch(taskID) || !objectID().MatchString(e.Base) {
		return ""
	}
	return "git diff " + e.Base + " " + WorkBranch(taskID)
}
