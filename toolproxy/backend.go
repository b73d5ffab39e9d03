package toolproxy

import (
	"context"
	"time"

	"github.com/picket-dev/picket"
)

// maxWait is the longest a watch waits; clients of tools give up at a minute.
const maxWait = 50 * time.Second

// Backend is what the proxy asks of one namespace of the state of record. Each group
// of handlers and of tools is handed the part that it needs. Errors that a caller may
// see are *picket.Error.
type Backend interface {
	leaser
	leaseEndWaiter
	refusalLog
	evidenceRecorder
	taskReporter
	delegator
	reservationStore
	envelopeAccount
	ExecQueue
	execResultRecorder
	bundleKeeper
	messenger
	contextReader
}

// leaser keeps, gives back and observes a lease.
type leaser interface {
	// Renew moves the deadline to now + window; it never revives.
	Renew(ctx context.Context, held picket.LeaseCredential) (picket.Renewal, error)
	// Reclaim gives a lease from before an adoption of the store a higher token. It
	// leaves any other lease as it is.
	Reclaim(ctx context.Context, held picket.LeaseCredential) (picket.Renewal, error)
	// Release ends the lease; exit.Class is one of picket.ReleaseClasses.
	Release(ctx context.Context, held picket.LeaseCredential, exit picket.Exit) (picket.TaskState, error)
	// Watch waits until the lease changes; changed is false when the wait ran out. An ended lease
	// answers at once with its state. Each answer names the processes that the adapter has to
	// start, except those in known, which are call ids that the adapter has received.
	Watch(ctx context.Context, held picket.LeaseCredential, wait time.Duration,
		known ...string) (w picket.Watch, changed bool, err error)
}

// leaseEndWaiter reports the end of a lease.
type leaseEndWaiter interface {
	// AwaitEnd waits until the lease has ended; ended is false when the wait ran
	// out first. It takes no command that is meant for the adapter.
	AwaitEnd(ctx context.Context, held picket.LeaseCredential, wait time.Duration) (ended bool, err error)
}

// refusalLog records writes that the fence refused.
type refusalLog interface {
	// RecordRefusedWrite counts a refused write and puts it into the event log, even
	// when ctx has ended. It never fails: the refusal has been decided already.
	RecordRefusedWrite(ctx context.Context, held picket.LeaseCredential, verb string, refusal *picket.Error)
}

// evidenceRecorder takes evidence about a run: it never changes the task's state and
// is accepted until 15 minutes after the lease ended.
type evidenceRecorder interface {
	RunExit(ctx context.Context, held picket.LeaseCredential, exit picket.Exit, containment string) error
	// RunLog appends data at offset and returns the new end. Bytes below the
	// known end are ignored; an offset beyond it is offset_conflict.
	RunLog(ctx context.Context, held picket.LeaseCredential, piece picket.LogWrite) (next int64, err error)
	RunEvents(ctx context.Context, held picket.LeaseCredential, events []picket.RunEvent) error
	// RunEvidence keeps ev in place of what the run handed in before.
	RunEvidence(ctx context.Context, held picket.LeaseCredential, ev picket.Evidence) error
}

// taskReporter is what an agent reads of its own task and says about it. A call with
// the requestID of an earlier one has the same answer.
type taskReporter interface {
	HeldTask(ctx context.Context, held picket.LeaseCredential, requestID string) (picket.Task, error)
	Report(ctx context.Context, held picket.LeaseCredential, requestID string,
		p picket.Progress) (picket.Reported, error)
	Emit(ctx context.Context, held picket.LeaseCredential, requestID string,
		c picket.ArtifactChunk) (picket.Emitted, error)
	EmitStatus(ctx context.Context, held picket.LeaseCredential, requestID string,
		m picket.StatusMessage) (picket.Emitted, error)
	Complete(ctx context.Context, held picket.LeaseCredential, c picket.Completion) (picket.TaskState, error)
	Reply(ctx context.Context, held picket.LeaseCredential, m picket.Reply) (picket.TaskState, error)
	Fail(ctx context.Context, held picket.LeaseCredential, reason string, retryable bool) (picket.TaskState, error)
	Decline(ctx context.Context, held picket.LeaseCredential, reason string) (picket.TaskState, error)
	RequestHelp(ctx context.Context, held picket.LeaseCredential, req picket.HelpRequest) (picket.HelpRequested, error)
}

// delegator is what the tools for subtasks ask of the engine.
type delegator interface {
	// FindAgents tells to whom the run can delegate; an earlier requestID is the same look.
	FindAgents(ctx context.Context, held picket.LeaseCredential, requestID string,
		q picket.AgentSearch) (picket.FoundPools, error)
	// Delegate makes a subtask; a call with an earlier requestKey returns its subtask.
	Delegate(ctx context.Context, held picket.LeaseCredential, requestKey string,
		s picket.Subtask) (picket.Delegated, error)
	// AwaitSubtask waits until the caller can go on with a subtask, or wait has
	// passed.
	AwaitSubtask(ctx context.Context, held picket.LeaseCredential, taskID string,
		wait time.Duration) (picket.SubtaskState, error)
	ReviewSubtask(ctx context.Context, held picket.LeaseCredential, requestKey string,
		r picket.SubtaskReview) (picket.SubtaskState, error)
}

// reservationStore moves the money of a run's envelope.
type reservationStore interface {
	// Reserve takes the bound of a call's price out of the envelope, or returns
	// what the same call has answered before. It is refused unless the lease holds.
	Reserve(ctx context.Context, held picket.LeaseCredential, req picket.CallRequest) (picket.Reservation, error)
	// Settle books what a reserved call cost. It needs no valid lease.
	Settle(ctx context.Context, s picket.Settlement) (picket.Settled, error)
}

// envelopeAccount tells a run of its envelope, and hears what the run has used.
type envelopeAccount interface {
	// AwaitTopUp waits until the envelope was topped up since a call was refused.
	AwaitTopUp(ctx context.Context, held picket.LeaseCredential, wait time.Duration) (picket.Funds, error)
	// Funds shows the envelope. It does not count as a call of a tool.
	Funds(ctx context.Context, held picket.LeaseCredential) (picket.Funds, error)
	// ReportUsage charges what is new in running totals. It is evidence: accepted
	// for a while after the lease ended.
	ReportUsage(ctx context.Context, held picket.LeaseCredential, u picket.UsageReport) (picket.Usage, error)
}

// Metering is what a call that costs money needs of the state of record.
type Metering interface {
	reservationStore
	envelopeAccount
	leaseEndWaiter
}

// ExecQueue has processes started by the adapter of a run: no proxy starts any.
type ExecQueue interface {
	// CanExec reports whether the adapter of the run starts processes for it.
	CanExec(ctx context.Context, held picket.LeaseCredential) (bool, error)
	// OrderExec asks for a process; the same CallID again is the same order.
	OrderExec(ctx context.Context, held picket.LeaseCredential, order picket.ExecRequest) error
	// AwaitExec waits for its result; done is false when the wait ran out or none
	// can come any more. The lease need not hold any more.
	AwaitExec(ctx context.Context, held picket.LeaseCredential, callID string,
		wait time.Duration) (r picket.ExecResult, done bool, err error)
}

// execResultRecorder takes the adapter's result of a process.
type execResultRecorder interface {
	// ExecResult is accepted up to the call's deadline.
	ExecResult(ctx context.Context, held picket.LeaseCredential, callID string, r picket.ExecResult) error
}

// Parts of the backend, one for each group of routes and tools.
func leases(b Backend) leaser             { return b }
func runs(b Backend) evidenceRecorder     { return b }
func bundles(b Backend) bundleKeeper      { return b }
func execs(b Backend) execResultRecorder  { return b }
func envelopes(b Backend) envelopeAccount { return b }
func tasks(b Backend) taskReporter        { return b }
func subtasks(b Backend) delegator        { return b }
func messages(b Backend) messenger        { return b }
