package picket

// Review is the decision on a completed task. A zero Decision is pending.
type Review struct {
	TaskID    string  `json:"taskId"`
	RunID     string  `json:"runId"`
	Decision  *string `json:"decision"` // approve, reject or null while pending
	Note      string  `json:"note"`
	By        string  `json:"by"`
	At        Instant `json:"at"`
	FixTaskID *string `json:"fixTaskId"`
}

// PendingReview is a row of the review queue, oldest first.
type PendingReview struct {
	TaskID       string  `json:"taskId"`
	RunID        string  `json:"runId"`
	Title        string  `json:"title"`
	Output       RawJSON `json:"output"`
	Summary      string  `json:"summary"`
	SubmittedAt  Instant `json:"submittedAt"`
	FencingToken int64   `json:"fencingToken"`
	Attempts     int     `json:"attempts"`
}
