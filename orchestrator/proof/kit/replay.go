package kit

import (
	"context"
	stdjson "encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/internal/rig/moves"
	"github.com/picket-dev/picket/orchestrator"
)

// ReplayedTask is what the event log alone says about a task.
type ReplayedTask struct {
	State    picket.TaskState
	Token    int64
	Attempt  int
	Failures int
	Run      string // the run that holds or held it last
}

// EventReplay replays an event log from its start. It knows nothing but the log:
// what it ends with must be what the store says.
type EventReplay struct {
	Last  int64 // sequence number read last
	Tasks map[string]*ReplayedTask
	// leased counts grants, so a test can tell that something happened.
	Leased int
	*AgentReplay
}

func NewEventReplay() *EventReplay {
	return &EventReplay{Tasks: map[string]*ReplayedTask{}, AgentReplay: newAgentReplay()}
}

// Replay reads the whole log of a namespace.
func Replay(ctx context.Context, e *orchestrator.Engine) (*EventReplay, error) {
	j := NewEventReplay()
	return j, j.Follow(ctx, e)
}

// Follow reads what the log has beyond the last event read.
func (j *EventReplay) Follow(ctx context.Context, e *orchestrator.Engine) error {
	for {
		page, err := e.Events(ctx, picket.EventQuery{After: j.Last, Limit: 1000})
		if err != nil {
			return err
		}
		for _, ev := range page.Events {
			if err := j.Read(ev); err != nil {
				return fmt.Errorf("event %d %s of %s: %w", ev.Seq, ev.Type, ev.TaskID, err)
			}
		}
		if len(page.Events) < 1000 {
			return nil
		}
	}
}

// EventData are the members of an event's data that the replay looks at.
type EventData struct {
	State     picket.TaskState `json:"state"`
	Attempt   *int             `json:"attempt"`
	Failures  *int             `json:"failures"`
	NewTaskID string           `json:"newTaskId"`
	Retries   string           `json:"retries"`
	Fixes     string           `json:"fixes"`
	Class     string           `json:"class"`
	// Of agents.
	Reason      string `json:"reason"`
	Incarnation int64  `json:"incarnation"`
	Version     int64  `json:"version"`
}

// nonMovingEvents are the events that move no task.
var nonMovingEvents = []string{picket.EventTaskProgress, picket.EventTaskArtifact, picket.EventTaskStatus,
	picket.EventWriteRefused, picket.EventHandoffClaimed,
	picket.EventHandoffOverdue, picket.EventHandoffReminder, picket.EventReviewReminder,
	picket.EventPaused, picket.EventResumed, picket.EventKeyCreated, picket.EventKeyRevoked, picket.EventLoginOpened,
	picket.EventLoginClosed, picket.EventRunLaunched,
	picket.EventRunExited, picket.EventEvidenceReplaced, picket.EventRunStalled, picket.EventAgentHeartbeat,
	picket.EventAgentTimeoutWarning, picket.EventAgentTimedOut,
	picket.EventInvariantViolated, picket.EventInvariantRepaired, picket.EventStoreAdopted, picket.EventAgentCommand,
	picket.EventSessionStarted, picket.EventSessionPrompted, picket.EventSessionStopping, picket.EventSessionEnded,
	picket.EventSessionLost, picket.EventSessionHealth, picket.EventSessionWaking, picket.EventSessionWoken,
	picket.EventMessageSent, picket.EventPolicyWritten, picket.EventPolicyDeleted, picket.EventPolicyRolledBack,
	picket.EventAgentDrift,
	picket.EventToolCalled, picket.EventBudgetWarning, picket.EventBudgetExceeded, picket.EventBudgetToppedUp,
	picket.EventBudgetOverrun,
	picket.EventBudgetUncertain, picket.EventBudgetLate, picket.EventBudgetUnverified, picket.EventWebhookCreated,
	picket.EventWebhookDeleted, picket.EventWebhookRevived,
	picket.EventWebhookDead, picket.EventWebhookGap}

// verbOf names the verb whose row of the legal-move table an event follows.
func verbOf(ev picket.Event, d EventData) (string, error) {
	switch ev.Type {
	case picket.EventTaskSubmitted:
		if d.Retries != "" {
			return "retry", nil
		}
		return "submit", nil
	case picket.EventTaskLeased:
		return "grant", nil
	case picket.EventTaskReview, picket.EventTaskCompleted:
		return "complete", nil
	case picket.EventTaskHandoff:
		return "request_help", nil
	case picket.EventTaskAnswered:
		if ev.Actor == "deadline" {
			return "overdue", nil
		}
		return "answer", nil
	case picket.EventTaskFinished:
		return "finish", nil
	case picket.EventTaskApproved, picket.EventTaskRejected:
		return "review", nil
	case picket.EventTaskCancelled:
		return "cancel", nil
	case picket.EventTaskRetried:
		return "retry", nil
	case picket.EventLeaseReleased:
		if ev.Reason == "paused" {
			return "pause", nil
		}
		return "release", nil
	case picket.EventLeaseFailed:
		if ev.Actor == "server" {
			return "loop", nil
		}
		return "fail", nil
	case picket.EventLeaseExpired:
		return "expire", nil
	}
	return "", fmt.Errorf("the replay does not know this type")
}

// Read applies one event; an error is a broken promise of the log.
func (j *EventReplay) Read(ev picket.Event) error {
	// What another store may have told after the last event is left out.
	if ev.Seq != j.Last+1 && (ev.Type != picket.EventStoreAdopted || ev.Seq <= j.Last) {
		return fmt.Errorf("sequence is not dense: after %d comes %d", j.Last, ev.Seq)
	}
	j.Last = ev.Seq
	var d EventData
	if err := stdjson.Unmarshal(ev.Data, &d); err != nil {
		return fmt.Errorf("data %q: %w", ev.Data, err)
	}
	switch ev.Type {
	case picket.EventAgentLifecycle:
		return j.lifecycle(ev, d)
	case picket.EventAgentDrainOverdue:
		return j.drainOverdue(ev)
	}
	t := j.Tasks[ev.TaskID]
	if slices.Contains(nonMovingEvents, ev.Type) {
		if d.State != "" && ev.TaskID != "" && (t == nil || t.State != d.State) {
			return fmt.Errorf("it says the task is %s, the log says %+v", d.State, t)
		}
		return nil
	}
	if ev.Type == picket.EventLeaseReclaimed {
		if t == nil || t.State != picket.TaskLeased || ev.RunID != t.Run || ev.FencingToken <= t.Token {
			return fmt.Errorf("run %s reclaimed it with token %d, the log says %+v", ev.RunID, ev.FencingToken, t)
		}
		t.Token = ev.FencingToken
		return nil
	}
	verb, err := verbOf(ev, d)
	if err != nil {
		return err
	}
	if d.NewTaskID != "" { // a closed task is retried by another one
		if t == nil || !t.State.Terminal() || t.State != d.State {
			return fmt.Errorf("a closed task in state %s should be retried, the log says %+v", d.State, t)
		}
		return nil
	}
	return j.move(t, ev, d, verb)
}

func (j *EventReplay) move(t *ReplayedTask, ev picket.Event, d EventData, verb string) error {
	from := picket.TaskState("")
	if t != nil {
		from = t.State
	} else {
		t = &ReplayedTask{}
		j.Tasks[ev.TaskID] = t
	}
	if !moves.CanTransition(from, verb, d.State) {
		return fmt.Errorf("%s may not take a task from %q to %q", verb, from, d.State)
	}
	if from == picket.TaskLeased && ev.RunID != t.Run {
		return fmt.Errorf("run %s ended it, but %s holds it", ev.RunID, t.Run)
	}
	if from == picket.TaskLeased && ev.FencingToken != 0 && ev.FencingToken != t.Token {
		return fmt.Errorf("token %d ended it, but %d is current", ev.FencingToken, t.Token)
	}
	t.State = d.State
	if d.Failures != nil {
		t.Failures = *d.Failures
	}
	if verb != "grant" {
		return j.ended(ev, d)
	}
	j.Leased++
	if err := j.granted(ev); err != nil {
		return err
	}
	if ev.FencingToken <= t.Token {
		return fmt.Errorf("token %d was granted after %d", ev.FencingToken, t.Token)
	}
	if d.Attempt == nil || *d.Attempt != t.Attempt+1 {
		return fmt.Errorf("attempt after %d is not the next one: %s", t.Attempt, ev.Data)
	}
	t.Token, t.Attempt, t.Run = ev.FencingToken, *d.Attempt, ev.RunID
	return nil
}

// Differs compares the replay with the tasks of a store by what both know.
func (j *EventReplay) Differs(tasks map[string]ReplayedTask) string {
	var out []string
	for _, id := range slices.Sorted(maps.Keys(tasks)) {
		if got := j.Tasks[id]; got == nil || *got != tasks[id] {
			out = append(out, fmt.Sprintf("%s is %+v, the log says %+v", id, tasks[id], got))
		}
	}
	if len(j.Tasks) != len(tasks) {
		out = append(out, fmt.Sprintf("%d tasks in the store, %d in the log", len(tasks), len(j.Tasks)))
	}
	return strings.Join(out, "\n")
}
