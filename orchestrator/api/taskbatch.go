package api

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/labstack/echo/v4"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/internal/web"
)

// batchTime is how long a batch goes on submitting. It ends before a client gives up, which waits
// for 30 s.
const batchTime = 20 * time.Second

const tasksPath = "/api/v1/tasks"

// taskBatch is a request that submits several tasks. They are submitted one after another, in
// order, each as POST /api/v1/tasks submits it.
type taskBatch struct {
	request
	api   *API
	trace *picket.Trace
	by    picket.Caller // without an idempotency key, which each task has for itself
	// stop ends every submission after the present one, with its cause as the reason.
	stop context.Context
	// refused is the answer to all tasks from now on, once there is one: a later task must not be
	// queued before an earlier one that the client has to send again.
	refused error
}

// batchEntry is the answer to one task of a batch.
type batchEntry struct {
	Status            int            `json:"status"`
	RetryAfterSeconds int            `json:"retryAfterSeconds,omitzero"`
	Task              *picket.Task   `json:"task,omitzero"`
	Error             jsontext.Value `json:"error,omitzero"`
}

// submitTasks answers each task of the body as soon as it is submitted, so that a large answer
// does not have to fit into memory.
func (a *API) submitTasks(r request) error {
	if err := r.noQuery(); err != nil {
		return err
	}
	if len(r.Request().Header.Values(idempotencyHeader)) > 0 {
		return picket.Invalid(idempotencyHeader, "Leave the header out, and send an idempotencyKey in each task.",
			"a batch takes no Idempotency-Key")
	}
	web.CountAsLarge(r.Context)
	raw, err := web.ReadBody(r.Context, picket.MaxBatchBytes, echo.MIMEApplicationJSON)
	if err != nil {
		return err
	}
	tasks, err := web.DecodeList(raw, "tasks", picket.MaxBatchTasks)
	if err != nil {
		return err
	}
	h := r.Request().Header
	b := &taskBatch{request: r, api: a, trace: picket.ParseTrace(h.Values("traceparent"), h.Values("tracestate"))}
	if b.by, err = r.caller(nil); err != nil {
		return err
	}
	wait, done := r.waitContext()
	defer done()
	var cancel context.CancelFunc
	b.stop, cancel = context.WithTimeoutCause(wait, a.batchTime, errBatchTime)
	defer cancel()
	return b.answer(tasks)
}

var errBatchTime = errors.New("the batch took too long")

// answer writes the answer, entry by entry. It stops when the client has gone away.
func (b *taskBatch) answer(tasks [][]byte) error {
	h := b.Response().Header()
	h.Set(echo.HeaderContentType, echo.MIMEApplicationJSON)
	h.Set(echo.HeaderCacheControl, "no-store")
	b.Response().WriteHeader(http.StatusOK)
	before := `{"results":[`
	for i, raw := range tasks {
		entry := append([]byte(before), b.entry(i, raw)...)
		if _, err := b.Response().Write(entry); err != nil || b.ctx().Err() != nil {
			return errors.Join(err, b.ctx().Err())
		}
		before = ","
	}
	_, err := b.Response().Write([]byte("]}"))
	return err
}

// entry submits a task and returns what it is answered.
func (b *taskBatch) entry(i int, raw []byte) []byte {
	log := b.api.log
	if b.refused != nil {
		log = nil // the same refusal was logged for an earlier task
	}
	task, err := b.submit(i, raw)
	var body []byte
	if err == nil {
		body, err = json.Marshal(batchEntry{Status: http.StatusCreated, Task: &task}, json.Deterministic(true))
	}
	if err == nil {
		return body
	}
	prefix := "/tasks/" + strconv.Itoa(i)
	p := web.ProblemOf(b.Context, log, picket.PrefixField(prefix, err))
	body, err = json.Marshal(batchEntry{Status: p.Status, RetryAfterSeconds: p.RetryAfter, Error: p.Body},
		jsontext.AllowInvalidUTF8(true), jsontext.AllowDuplicateNames(true))
	if err != nil { // a problem is valid JSON
		panic(err)
	}
	return body
}

// submit submits the task at index i. The first one was counted against the rate of the key with
// the request.
func (b *taskBatch) submit(i int, raw []byte) (picket.Task, error) {
	if b.refused == nil {
		b.refused = b.stopped()
	}
	if b.refused == nil && i > 0 {
		b.refused = b.api.cfg.Rates.TakeKey(b.who)
	}
	if b.refused != nil {
		return picket.Task{}, b.refused
	}
	by, spec, err := b.decode(raw)
	if err != nil {
		return picket.Task{}, err
	}
	task, err := b.engine.Submit(b.ctx(), by, spec)
	if errors.Is(err, picket.CodeUnavailable) {
		b.refused = notSubmitted("the store gave no clear answer to an earlier task of the batch")
	}
	return task, err
}

// stopped is why no more tasks are submitted, or nil.
func (b *taskBatch) stopped() error {
	if b.stop.Err() == nil {
		return nil
	}
	switch {
	case revokedError(b.stop) != nil:
		return revokedError(b.stop)
	case errors.Is(context.Cause(b.stop), errBatchTime):
		return notSubmitted("the batch took longer than a request may take")
	case web.Stopping(b.Context):
		return web.StoppingError()
	}
	return notSubmitted("the request was given up")
}

// notSubmitted refuses a task that nothing was tried for.
func notSubmitted(message string) error {
	e := picket.Refuse(picket.CodeUnavailable, "Wait a moment and send the task again; it was not submitted.", "%s",
		message)
	e.RetryAfter = time.Second
	return e
}

// decode reads a task as strictly as POST /api/v1/tasks reads its body.
func (b *taskBatch) decode(raw []byte) (by picket.Caller, spec picket.TaskSpec, err error) {
	by = b.by
	if len(raw) > maxBody {
		return by, spec, picket.Refuse(picket.CodeTooLarge, "Send less: keep large things in files and name them.",
			"the task is over %d bytes", maxBody).With("limit", maxBody).With("field", "")
	}
	if raw[0] != '{' {
		return by, spec, picket.Invalid("", `Send a JSON object such as {"title":"fix the flaky test"}.`,
			"the task is not a JSON object")
	}
	var body picket.TaskSubmission
	if err = web.Unmarshal(raw, &body); err != nil {
		return by, spec, err
	}
	spec, spec.Trace = body.TaskSpec, b.trace
	if key := body.IdempotencyKey; key != nil {
		by.Idempotency, err = b.idempotencyOf(raw, *key)
	}
	return by, spec, err
}

// idempotencyOf is what POST /api/v1/tasks makes of the same key and the same task, so that a task
// is repeated by either route.
func (b *taskBatch) idempotencyOf(raw []byte, key string) (picket.Idempotency, error) {
	const member = "idempotencyKey"
	if !printable(key) {
		return picket.Idempotency{}, picket.Invalid("/"+member,
			"Send 1 to 255 printable ASCII characters, such as a UUID, or leave it out.",
			"the %s is not acceptable", member)
	}
	return b.idempotency(tasksPath, key, web.WithoutMember(raw, member)), nil
}
