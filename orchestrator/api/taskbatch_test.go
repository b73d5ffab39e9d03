package api_test

import (
	"bytes"
	"fmt"
	"io"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/go-json-experiment/json"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/budget"
	"github.com/picket-dev/picket/internal/rig"
	"github.com/picket-dev/picket/internal/rig/contract"
	"github.com/picket-dev/picket/internal/web"
	"github.com/picket-dev/picket/orchestrator/api"
)

const batchPath = "/api/v1/tasks/batch"

// batchResult is the answer to one task of a batch.
type batchResult struct {
	Status            int            `json:"status"`
	RetryAfterSeconds int            `json:"retryAfterSeconds"`
	Task              picket.Task    `json:"task"`
	Error             map[string]any `json:"error"`
}

func (p *fixture) submitBatch(tasks ...string) []batchResult {
	p.t.Helper()
	a := p.want(200, "POST", batchPath, "operator", batchBody(tasks...))
	var got struct {
		Results []batchResult `json:"results"`
	}
	must(p.t, json.Unmarshal([]byte(a.raw), &got))
	if len(got.Results) != len(tasks) {
		p.t.Fatalf("%d tasks have %d results: %s", len(tasks), len(got.Results), a.raw)
	}
	return got.Results
}

func batchBody(tasks ...string) string { return `{"tasks":[` + strings.Join(tasks, ",") + `]}` }

// numberedTasks are n tasks with the titles "task 0" and so on, each with a key.
func numberedTasks(n int) []string {
	tasks := make([]string, n)
	for i := range tasks {
		tasks[i] = fmt.Sprintf(`{"title":"task %d","idempotencyKey":"import/%d"}`, i, i)
	}
	return tasks
}

func statuses(results []batchResult) string {
	var all []string
	for _, r := range results {
		all = append(all, fmt.Sprint(r.Status))
	}
	return strings.Join(all, " ")
}

func (p *fixture) wantStatuses(want string, results []batchResult) {
	p.t.Helper()
	if got := statuses(results); got != want {
		p.t.Fatalf("the batch was answered %s, want %s: %+v", got, want, results)
	}
}

// wantTasks expects that there are n tasks.
func (p *fixture) wantTasks(n int) {
	p.t.Helper()
	seen := 0
	for q := (picket.TaskQuery{Limit: 50}); ; {
		page, err := p.Tasks(p.t.Context(), q)
		must(p.t, err)
		seen += len(page.Tasks)
		if page.NextCursor == nil {
			break
		}
		q.Cursor = *page.NextCursor
	}
	if seen != n {
		p.t.Errorf("there are %d tasks, want %d", seen, n)
	}
}

func TestTasksOfABatchAreLeasedInItsOrder(t *testing.T) {
	onBothStores(t, func(t *testing.T, p *fixture) {
		results := p.submitBatch(numberedTasks(30)...)
		for i, r := range results {
			if r.Status != 201 || r.Task.Title != fmt.Sprint("task ", i) || r.Task.State != picket.TaskQueued {
				t.Errorf("result %d: %+v", i, r)
			}
		}
		for i, r := range results {
			if lease, _ := p.lease(); lease.TaskID != r.Task.TaskID {
				t.Errorf("lease %d is of %q", i, lease.Task.Title)
			}
		}
	})
}

// A batch of one is answered what a single submit is answered.
func TestATaskOfABatchIsAnsweredAsAlone(t *testing.T) {
	onBothStores(t, func(t *testing.T, p *fixture) {
		const task = `{"title":"x","input":{"n":1.50},"role":"coder","needs":["go"],"labels":{"b":"1","a":"2"}}`
		const trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
		alone := p.want(201, "POST", "/api/v1/tasks", "operator", task, "Traceparent", trace)
		batch := p.want(200, "POST", batchPath, "operator", batchBody(task), "Traceparent", trace)
		const varies = "taskId root createdAt updatedAt"
		inBatch := batch.body["results"].([]any)[0].(map[string]any)["task"].(map[string]any)
		for name, want := range alone.body {
			if got := inBatch[name]; !strings.Contains(varies, name) && fmt.Sprint(got) != fmt.Sprint(want) {
				t.Errorf("%s is %v in a batch and %v alone", name, got, want)
			}
		}
		for _, bad := range []string{`{"title":" "}`, `{"title":"x","fixes":""}`, `{"title":"x","retry":{"max":3}}`,
			`{"title":"x","fixes":"task_` + aULID + `"}`, `{"title":"x","title":"y"}`, "{\"title\":\"\xff\"}",
			`{"title":"x","input":` + strings.Repeat("[", 200) + strings.Repeat("]", 200) + `}`,
			`{"title":"x","input":"` + strings.Repeat("x", picket.MaxPayload) + `"}`} {
			want := p.call("POST", "/api/v1/tasks", "operator", bad)
			got := p.submitBatch(`{"title":"before"}`, bad, `{"title":"after"}`)
			p.wantStatuses(fmt.Sprintf("201 %d 201", want.status), got)
			field, hasField := want.body["field"].(string)
			if hasField && got[1].Error["field"] != "/tasks/1"+field || !hasField && got[1].Error["field"] != nil {
				t.Errorf("%.60s: field %v, alone %q", bad, got[1].Error["field"], field)
			}
			for _, same := range []string{"code", "message", "title", "retryable", "status", "limit", "detail"} {
				if got, want := got[1].Error[same], want.body[same]; got != want {
					t.Errorf("%.60s: %s is %q, alone %q", bad, same, got, want)
				}
			}
			if got[1].Error["remedy"] == "" || got[1].Error["requestId"] == "" {
				t.Errorf("%.60s: %v", bad, got[1].Error)
			}
		}
	})
}

func TestABatchThatIsNoListIsRefusedWhole(t *testing.T) {
	onBothStores(t, func(t *testing.T, p *fixture) {
		many := strings.Repeat(`{"title":"x"},`, picket.MaxBatchTasks)
		for _, tt := range []struct {
			name, body string
			code       picket.Code
			field      string
		}{
			{"no body", "", picket.CodeValidation, "/tasks"},
			{"empty object", `{}`, picket.CodeValidation, "/tasks"},
			{"array", `[{"title":"x"}]`, picket.CodeValidation, ""},
			{"null", `null`, picket.CodeValidation, ""},
			{"empty list", `{"tasks":[]}`, picket.CodeValidation, "/tasks"},
			{"no list", `{"tasks":{"title":"x"}}`, picket.CodeValidation, "/tasks"},
			{"null list", `{"tasks":null}`, picket.CodeValidation, "/tasks"},
			{"two lists", `{"tasks":[{"title":"x"}],"tasks":[{"title":"y"}]}`, picket.CodeValidation, "/tasks"},
			{"unknown member", `{"tasks":[{"title":"x"}],"mode":"fast"}`, picket.CodeValidation, "/mode"},
			{"wrong case", `{"Tasks":[{"title":"x"}]}`, picket.CodeValidation, "/Tasks"},
			{"one too many", `{"tasks":[` + many + `{"title":"x"}]}`, picket.CodeValidation, "/tasks"},
			{"broken off", `{"tasks":[{"title":"x"},{"title":`, picket.CodeValidation, "/tasks/1/title"},
			{"no JSON in the middle", `{"tasks":[{"title":"x"},{"title":nul},{"title":"y"}]}`, picket.CodeValidation,
				"/tasks/1/title"},
			{"something after it", `{"tasks":[{"title":"x"}]} {}`, picket.CodeValidation, ""},
			{"too deep to read", batchBody(`{"title":"x"}`, strings.Repeat("[", 20_000)+strings.Repeat("]", 20_000)),
				picket.CodeValidation, "/tasks/1" + strings.Repeat("/0", 9998)},
			{"too long", `{"tasks":[{"title":"x"}]` + strings.Repeat(" ", picket.MaxBatchBytes) + `}`,
				picket.CodeTooLarge, ""},
		} {
			t.Run(tt.name, func(t *testing.T) {
				a := p.wantCode(tt.code, "POST", batchPath, "operator", tt.body)
				if a.text("field") != tt.field {
					t.Errorf("field %q, want %q: %.300s", a.text("field"), tt.field, a.raw)
				}
			})
		}
		p.wantCode(picket.CodeValidation, "POST", batchPath, "operator", batchBody(`{"title":"x"}`),
			"Idempotency-Key", "k")
		p.wantCode(picket.CodeUnsupportedMedia, "POST", batchPath, "operator", batchBody(`{"title":"x"}`),
			"Content-Type", "text/plain")
		p.wantTasks(0)
	})
}

func TestTheLargestBatchIsTaken(t *testing.T) {
	p := newFixture(t, rig.Real(t), api.Config{})
	task := `{"title":"x","input":"` + strings.Repeat("x", picket.MaxPayload/16) + `"}`
	tasks := strings.Split(strings.TrimSuffix(strings.Repeat(task+"\n", picket.MaxBatchTasks), "\n"), "\n")
	body := batchBody(tasks...)
	body += strings.Repeat(" ", picket.MaxBatchBytes-len(body))
	a := p.want(200, "POST", batchPath, "operator", body)
	if n := strings.Count(a.raw, `"status":201`); n != picket.MaxBatchTasks {
		t.Errorf("%d tasks were submitted", n)
	}
	p.wantTasks(picket.MaxBatchTasks)
}

// Elements that are not tasks are refused one by one, and say where they stand.
func TestElementsThatAreNoTasks(t *testing.T) {
	p := newMemoryFixture(t)
	results := p.submitBatch(`null`, `7`, `"x"`, `[]`, `{}`, `{"title":"x","idempotencyKey":""}`,
		`{"title":"x","idempotencyKey":"`+strings.Repeat("k", 256)+`"}`, `{"title":"x","idempotencyKey":"\u00fc"}`,
		`{"title":"x","idempotencyKey":7}`, `{"title":"x","idempotencyKey":null}`)
	p.wantStatuses("400 400 400 400 400 400 400 400 400 201", results)
	for i, field := range []string{"", "", "", "", "/title", "/idempotencyKey", "/idempotencyKey", "/idempotencyKey",
		"/idempotencyKey"} {
		e := results[i].Error
		if e["field"] != fmt.Sprintf("/tasks/%d%s", i, field) || e["remedy"] == "" || e["message"] == "" {
			t.Errorf("element %d: %v", i, e)
		}
	}
	long := `{"title":"x","input":"` + strings.Repeat("x", 1<<20) + `"}`
	results = p.submitBatch(long, `{"title":"y"}`)
	p.wantStatuses("413 201", results)
	if results[0].Error["limit"] != float64(1<<20) {
		t.Errorf("a task that is too long: %v", results[0].Error)
	}
}

func TestKeysOfABatch(t *testing.T) {
	onBothStores(t, func(t *testing.T, p *fixture) {
		const first, other = `{"title":"a","idempotencyKey":"k"}`, `{"title":"b","idempotencyKey":"k"}`
		results := p.submitBatch(first, `{"title":"c"}`, other, first, `{"title":"c"}`)
		p.wantStatuses("201 201 422 201 201", results)
		if results[0].Task.TaskID != results[3].Task.TaskID || results[1].Task.TaskID == results[4].Task.TaskID {
			t.Errorf("the same key made another task, or no key made the same: %+v", results)
		}
		if results[2].Error["code"] != string(picket.CodeIdempotencyConflict) {
			t.Errorf("another task under the key: %v", results[2].Error)
		}
		p.wantTasks(3)

		// Alone and in a batch a key means the same.
		alone := p.want(201, "POST", "/api/v1/tasks", "operator", `{"title":"a"}`, "Idempotency-Key", "k")
		if alone.text("taskId") != results[0].Task.TaskID {
			t.Errorf("alone, the key of the batch made %s", alone.raw)
		}
		p.wantCode(picket.CodeIdempotencyConflict, "POST", "/api/v1/tasks", "operator", `{"title":"b"}`,
			"Idempotency-Key", "k")
		id := p.want(201, "POST", "/api/v1/tasks", "operator", `{"title":"d"}`, "Idempotency-Key", "k2").text("taskId")
		if r := p.submitBatch(`{"idempotencyKey":"k2","title":"d"}`); r[0].Task.TaskID != id {
			t.Errorf("in a batch, the key of a single task made %+v", r[0])
		}

		// A refused task is not remembered.
		results = p.submitBatch(`{"title":"","idempotencyKey":"k3"}`, `{"title":"e","idempotencyKey":"k3"}`)
		p.wantStatuses("400 201", results)
	})
}

func TestABatchThatIsRepeatedSubmitsNothingTwice(t *testing.T) {
	onBothStores(t, func(t *testing.T, p *fixture) {
		tasks := numberedTasks(60)
		first := p.submitBatch(tasks...)
		again := p.submitBatch(tasks...)
		for i := range first {
			if first[i].Task.TaskID != again[i].Task.TaskID || again[i].Status != 201 {
				t.Errorf("result %d: %+v, then %+v", i, first[i], again[i])
			}
		}
		p.wantTasks(len(tasks))
	})
}

func TestTwoClientsSendOneBatchAtOnce(t *testing.T) {
	onBothStores(t, func(t *testing.T, p *fixture) {
		tasks := numberedTasks(40)
		var got [3][]batchResult
		var group sync.WaitGroup
		for i := range got {
			group.Go(func() { got[i] = p.submitBatch(tasks...) })
		}
		group.Wait()
		for i := range tasks {
			for _, results := range got {
				if results[i].Status != 201 || results[i].Task.TaskID != got[0][i].Task.TaskID {
					t.Errorf("task %d: %+v and %+v", i, results[i], got[0][i])
				}
			}
		}
		p.wantTasks(len(tasks))
		for i := range tasks {
			if lease, _ := p.lease(); lease.Task.Title != fmt.Sprint("task ", i) {
				t.Errorf("lease %d is of %q", i, lease.Task.Title)
			}
		}
	})
}

// A quota that is reached in the middle refuses the tasks that do not fit, and only those.
func TestTheDailyLimitIsReachedInTheMiddleOfABatch(t *testing.T) {
	onBothStores(t, func(t *testing.T, p *fixture) {
		p.store.SetBudgets(&budget.Envelope{USD: 100_000_000_000, Tokens: 100}, nil)
		task := func(tokens int) string {
			return fmt.Sprintf(`{"title":"x","budgetEnvelope":{"tokens":%d,"usd":1}}`, tokens)
		}
		results := p.submitBatch(task(60), task(50), task(40), task(1))
		p.wantStatuses("201 402 201 402", results)
		if e := results[1].Error; e["code"] != string(picket.CodeBudgetExceeded) || e["remedy"] == "" {
			t.Errorf("over the limit: %v", e)
		}
		p.wantTasks(2)
	})
}

// Each task counts against the rate of the key. A task is never queued before an earlier one that
// was refused for the rate.
func TestTheRateOfAKeyIsReachedInTheMiddleOfABatch(t *testing.T) {
	store, stop := rig.Memory()
	t.Cleanup(stop)
	p := newFixture(t, store, api.Config{Rates: web.NewRates(1, 1)})
	results := p.submitBatch(numberedTasks(40)...) // the bucket holds five and gains one a second
	submitted := strings.Count(statuses(results), "201")
	if submitted < 5 || submitted > 30 {
		t.Fatalf("%d tasks were submitted: %s", submitted, statuses(results))
	}
	for i, r := range results[submitted:] {
		if r.Status != 429 || r.RetryAfterSeconds != 1 || r.Error["perSecond"] != 1.0 {
			t.Errorf("task %d: %+v", submitted+i, r)
		}
	}
	p.wantTasks(submitted)
	a := p.wantCode(picket.CodeRateLimited, "POST", batchPath, "operator", batchBody(numberedTasks(1)...))
	if a.header.Get("Retry-After") != "1" {
		t.Errorf("a batch without any rate left: %s", a.raw)
	}
}

func TestALongBatchStopsInTime(t *testing.T) {
	p := newMemoryFixture(t)
	p.api.SetBatchTime(0)
	results := p.submitBatch(numberedTasks(3)...)
	p.wantStatuses("503 503 503", results)
	for i, r := range results {
		if r.RetryAfterSeconds != 1 || r.Error["code"] != string(picket.CodeUnavailable) ||
			r.Error["retryable"] != true {
			t.Errorf("task %d: %+v", i, r)
		}
	}
	p.wantTasks(0)
}

// A body that costs much more to read than to send would be a weapon: the time must grow with the
// length only. Quadratic work on these bodies would take minutes.
func TestHostileBatchesAreReadInLinearTime(t *testing.T) {
	p := newMemoryFixture(t)
	name := strings.Repeat("n", 500_000)
	for what, body := range map[string]string{
		"many elements":        `{"tasks":[` + strings.Repeat("0,", 4_000_000) + `0]}`,
		"many members":         `{"tasks":[{"title":"x"}],` + strings.Repeat(`"a":0,`, 1_000_000) + `"b":0}`,
		"long name over empty": batchBody(`{"title":"x","` + name + `":[` + strings.Repeat(`"",`, 100_000) + `""]}`),
		"long name in input": batchBody(`{"title":"x","idempotencyKey":"k","input":{"` + strings.Repeat("n", 100_000) + `":[` +
			strings.Repeat(`"",`, 50_000) + `""]}}`),
		"many names": batchBody(`{"title":"x","labels":{` + strings.Repeat(`"a":"",`, 100_000) + `"b":""}}`),
		"deep":       `{"tasks":` + strings.Repeat(`[`, 4_000_000),
		"one string": `{"tasks":["` + strings.Repeat(`\u0000`, 1_000_000) + `"]}`,
	} {
		a := p.call("POST", batchPath, "operator", body)
		if a.status != 200 && a.status != 400 || len(a.raw) > 1<<20 {
			t.Errorf("%s: %d with %d bytes: %.300s", what, a.status, len(a.raw), a.raw)
		}
	}
}

// FuzzBatchElement puts anything into the middle of a batch: if it is JSON, the others are submitted.
func FuzzBatchElement(f *testing.F) {
	p, d := newMemoryFixture(f), contract.Load(f)
	for _, s := range fuzzSeeds {
		f.Add([]byte(s))
	}
	f.Add([]byte(`{"title":"x","idempotencyKey":"k"}`))
	f.Fuzz(func(t *testing.T, element []byte) {
		if hugeNumber(element) {
			t.Skip("the checker of answers reads numbers into a float64")
		}
		var v any
		whole := json.Unmarshal(element, &v) == nil
		body := bytes.Join([][]byte{[]byte(`{"tasks":[{"title":"a"},`), element, []byte(`,{"title":"b"}]}`)}, nil)
		r := httptest.NewRequest("POST", "http://localhost"+batchPath, bytes.NewReader(body))
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("X-API-Key", p.keys["admin"])
		p.checkResponse(t, d, r.Clone(t.Context()))
		r.Body = io.NopCloser(bytes.NewReader(body))
		w := httptest.NewRecorder()
		p.handler.ServeHTTP(w, r)
		if whole && w.Code != 200 {
			t.Fatalf("%d %.500s", w.Code, w.Body)
		}
		if first := `{"results":[{"status":201,`; whole && (!strings.HasPrefix(w.Body.String(), first) ||
			strings.Count(w.Body.String(), `{"status":201,`) < 2) {
			t.Fatalf("the neighbours of the element: %.500s", w.Body)
		}
	})
}

func FuzzBatchBody(f *testing.F) {
	f.Add([]byte(`{"tasks":[{"title":"x","idempotencyKey":"k"},{"title":"x","idempotencyKey":"k"},7]}`))
	f.Add([]byte(`{"tasks":[{}],"tasks":[]}`))
	fuzz(f, fixedPath(batchPath))
}
