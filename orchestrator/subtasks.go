package orchestrator

import (
	"cmp"
	"context"
	"crypto/sha256"
	"fmt"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/oklog/ulid/v2"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/budget"
	"github.com/picket-dev/picket/orchestrator/store"
)

// A task's run delegates parts of it to other agents and goes on; these are the
// verbs of the tree of tasks that comes of it.

// FindAgents tells the holder of a lease which pools have members that take tasks. It is a look, as
// [Engine.HeldTask] is.
func (e *Engine) FindAgents(ctx context.Context, held picket.LeaseCredential, requestID string,
	q picket.AgentSearch) (picket.FoundPools, error) {
	if err := q.Check(); err != nil {
		return picket.FoundPools{}, err
	}
	args := []any{requestID, describeCall("find_agents", q.Role+" "+strings.Join(q.Needs, ",")),
		contentHash(append([]string{q.Role}, q.Needs...)...), q.Role}
	for _, need := range q.Needs {
		args = append(args, need)
	}
	r := e.runHeld(ctx, held, "find_agents", args...)
	if r.endedByLoop() {
		return picket.FoundPools{}, loopRefusal("find_agents")
	}
	var v struct {
		Pools []struct {
			Role      string `reply:"role"`
			Members   int64  `reply:"members"`
			Free      int64  `reply:"free"`
			Unlimited bool   `reply:"unlimited"`
			Caps      string `reply:"caps"`
		} `reply:"pools"`
		Cut    bool   `reply:"cut"`
		Nudge  string `reply:"nudge"`
		Unread int    `reply:"unread"`
	}
	r.Decode(&v)
	found := picket.FoundPools{Pools: []picket.FoundPool{}, More: v.Cut, Nudge: r.nudge(v.Nudge), Unread: v.Unread}
	for _, p := range v.Pools {
		found.Pools = append(found.Pools, picket.FoundPool{
			Role:         p.Role,
			Members:      int(p.Members),
			Capabilities: strings.FieldsFunc(p.Caps, func(c rune) bool { return c == ',' }),
			FreeSlots:    int(p.Free),
			Unlimited:    p.Unlimited,
		})
	}
	return found, r.Err
}

// Delegate makes a subtask of the caller's task, whose lease goes on. The same
// requestKey again answers the same subtask as it is now, for a later run of
// the task too; with an empty one every call makes another.
func (e *Engine) Delegate(ctx context.Context, held picket.LeaseCredential, requestKey string,
	s picket.Subtask) (picket.Delegated, error) {
	asked := s
	if s.Client != nil {
		asked.BudgetEnvelope = nil // the server chose it by what was left
	}
	body, err := json.Marshal(asked)
	if err != nil {
		return picket.Delegated{}, picket.Invalid("/input", "Send valid JSON.", "the subtask is not valid JSON").
			WithCause(err)
	}
	parent, err := e.readParent(ctx, held.TaskID)
	if err != nil {
		return picket.Delegated{}, err
	}
	spec, err := s.SpecUnder(parent.task)
	if err != nil {
		return picket.Delegated{}, err
	}
	lane := subtaskLane(parent.lane, &spec)
	fields, err := e.specArgs(subtaskID(held.TaskID, requestKey, parent.delegationRound), held.RunID, spec)
	if err != nil {
		return picket.Delegated{}, err
	}
	fields[laneArg] = lane
	client := cmp.Or(spec.Client, &picket.ClientTask{})
	args := append([]any{requestKey, contentHash(string(body)), describeCall("delegate_subtask", s.Title),
		picket.MaxDepth,
		picket.MaxFanOut, e.quotas().Subtasks}, append(fields, client.MaxQueue, boolArg(client.Closed))...)
	r := e.runHeld(ctx, held, "delegate", args...)
	var made struct {
		Task      string          `reply:"task"`
		State     string          `reply:"state"`
		Available budget.Envelope `reply:"available"`
		Nudge     string          `reply:"nudge"`
		Unread    int             `reply:"unread"`
	}
	r.Decode(&made)
	return picket.Delegated{
		TaskID:    made.Task,
		State:     picket.TaskState(made.State),
		Available: made.Available,
		Nudge:     r.nudge(made.Nudge),
		Unread:    made.Unread,
	}, r.Err
}

// parentTask is what a new subtask takes from the task above it.
type parentTask struct {
	task            picket.Task
	lane            string
	delegationRound string // how often the task has given up what it delegated
}

// readParent reads the task of a lease. If the task is gone, the result is empty, and
// the verb that follows refuses the request.
func (e *Engine) readParent(ctx context.Context, taskID string) (parentTask, error) {
	r := e.run(ctx, "task", taskID)
	if picket.CodeOf(r.Err) == picket.CodeNotFound {
		return parentTask{}, nil
	}
	var v taskView
	r.Decode(&v)
	return parentTask{task: r.taskOf(v), lane: v.Record["lane"], delegationRound: v.Record["broods"]}, r.Err
}

// subtaskID makes a repetition name the same subtask.
func subtaskID(parent, requestKey, broods string) string {
	if requestKey == "" {
		return "task_" + ulid.Make().String()
	}
	sum := sha256.Sum256([]byte(contentHash(parent, requestKey, broods)))
	return "task_" + ulid.ULID(sum[:16]).String()
}

// subtaskLane names the queue of a subtask. The agent to which the parent task is pinned may take
// it. A subtask that names neither role nor needs is pinned to that agent as well. Any other
// subtask may also be taken by other agents that fit.
func subtaskLane(parent string, s *picket.TaskSpec) string {
	agent := store.LaneAgent(parent)
	switch {
	case agent == "":
		return laneOf(*s)
	case s.Role == "" && len(s.Needs) == 0:
		s.Agent = agent
		return laneOf(*s)
	}
	return "for:" + agent + "|" + laneOf(*s)
}

// AwaitSubtask waits at most 50 s until the caller's task can go on with one of its subtasks, and
// returns the state of the subtask. If it is still queued, the answer says why.
func (e *Engine) AwaitSubtask(ctx context.Context, held picket.LeaseCredential, taskID string,
	wait time.Duration) (picket.SubtaskState, error) {
	if err := picket.CheckID("/taskId", "task", taskID); err != nil {
		return picket.SubtaskState{}, err
	}
	limit := min(wait, picket.MaxAwait)
	deadline := time.Now().Add(limit)
	poll := pollFirst
	if wait <= 0 {
		poll = pollOnce
	}
	var s picket.SubtaskState
	topics := e.records.Subscribe(taskTopic(taskID), taskTopic(held.TaskID))
	end, err := e.records.WaitUntil(ctx, topics, limit, func() (done bool, again time.Duration, err error) {
		s, err = e.pollSubtask(ctx, held, taskID, poll, time.Until(deadline))
		done = s.Settled || poll == pollOnce
		if !done {
			poll = pollAgain
		}
		return done, 0, err
	})
	if err != nil || end == store.WaitStopped {
		return s, err
	}
	return e.withQueueReasons(ctx, s, nil)
}

// The looks of one call of await_subtask: the only one of a call that does not
// wait, the first and the further ones of a call that does.
const (
	pollOnce  = "only"
	pollFirst = "first"
	pollAgain = "again"
)

func (e *Engine) pollSubtask(ctx context.Context, held picket.LeaseCredential, taskID, look string,
	wait time.Duration) (picket.SubtaskState, error) {
	r := e.runHeld(ctx, held, "await", taskID, look, max(0, wait.Milliseconds()))
	return r.subtask("await_subtask")
}

// subtask is a subtask as its parent sees it.
func (r *reply) subtask(tool string) (picket.SubtaskState, error) {
	if r.endedByLoop() {
		return picket.SubtaskState{}, loopRefusal(tool)
	}
	var shown struct {
		Task   taskView `reply:"task"`
		Nudge  string   `reply:"nudge"`
		Unread int      `reply:"unread"`
	}
	r.Decode(&shown)
	t := r.taskOf(shown.Task)
	s := picket.SubtaskState{
		TaskID:     t.TaskID,
		State:      t.State,
		Title:      t.Title,
		Output:     t.Output,
		Summary:    t.Summary,
		Reason:     t.Reason,
		LastReport: t.LastReport,
		Review:     t.Review,
		Spent:      t.Spent,
		Nudge:      r.nudge(shown.Nudge),
		Unread:     shown.Unread,
	}
	if t.State == picket.TaskHandoff && t.Handoff != nil {
		s.Reason = t.Handoff.Question
	}
	s.Settled = t.State.Terminal() || t.State == picket.TaskReview || t.State == picket.TaskHandoff
	return s, r.Err
}

// withQueueReasons adds why a queued subtask does not run.
func (e *Engine) withQueueReasons(ctx context.Context, s picket.SubtaskState, err error) (picket.SubtaskState, error) {
	if err != nil || s.State != picket.TaskQueued {
		return s, err
	}
	why, err := e.Explain(ctx, s.TaskID)
	s.Because = why.Because
	return s, err
}

// ReviewSubtask decides a subtask that was handed in to the caller's task; the
// same decision again answers the same. A rejection makes, in the same step,
// another subtask that repairs it, with what is left of its envelope and of the
// caller's, at most as much as before.
func (e *Engine) ReviewSubtask(ctx context.Context, held picket.LeaseCredential, requestKey string,
	req picket.SubtaskReview) (picket.SubtaskState, error) {
	if err := req.Check(); err != nil {
		return picket.SubtaskState{}, err
	}
	args := []any{requestKey, req.TaskID, req.Decision, req.Note,
		describeCall("review_subtask", req.TaskID+" "+req.Decision),
		e.quotas().Subtasks, req.Digest}
	if req.Decision == "reject" {
		fields, err := e.repairSpec(ctx, held, req.TaskID)
		if err != nil {
			return picket.SubtaskState{}, err
		}
		args = append(args, fields...)
	}
	r := e.runHeld(ctx, held, "review_subtask", args...)
	return r.subtask("review_subtask")
}

// repairSpec specifies the subtask that repairs another one: the same task again,
// for the same agents, as its note says. If the subtask does not exist, the verb
// that follows reports it.
func (e *Engine) repairSpec(ctx context.Context, held picket.LeaseCredential, taskID string) ([]any, error) {
	was, err := e.readParent(ctx, taskID)
	if err != nil {
		return nil, err
	}
	spec := was.task.Spec()
	spec.Review, spec.Fixes = "", taskID
	if spec.Title == "" {
		spec.Title = "repair " + taskID
	}
	if err := spec.Normalize(); err != nil {
		return nil, fmt.Errorf("specify the repair of %s: %w", taskID, err)
	}
	spec.Review = picket.ReviewByParent
	fields, err := e.specArgs("task_"+ulid.Make().String(), held.RunID, spec)
	if err == nil && was.lane != "" {
		fields[laneArg] = was.lane
	}
	return fields, err
}
