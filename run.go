package picket

import (
	"fmt"

	"github.com/picket-dev/picket/budget"
)

// Run is one attempt at a task: one lease, at most one agent process.
type Run struct {
	RunID         string          `json:"runId"`
	TaskID        string          `json:"taskId"`
	AgentID       string          `json:"agentId"`
	FencingToken  int64           `json:"fencingToken"` // the newest of Tokens
	Tokens        []int64         `json:"tokens"`       // every token this lease ever had
	Attempt       int             `json:"attempt"`      // counts the runs of the task from 1
	State         RunState        `json:"state"`
	StartedAt     Instant         `json:"startedAt"`
	EndedAt       Instant         `json:"endedAt"` // null while it runs
	Exit          *Exit           `json:"exit"`
	WorkspacePath string          `json:"workspacePath"`
	KeepUntil     Instant         `json:"keepUntil"` // workspace kept until then; null while undecided
	Containment   string          `json:"containment"`
	Spent         budget.Envelope `json:"spent"`
}

// Exit says how a run ended. A class set by the server stays; what the adapter
// reports later fills in code, signal and duration.
type Exit struct {
	Class      ExitClass `json:"class"`
	Code       *int      `json:"code"` // 128 + the signal, if one ended it; nil: not known
	Signal     *string   `json:"signal"`
	DurationMs *int64    `json:"durationMs"` // of the process; nil: not known
	// Detail is free text, such as the last lines of output or a reason.
	Detail string `json:"detail,omitempty"`
	// LastEvent is the id of the last run event that the adapter has sent or is
	// still to send, or "" if it sent none. After the exit, events are taken up to
	// that one. It is nil if the adapter does not name it.
	LastEvent *string `json:"-"`
}

// ExitClass is the kind of end.
type ExitClass string

const (
	ExitSuccess      ExitClass = "success"
	ExitCrash        ExitClass = "crash"     // counts a failure
	ExitTimeout      ExitClass = "timeout"   // counts a failure
	ExitStalled      ExitClass = "stalled"   // counts a failure
	ExitNoResult     ExitClass = "no_result" // counts a failure
	ExitKilled       ExitClass = "killed"
	ExitLeaseLost    ExitClass = "lease_lost"
	ExitLeaseExpired ExitClass = "lease_expired" // counts a failure, set by the server
	ExitAgentDead    ExitClass = "agent_dead"    // counts a failure, set by the server
	ExitAgentFailed  ExitClass = "agent_failed"  // counts a failure: mark_failed
	ExitRejected     ExitClass = "rejected"      // the agent will not do the task: mark_failed with this class
	ExitReleased     ExitClass = "released"      // a voluntary give-back
	ExitUndelivered  ExitClass = "undelivered"   // granted, never confirmed
	ExitByOperator   ExitClass = "expired_by_operator"
	ExitStoreAdopted ExitClass = "store_adopted" // from before an adoption, never reclaimed
	ExitCancelled    ExitClass = "cancelled"
)

// EndClasses are the classes that the end of a run can have: all but those of processes that
// outlived their run.
var EndClasses = []ExitClass{ExitSuccess, ExitCrash, ExitTimeout, ExitStalled, ExitNoResult, ExitLeaseExpired,
	ExitAgentDead, ExitAgentFailed, ExitRejected, ExitReleased, ExitUndelivered, ExitByOperator,
	ExitStoreAdopted, ExitCancelled}

// ReleaseClasses are the classes an adapter may release a lease with.
var ReleaseClasses = []ExitClass{ExitCrash, ExitTimeout, ExitStalled, ExitNoResult, ExitReleased}

// EvidenceClasses are the classes an adapter may report of a process.
var EvidenceClasses = []ExitClass{ExitSuccess, ExitCrash, ExitTimeout, ExitStalled, ExitNoResult, ExitKilled,
	ExitLeaseLost, ExitReleased}

// RetryClasses are the classes a task may list in retry.on; lease_expired and
// agent_failed are always retried while attempts remain.
var RetryClasses = []ExitClass{ExitCrash, ExitTimeout, ExitStalled, ExitNoResult}

// The ways in which an adapter holds the process tree of a run together, best
// first.
const (
	ContainmentCgroup    = "cgroup"    // a cgroup (v2) of its own: nothing leaves it
	ContainmentSubreaper = "subreaper" // every descendant, also one that left its group and session
	ContainmentGroup     = "group"     // the process group: a process that leaves it escapes
)

// Containments are all of them.
var Containments = []string{ContainmentCgroup, ContainmentSubreaper, ContainmentGroup}

// LogChunk is a piece of a run's output stream.
type LogChunk struct {
	RunID  string `json:"runId"`
	Stream string `json:"stream"` // stdout or stderr
	Offset int64  `json:"offset"` // of the first byte in Data
	Next   int64  `json:"next"`   // offset to read on from
	Data   []byte `json:"-"`

	// MidLine says that Data begins within a line, Marks when it was written.
	MidLine bool      `json:"inside"`
	Marks   []LogMark `json:"marks"`
	// State tells whether more may come. LatestRunID and TaskState are the
	// task's, which may have a newer run by now.
	State       LogState  `json:"state"`
	LatestRunID string    `json:"latestRunId"`
	TaskState   TaskState `json:"taskState"`
}

// LogState tells whether more of a stream may come.
type LogState string

const (
	LogOpen   LogState = "open"   // the run goes on, or there is none yet
	LogEnded  LogState = "ended"  // the run has ended; what it wrote last may be on its way
	LogClosed LogState = "closed" // this is all
)

// LogMark says when a stream was written from an offset on, up to the next mark.
type LogMark struct {
	Offset int64   `json:"offset"` // in bytes from the start of the stream
	At     Instant `json:"at"`
}

// MaxLogMarks is how many marks one piece of output may have.
const MaxLogMarks = 512

// LogWrite is a piece of output on its way to the log.
type LogWrite struct {
	Stream string
	Offset int64 // of the first byte
	Data   []byte
	Marks  []LogMark // in their order, none before Offset; without any the time of arrival counts
	End    bool      // nothing follows
}

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
	FencingToken int64   `json:"fencingToken"` // of its run at that time
	At           Instant `json:"at"`
	Pinned       bool    `json:"pinned"`
}

// DroppedReports says that the first reports of a task are missing in a list of its reports,
// oldest first. It is "" when none is.
func DroppedReports(list []Report) string {
	if len(list) == 0 || list[0].Seq <= 1 {
		return ""
	}
	return fmt.Sprintf("the first %d reports were dropped: a task keeps at most quota.reports reports, and fewer if they are long",
		list[0].Seq-1)
}

// Reported answers report_progress.
type Reported struct {
	Seq    int64  `json:"seq"` // counts the reports of the task from 1
	Pinned bool   `json:"pinned"`
	Nudge  *Nudge `json:"nudge,omitempty"` // the agent seems to be stuck
	Unread int    `json:"unread,omitzero"` // how many messages wait for the agent
}
