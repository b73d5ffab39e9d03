package agenttoagent

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/picket-dev/picket/internal/conformance"
)

// Trial is one rule being held against the endpoint, on a goroutine of its own. The first expectation that is not met
// ends it.
type Trial struct {
	*conformance.Trial
	s     *suite
	made  int
	tasks []ownTask
	stops []func() // of streams
}

// ownTask is a task that the rule has made, and who may cancel it.
type ownTask struct {
	by caller
	id string
}

// The states of tasks.
const (
	submitted     = "TASK_STATE_SUBMITTED"
	working       = "TASK_STATE_WORKING"
	completed     = "TASK_STATE_COMPLETED"
	failed        = "TASK_STATE_FAILED"
	canceled      = "TASK_STATE_CANCELED"
	rejected      = "TASK_STATE_REJECTED"
	inputRequired = "TASK_STATE_INPUT_REQUIRED"
	authRequired  = "TASK_STATE_AUTH_REQUIRED"
)

var (
	terminalStates    = []string{completed, failed, canceled, rejected}
	interruptedStates = []string{inputRequired, authRequired}
	allStates         = slices.Concat(terminalStates, interruptedStates, []string{submitted, working})
)

func stateOf(task fields) string { return text(task, "status.state") }

func terminal(task fields) bool { return slices.Contains(terminalStates, stateOf(task)) }

// clean closes the streams of the rule, cancels its tasks, and returns those that are still open.
func (t *Trial) clean(ctx context.Context) (left []string) {
	for _, stop := range t.stops {
		stop()
	}
	for _, own := range t.tasks {
		c := own.by
		r := c.decode(t.s.Do(ctx, c.request("CancelTask", fields{"id": own.id})))
		if r.failed == nil || notCancelable.is(r.failed) || taskNotFound.is(r.failed) {
			continue
		}
		r = c.decode(t.s.Do(ctx, c.request("GetTask", fields{"id": own.id})))
		if r.failed == nil && !terminal(r.result) {
			left = append(left, "task "+own.id)
		}
	}
	return left
}

// do does an operation that does not stream.
func (c caller) do(operation string, params fields) *reply {
	r := c.decode(c.Send(c.request(operation, params)))
	c.own(r.result, r.failed)
	return r
}

// own notes the task in a result, so that it is cancelled in the end.
func (c caller) own(result fields, failed *failure) {
	id := text(object(result, "task"), "id")
	if failed == nil && id != "" && !slices.ContainsFunc(c.tasks, func(o ownTask) bool { return o.id == id }) {
		c.tasks = append(c.tasks, ownTask{c, id})
	}
}

// ok expects that an operation succeeds.
func (c caller) ok(r *reply) fields {
	c.Assert(r.Err == nil && r.failed == nil, r.answer, "a result")
	return r.result
}

// gets does an operation, and expects that it succeeds.
func (c caller) gets(operation string, params fields) fields { return c.ok(c.do(operation, params)) }

// message is a message of the client whose id begins with a prefix.
func (t *Trial) message(prefix string, change ...fields) fields {
	t.made++
	return merge(append([]fields{{
		"messageId": fmt.Sprintf("%s-%s%d", prefix, t.Prefix, t.made),
		"role":      "ROLE_USER",
		"parts":     []fields{{"text": "A message of a conformance run."}},
	}}, change...)...)
}

// atOnce is a request to send a message, which does not wait for the agent.
func atOnce(message fields, configuration ...fields) fields {
	return fields{"message": message, "configuration": merge(append([]fields{{"returnImmediately": true}},
		configuration...)...)}
}

// waiting is a request to send a message, which waits for the agent.
func waiting(message fields, configuration ...fields) fields {
	return merge(fields{"message": message, "configuration": merge(configuration...)})
}

// begins sends a message, and answers the task that it became. Without a task the rule is not run.
func (c caller) begins(prefix string, change ...fields) fields {
	return c.taskOf(c.gets("SendMessage", atOnce(c.message(prefix, change...))))
}

// taskOf is the task in the result of a message.
func (c caller) taskOf(result fields) fields {
	task := object(result, "task")
	if task == nil && object(result, "message") != nil {
		c.NotRun("the agent answers with a message, and not with a task")
	}
	c.Assert(text(task, "id") != "", c.Last, "a task with an id")
	return task
}

// openTask begins a task that stays open: without a worker nobody works on it, and a worker asks something.
func (c caller) openTask(change ...fields) fields {
	task := c.begins("tck-input-required", change...)
	if c.s.missing[needWorker] == "" {
		return c.awaitState(text(task, "id"), inputRequired)
	}
	if terminal(task) {
		c.NotRun("the agent has ended the task at once, so that nothing is left to look at")
	}
	return task
}

// canceledTask is a task that was cancelled.
func (c caller) canceledTask(change ...fields) fields {
	id := text(c.openTask(change...), "id")
	c.gets("CancelTask", fields{"id": id})
	return c.awaitEnd(id)
}

// done sends a message, waits for the worker, and answers the task.
func (c caller) done(prefix string, change ...fields) fields {
	return c.awaitEnd(text(c.begins(prefix, change...), "id"))
}

// read reads a task.
func (c caller) read(id string, change ...fields) fields {
	return c.gets("GetTask", merge(append([]fields{{"id": id}}, change...)...))
}

// awaitEnd waits until a task has ended.
func (c caller) awaitEnd(id string) fields { return c.awaitState(id, terminalStates...) }

// poll is the pause between two looks at something awaited.
const poll = 50 * time.Millisecond

// awaitState waits until a task is in one of some states.
func (c caller) awaitState(id string, states ...string) fields {
	for end := time.Now().Add(c.s.cfg.Slack); ; c.Sleep(poll) {
		task := c.read(id)
		if slices.Contains(states, stateOf(task)) {
			return task
		}
		c.Assert(time.Now().Before(end), c.Last, "a task that is %s within %s", strings.Join(states, " or "),
			c.s.cfg.Slack)
	}
}

// holds expects that a condition about the last answer holds.
func (t *Trial) holds(what string, holds bool) { t.Assert(holds, t.Last, "%s", what) }
