package picket

import "regexp"

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

var objectID = regexp.MustCompile(`^([0-9a-f]{40}|[0-9a-f]{64})$`)

// DiffCommand is the command that shows all changes of a task in the person's
// own checkout. It is empty unless the base is a full object id and the branch
// is the one that an adapter makes.
func (e *Evidence) DiffCommand(taskID string) string {
	if !e.onWorkBranch(taskID) || !objectID.MatchString(e.Base) {
		return ""
	}
	return "git diff " + e.Base + " " + WorkBranch(taskID)
}
