package doctor

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/go-json-experiment/json"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/cmd/picket/cli"
)

// loggedTask is what the event log alone says about a task. What no event told,
// since the log reaches back not far enough, is -1.
type loggedTask struct {
	state    picket.TaskState
	token    int64
	attempt  int64
	failures int64
	seq      int64 // of the last event about it
}

// LogReplay is the log as far as it was read. It holds one entry a task.
type LogReplay struct {
	s     *cli.Connection
	last  int64 // cursor
	read  int
	tasks map[string]*loggedTask
	// agents are told by agent.lifecycle alone.
	agents map[string]loggedAgent
}

// NewLogReplay makes a replay that has read nothing of the log yet.
func NewLogReplay(s *cli.Connection) *LogReplay {
	return &LogReplay{s: s, tasks: map[string]*loggedTask{}, agents: map[string]loggedAgent{}}
}

// replayLog compares the event log with tasks and agents. A change and its event are one step, so
// the last event of a task must agree with the store.
func replayLog(ctx context.Context, s *cli.Connection, v *InvariantReport, say func(string, ...any)) error {
	r := NewLogReplay(s)
	if err := r.Follow(ctx, say); err != nil {
		return err
	}
	suspects, err := r.Suspects(ctx, v, say)
	if err != nil {
		return err
	}
	for _, id := range suspects {
		found, err := r.VerifyTask(ctx, id)
		if err != nil {
			return err
		}
		if found != nil {
			v.addViolations(*found)
		}
	}
	if err := r.compareAgents(ctx, v, say); err != nil {
		return err
	}
	v.events = r.read
	return nil
}

// Follow reads what the log has beyond the last event read.
func (r *LogReplay) Follow(ctx context.Context, say func(string, ...any)) error {
	for {
		page, err := r.s.Events.List(ctx, picket.EventQuery{After: r.last, Limit: 1000})
		if err != nil {
			if errors.Is(err, picket.CodeCursorExpired) {
				return picket.Refuse(picket.CodeCursorExpired, "Run it again.",
					"events were deleted while they were read")
			}
			return err
		}
		for _, e := range page.Events {
			if err := r.apply(e); err != nil {
				return err
			}
		}
		if r.last, err = strconv.ParseInt(page.Next, 10, 64); err != nil {
			return err
		}
		r.read += len(page.Events)
		say("%d events replayed", r.read)
		if len(page.Events) < 1000 {
			return nil
		}
	}
}

func (r *LogReplay) apply(e picket.Event) error {
	var data struct {
		State    picket.TaskState `json:"state"`
		Attempt  *int64           `json:"attempt"`
		Failures *int64           `json:"failures"`
	}
	if e.Type == picket.EventAgentLifecycle {
		return r.applyAgent(e)
	}
	if e.TaskID == "" || e.Type == picket.EventInvariantViolated || e.Type == picket.EventInvariantRepaired {
		return nil
	}
	if err := json.Unmarshal(e.Data, &data); err != nil {
		return unreadableEvent(e, err)
	}
	t := r.tasks[e.TaskID]
	if t == nil {
		t = &loggedTask{token: -1, attempt: -1, failures: -1}
		r.tasks[e.TaskID] = t
	}
	t.seq = e.Seq
	switch e.Type {
	case picket.EventTaskSubmitted:
		t.token, t.attempt, t.failures = 0, 0, 0
	case picket.EventTaskLeased, picket.EventLeaseReclaimed:
		t.token = e.FencingToken
	}
	if data.State != "" {
		t.state = data.State
	}
	if data.Attempt != nil {
		t.attempt = *data.Attempt
	}
	if data.Failures != nil {
		t.failures = *data.Failures
	}
	return nil
}

func unreadableEvent(e picket.Event, err error) error {
	return picket.Refuse(picket.CodeInternal, "Check that client and server are of the same version.",
		"event %d cannot be read: %v", e.Seq, err)
}

// differs says where a task is not as the log says, "" when it is.
func (t loggedTask) differs(is picket.Task) string {
	told := func(n int64) bool { return n >= 0 }
	switch {
	case t.state != "" && t.state != is.State:
		return fmt.Sprintf("it is %s, the log says %s", is.State, t.state)
	case told(t.token) && t.token != is.FencingToken:
		return fmt.Sprintf("its token is %d, the log says %d", is.FencingToken, t.token)
	case told(t.attempt) && t.attempt != int64(is.Attempts):
		return fmt.Sprintf("it has had %d attempts, the log says %d", is.Attempts, t.attempt)
	case told(t.failures) && t.failures != int64(is.Failures):
		return fmt.Sprintf("it has had %d failures, the log says %d", is.Failures, t.failures)
	}
	return ""
}

// Suspects lists the tasks that differ from the log, or are not there. They may
// only have moved on since the log was read.
func (r *LogReplay) Suspects(ctx context.Context, v *InvariantReport, say func(string, ...any)) ([]string, error) {
	var out []string
	listed := map[string]bool{}
	for is, err := range r.s.Tasks.All(ctx, picket.TaskQuery{Limit: 200}) {
		if err != nil {
			return nil, err
		}
		listed[is.TaskID] = true
		if t := r.tasks[is.TaskID]; t != nil {
			v.compared++
			if t.differs(is) != "" {
				out = append(out, is.TaskID)
			}
		}
		say("%d tasks compared with the log", v.compared)
	}
	for id, t := range r.tasks {
		if !listed[id] && t.state != "" && !t.state.Terminal() {
			out = append(out, id)
		}
	}
	return out, nil
}

// VerifyTask reads one task, which may only have moved on.
func (r *LogReplay) VerifyTask(ctx context.Context, id string) (*picket.Violation, error) {
	return r.readStable(ctx, func() int64 { return r.tasks[id].seq }, func() (*picket.Violation, error) {
		told := *r.tasks[id]
		is, err := r.s.Tasks.Get(ctx, id)
		gone := errors.Is(err, picket.CodeNotFound)
		if err != nil && !gone {
			return nil, err
		}
		what := told.differs(is)
		switch {
		case gone && told.state.Terminal():
			return nil, nil // deleted in the meantime
		case gone:
			return &picket.Violation{
				Kind:    "task_lost",
				Subject: id,
				Detail:  "it does not exist, the log says it is " + string(told.state),
			}, nil
		case what == "":
			return nil, nil
		}
		return &picket.Violation{
			Kind:    "log_differs",
			Subject: id,
			Detail:  what + " (event " + strconv.FormatInt(told.seq, 10) + ")",
		}, nil
	})
}
