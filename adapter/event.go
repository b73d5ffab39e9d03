package adapter

import (
	"sync"
	"time"

	"github.com/picket-dev/picket"
)

// EventKind names what happened to a run.
type EventKind string

const (
	EventAcquired    EventKind = "acquired"     // a lease was granted
	EventLaunched    EventKind = "launched"     // the agent process runs
	EventRenewed     EventKind = "renewed"      // the lease was extended
	EventRenewFailed EventKind = "renew_failed" // not extended yet; it is tried again
	EventEnding      EventKind = "ending"       // the process is being ended, or has ended
	EventEnded       EventKind = "ended"        // the run is over and has been reported

	// Those of the launcher, which go to the event log too, as Event.Launcher.
	EventProgressTick   EventKind = picket.EventAgentHeartbeat      // every ProgressTick.Interval from launch to exit
	EventTimeoutWarning EventKind = picket.EventAgentTimeoutWarning // once, when the timeout is near
	EventTimedOut       EventKind = picket.EventAgentTimedOut       // the agent is killed because its time is over

	EventNudged   EventKind = "nudged"   // the agent was told that it seems to be stuck
	EventMessages EventKind = "messages" // messages wait for the agent
	EventStalled  EventKind = "stalled"  // it is ended for that
)

// Event is told to Config.OnEvent.
type Event struct {
	Kind         EventKind
	At           time.Time // by the clock of this machine
	TaskID       string
	RunID        string
	FencingToken int64            // of the lease
	Lease        *picket.Lease    // of acquired
	PID          int              // of launched, 0 when the launcher has none
	ExpiresAt    picket.Instant   // of acquired and renewed: by the store's clock
	Remaining    time.Duration    // of acquired, renewed, renew_failed: until the adapter stops the agent
	Reason       string           // of ending, renew_failed, nudged and stalled, for people
	Cause        string           // of nudged: picket.NudgeSilent or picket.NudgeLoop
	Unread       int              // of messages: how many wait
	Result       *Result          // of ended
	Err          error            // of renew_failed and ended
	Launcher     *picket.RunEvent // of agent-heartbeat, agent-timeout-warning and agent-timed-out
}

// Ending says how a run ended, as the adapter saw it.
type Ending string

const (
	EndCompleted Ending = "completed" // mark_complete was called, by the agent or for it
	EndHandoff   Ending = "handoff"   // request_human_help was called
	EndReleased  Ending = "released"  // the lease was given back, with Result.Exit as the reason
	EndCancelled Ending = "cancelled" // the task was cancelled
	EndLost      Ending = "lost"      // the lease ended otherwise: expired, failed, taken
)

// Result is how a run ended.
type Result struct {
	TaskID       string
	RunID        string
	FencingToken int64 // of the lease
	Ending       Ending
	// State is the task's state after the run's end; empty when the adapter
	// did not cause it and so was not told.
	State picket.TaskState
	// Exit is how the process ended. Its class is what was reported; Code is
	// nil when no process was started.
	Exit picket.Exit
	// TimedOut says that the agent was killed because the task's
	// timeoutSeconds ran out.
	TimedOut bool
	// LastProgressTick is when the last agent-heartbeat was told; zero when the
	// agent ended before the first.
	LastProgressTick time.Time
	// Unreported says that the proxy did not take the end of the run: the
	// lease expires on its own.
	Unreported bool
	// StateDir holds the run's files; Workspace is where the agent worked.
	StateDir  string
	Workspace string
}

// closeOnce closes c at its first call.
func closeOnce(c chan struct{}) func() {
	return sync.OnceFunc(func() { close(c) })
}
