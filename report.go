package picket

// Progress is what an agent reports: the body of report_progress. Only Summary
// is required; the whole is at most 256 KiB.
type Progress struct {
	Summary   string      `json:"summary"`
	Beliefs   []string    `json:"beliefs"`
	Attempted []Attempted `json:"attempted"`
	NextStep  string      `json:"nextStep"`
	Blockers  []string    `json:"blockers"`
}

// Attempted is one thing an agent tried.
type Attempted struct {
	Action  string `json:"action"`
	Outcome string `json:"outcome"`
}

// Report is a stored progress report. The latest of a task is pinned: it is
// handed to the next run.
type Report struct {
	Seq int64 `json:"seq"` // counts per task from 1
	Progress
	RunID        string  `json:"runId"`
	FencingToken int64   `json:"fencingToken"`
	At           Instant `json:"at"`
	Pinned       bool    `json:"pinned"`
}

// Reported answers report_progress.
type Reported struct {
	Seq    int64  `json:"seq"`
	Pinned bool   `json:"pinned"`
	Nudge  *Nudge `json:"nudge,omitempty"` // the agent seems to be stuck
}
