package client

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/picket-dev/picket"
)

// batchServer answers batches, and notes the titles of each request.
type batchServer struct {
	t        *testing.T
	asked    []string         // the titles of each request
	bodies   []string         // the whole requests
	lose     int              // so many answers are lost
	entry    func(int) string // the answer to the task at a place of the present request, "" for a task
	maxTasks int              // more are too many; 0 for no bound
}

func (s *batchServer) RoundTrip(r *http.Request) (*http.Response, error) {
	raw, _ := io.ReadAll(r.Body)
	var batch picket.TaskBatch
	if err := json.Unmarshal(raw, &batch); err != nil || r.URL.Path != "/api/v1/tasks/batch" ||
		len(raw) > picket.MaxBatchBytes || r.Header.Get("Idempotency-Key") != "" {
		s.t.Errorf("%s with %d bytes: %v", r.URL.Path, len(raw), err)
	}
	var titles, entries []string
	rec := httptest.NewRecorder()
	for i, task := range batch.Tasks {
		titles = append(titles, task.Title)
		entry := ""
		if s.entry != nil {
			entry = s.entry(i)
		}
		if entry == "" {
			entry = fmt.Sprintf(`{"status":201,"task":{"taskId":"task_%s","title":%q}}`, task.Title, task.Title)
		}
		entries = append(entries, entry)
	}
	s.asked, s.bodies = append(s.asked, strings.Join(titles, " ")), append(s.bodies, string(raw))
	if s.lose > 0 {
		s.lose--
		return nil, io.ErrUnexpectedEOF
	}
	if s.maxTasks > 0 && len(batch.Tasks) > s.maxTasks {
		entries = append(entries, strings.Repeat(" ", 1<<20))
	}
	_, _ = rec.WriteString(`{"results":[` + strings.Join(entries, ",") + `]}`)
	res := rec.Result()
	res.Request = r
	return res, nil
}

func (s *batchServer) client(o Options) *Client {
	o.HTTP = &http.Client{Transport: s}
	return New("http://server", "", o)
}

func numbered(n int) []picket.TaskSubmission {
	tasks := make([]picket.TaskSubmission, n)
	for i := range tasks {
		tasks[i].Title = fmt.Sprint(i)
		tasks[i].Labels = map[string]string{"a": "1", "b": "2", "c": "3", "d": "4", "e": "5"}
	}
	return tasks
}

func wantResults(t *testing.T, results []TaskResult, n int) {
	t.Helper()
	if len(results) != n {
		t.Fatalf("there are %d results, want %d", len(results), n)
	}
	for i, r := range results {
		if r.Err != nil || r.Task.Title != fmt.Sprint(i) || !strings.Contains(string(r.Raw), r.Task.TaskID) {
			t.Errorf("result %d: %+v", i, r)
		}
	}
}

func TestTasksAreSentInBatchesThatTheServerTakes(t *testing.T) {
	s := &batchServer{t: t}
	results, err := s.client(Options{}).Tasks.CreateMany(t.Context(), numbered(1201))
	if err != nil || len(s.asked) != 3 || len(strings.Fields(s.asked[0])) != 500 {
		t.Errorf("%v after %d requests", err, len(s.asked))
	}
	wantResults(t, results, 1201)

	s = &batchServer{t: t}
	large := numbered(20)
	for i := range large {
		large[i].Input = picket.RawJSON(`"` + strings.Repeat("x", 1<<19) + `"`)
	}
	results, err = s.client(Options{}).Tasks.CreateMany(t.Context(), large)
	if err != nil || len(s.asked) != 2 {
		t.Errorf("%v after %d requests", err, len(s.asked))
	}
	wantResults(t, results, 20)
	if results, err := s.client(Options{}).Tasks.CreateMany(t.Context(), nil); err != nil || len(results) != 0 {
		t.Errorf("no tasks: %v, %v", results, err)
	}
}

// An answer that is larger than the client reads is asked for in smaller pieces.
func TestALargeAnswerIsAskedForInPieces(t *testing.T) {
	s := &batchServer{t: t, maxTasks: 3}
	results, err := s.client(Options{MaxResponse: 1 << 16}).Tasks.CreateMany(t.Context(), numbered(10))
	if err != nil {
		t.Fatalf("%v after %q", err, s.asked)
	}
	wantResults(t, results, 10)
	s = &batchServer{t: t, maxTasks: 3}
	_, err = s.client(Options{MaxResponse: 1 << 16, Attempts: 1}).Tasks.CreateMany(t.Context(), numbered(10))
	if !errors.Is(err, picket.CodeTooLarge) || len(s.asked) != 1 {
		t.Errorf("without keys: %v after %q", err, s.asked)
	}
}

// A batch whose answer is lost is sent again, byte for byte.
func TestALostBatchIsSentAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &batchServer{t: t, lose: 2}
		results, err := s.client(Options{}).Tasks.CreateMany(t.Context(), numbered(5))
		if err != nil || len(s.bodies) != 3 || s.bodies[0] != s.bodies[1] || s.bodies[0] != s.bodies[2] ||
			strings.Count(s.bodies[0], `"idempotencyKey":"go_`) != 5 {
			t.Errorf("%v, sent %q", err, s.bodies)
		}
		wantResults(t, results, 5)
		s = &batchServer{t: t, lose: 1}
		results, err = s.client(Options{Attempts: 1}).Tasks.CreateMany(t.Context(), numbered(5))
		if !errors.Is(err, picket.ErrUnknown) || len(results) != 0 || strings.Contains(s.bodies[0], "idempotencyKey") {
			t.Errorf("one attempt: %v, %v, sent %q", results, err, s.bodies)
		}
	})
}

// A task with several labels is the same task when it is sent again.
func TestARepeatedChangeHasTheSameBody(t *testing.T) {
	var sent []string
	c := newAnsweringClient(t, func(w http.ResponseWriter, r *http.Request) {
		raw, _ := io.ReadAll(r.Body)
		if sent = append(sent, string(raw)); len(sent) < 4 {
			panic(http.ErrAbortHandler)
		}
		fmt.Fprint(w, `{}`)
	})
	task := numbered(1)[0].TaskSpec
	for i := range 20 {
		task.Labels[fmt.Sprint("l", i)] = "x"
	}
	if _, err := c.Tasks.Create(t.Context(), task); err != nil || len(slices.Compact(sent)) != 1 {
		t.Errorf("%v, sent %q", err, slices.Compact(sent))
	}
}

const tooFast = `{"status":429,"retryAfterSeconds":2,` +
	`"error":{"code":"rate_limited","message":"m","remedy":"r","perSecond":2}}`

// Tasks that are refused for the rate are sent again in order, and nothing else is.
func TestABatchWaitsForTheRateOfItsKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		s := &batchServer{t: t, entry: func(i int) string {
			if i >= 2 {
				return tooFast
			}
			return ""
		}}
		results, err := s.client(Options{}).Tasks.CreateMany(t.Context(), numbered(5))
		want := []string{"0 1 2 3 4", "2 3 4", "4"}
		if err != nil || !slices.Equal(s.asked, want) || time.Since(began) != 4*time.Second {
			t.Errorf("%v, asked for %q in %s", err, s.asked, time.Since(began))
		}
		wantResults(t, results, 5)
		s = &batchServer{t: t, entry: func(int) string { return tooFast }}
		results, err = s.client(Options{}).Tasks.CreateMany(t.Context(), numbered(5))
		if !errors.Is(err, picket.CodeRateLimited) || len(results) != 0 || len(s.asked) != maxRateRetries+1 {
			t.Errorf("always too fast: %v, %v after %d requests", results, err, len(s.asked))
		}
	})
}

// A task that the store did not answer ends the submission, so that no later task comes before it.
func TestABatchStopsAtATaskThatWasNotAnswered(t *testing.T) {
	s := &batchServer{t: t, entry: func(i int) string {
		switch {
		case i == 1:
			return `{"status":400,"error":{"code":"validation_failed","message":"m","remedy":"r","field":"/tasks/1/title"}}`
		case i >= 3:
			return `{"status":503,"retryAfterSeconds":1,` +
				`"error":{"code":"orchestrator_unavailable","message":"m","remedy":"r"}}`
		}
		return ""
	}}
	results, err := s.client(Options{}).Tasks.CreateMany(t.Context(), numbered(600))
	var refusal *picket.Error
	if !errors.As(err, &refusal) || refusal.Code != picket.CodeUnavailable || refusal.RetryAfter != time.Second ||
		len(results) != 3 || len(s.asked) != 1 {
		t.Fatalf("%d results, %v after %d requests", len(results), err, len(s.asked))
	}
	if !errors.As(results[1].Err, &refusal) || refusal.Facts["field"] != "/title" || results[2].Err != nil {
		t.Errorf("the refused task: %+v", results[1])
	}
}

func TestAnAnswerThatIsNoAnswerToTheBatch(t *testing.T) {
	c := newAnsweringClient(t, func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, `{"results":[]}`) })
	if _, err := c.Tasks.CreateMany(t.Context(), numbered(1)); !errors.Is(err, picket.CodeInternal) {
		t.Errorf("an answer without results: %v", err)
	}
}
