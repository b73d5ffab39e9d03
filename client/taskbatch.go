package client

import (
	"context"
	"crypto/rand"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/picket-dev/picket"
)

// TaskResult is the answer to one task of [Tasks.CreateMany]: the task, or why it was refused.
type TaskResult struct {
	Task picket.Task
	Err  error // a *picket.Error as Create returns it
	// Raw is the JSON of the task, or of the refusal as the server sent it.
	Raw jsontext.Value
}

// CreateMany submits tasks in order, each exactly as [Tasks.Create] submits it alone, with a request
// for every 500 tasks or 8 MiB. It returns a result for each task, in order. A refused task does not
// change what happens to the others.
//
// If CreateMany has to stop early, it returns an error and the results of the tasks before. Some of the
// others may have been submitted. It is safe to submit them again under the same idempotency keys. Tasks
// without a key get one that only lasts for one call, or none if [Options.Attempts] is 1. CreateMany
// stops at a request that fails as a whole, and at a task that the store did not answer
// ([picket.CodeUnavailable]), so that no task is queued before an earlier one.
//
// If the key of the client sends too many tasks a second, CreateMany waits and goes on. It is given up
// when ctx leaves no time for that.
func (t Tasks) CreateMany(ctx context.Context, tasks []picket.TaskSubmission, opts ...Option) ([]TaskResult, error) {
	rest, err := t.encodeTasks(tasks)
	if err != nil {
		return nil, err
	}
	results := make([]TaskResult, 0, len(tasks))
	for most, repeats := picket.MaxBatchTasks, 0; len(rest) > 0; {
		some := rest[:batchLength(rest, most)]
		answers, err := t.createSome(ctx, some, opts)
		if errors.Is(err, picket.CodeTooLarge) && len(some) > 1 && t.c.options.Attempts > 1 {
			most = len(some) / 2 // every task has a key, so a repetition is harmless
			continue
		}
		if err != nil {
			return results, err
		}
		done, stop := definiteResults(answers)
		results, rest = append(results, done...), rest[len(done):]
		if len(done) > 0 {
			repeats = 0
		}
		if stop == nil {
			continue
		}
		wait := rateLimitWait(stop)
		if repeats++; wait == 0 || repeats > maxRateRetries || lacksTime(ctx, wait) || sleep(ctx, wait) != nil {
			return results, stop
		}
	}
	return results, nil
}

// definiteResults returns the results before the first task that has to be sent again, and its error. The server
// has treated all tasks after it in the same way.
func definiteResults(results []TaskResult) (done []TaskResult, stop error) {
	for i, r := range results {
		if errors.Is(r.Err, picket.CodeUnavailable) || rateLimitWait(r.Err) > 0 {
			return results[:i], r.Err
		}
	}
	return results, nil
}

// encodeTasks writes each task as JSON, with a key if it has none.
func (t Tasks) encodeTasks(tasks []picket.TaskSubmission) ([]jsontext.Value, error) {
	encoded := make([]jsontext.Value, len(tasks))
	for i, task := range tasks {
		if task.IdempotencyKey == nil && t.c.options.Attempts > 1 {
			task.IdempotencyKey = new("go_" + rand.Text())
		}
		b, err := json.Marshal(task, json.Deterministic(true))
		if err != nil {
			return nil, picket.Invalid("/tasks/"+strconv.Itoa(i), "Send text that is valid UTF-8.",
				"task %d cannot be written as JSON: %v", i, err).WithCause(err)
		}
		encoded[i] = b
	}
	return encoded, nil
}

// batchLength is how many of the tasks fit into one request of at most this many, at least one.
func batchLength(tasks []jsontext.Value, most int) int {
	size := len(`{"tasks":[]}`)
	for i, task := range tasks {
		size += len(task) + len(",")
		if i > 0 && (i == most || size > picket.MaxBatchBytes) {
			return i
		}
	}
	return len(tasks)
}

// createSome makes one request.
func (t Tasks) createSome(ctx context.Context, tasks []jsontext.Value, opts []Option) ([]TaskResult, error) {
	body := struct {
		Tasks []jsontext.Value `json:"tasks"`
	}{tasks}
	var answer struct {
		Results []batchEntry `json:"results"`
	}
	err := t.c.repeat(ctx, http.MethodPost, route("tasks", "batch"), body, &answer, newRequest(opts))
	if err != nil {
		return nil, err
	}
	if len(answer.Results) != len(tasks) {
		return nil, picket.Refuse(picket.CodeInternal, "Check that the URL is that of a Picket server of this version.",
			"the answer to %d tasks has %d results", len(tasks), len(answer.Results))
	}
	results := make([]TaskResult, len(tasks))
	for i, e := range answer.Results {
		results[i] = t.resultOf(i, e)
	}
	return results, nil
}

// batchEntry is the answer to one task on the wire.
type batchEntry struct {
	Status            int            `json:"status"`
	RetryAfterSeconds int            `json:"retryAfterSeconds"`
	Task              jsontext.Value `json:"task"`
	Error             jsontext.Value `json:"error"`
}

// resultOf is the result of the task at a place of one request.
func (t Tasks) resultOf(i int, e batchEntry) TaskResult {
	if e.Status != http.StatusCreated {
		return TaskResult{Err: t.c.options.OnError(entryRefusal(i, e)), Raw: e.Error}
	}
	result := TaskResult{Raw: e.Task}
	if err := json.Unmarshal(e.Task, &result.Task); err != nil {
		result.Err = picket.Refuse(picket.CodeInternal, "Check that the URL is that of a Picket server of this version.",
			"the answer to a task of a batch cannot be read: %v", err).WithCause(err)
	}
	return result
}

// entryRefusal is the refusal of a task. Its field is that of the task, because the place in the request means
// nothing to the caller.
func entryRefusal(i int, e batchEntry) error {
	refusal := problemOf(e.Error)
	if field, ok := refusal.Facts["field"].(string); ok {
		refusal.With("field", strings.TrimPrefix(field, "/tasks/"+strconv.Itoa(i)))
	}
	if refusal.Code == "" {
		refusal.Code = picket.CodeInternal
	}
	refusal.RetryAfter = time.Duration(max(0, min(e.RetryAfterSeconds, 3600))) * time.Second
	return refusal
}

// lacksTime reports whether ctx ends before a wait is over.
func lacksTime(ctx context.Context, wait time.Duration) bool {
	deadline, ok := ctx.Deadline()
	return ok && time.Until(deadline) <= wait
}
