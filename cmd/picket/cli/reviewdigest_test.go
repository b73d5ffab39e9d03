package cli

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/cmd/picket/cli/exit"
)

// oneReview is a server with one task in review that has evidence.
type oneReview struct {
	t      *testing.T
	task   string
	digest string   // now
	before func()   // a decision, such as a run that hands in something else
	sent   []string // the digests of all decisions
	log    strings.Builder
}

func newOneReview(t *testing.T) *oneReview {
	r := &oneReview{t: t, task: "task_01ARZ3NDEKTSV4RRFFQ69G5FAV", digest: "a-b-0"}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /api/v1/tasks/{id}", func(w http.ResponseWriter, _ *http.Request) {
		_ = json.MarshalWrite(w,
			picket.Task{
				TaskID: r.task,
				State:  picket.TaskReview,
				Review: &picket.Review{TaskID: r.task, RunID: "run_2", Digest: r.digest},
			})
	})
	mux.HandleFunc("GET /api/v1/tasks/{id}/evidence", func(w http.ResponseWriter, _ *http.Request) {
		_ = json.MarshalWrite(w, map[string]any{
			"evidence": []picket.Evidence{
				{RunID: "run_3", Branch: "of-another-run", Diffstat: "stolen"},
				{
					RunID:    "run_2",
					Branch:   "picket/x",
					Diffstat: "a.go of " + r.digest,
					Files:    []picket.ChangedFile{{Path: "a.go"}},
				}},
		})
	})
	mux.HandleFunc("GET /api/v1/tasks/{id}/reports",
		func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(`{"reports":[]}`)) })
	decide := func(w http.ResponseWriter, q *http.Request) {
		var d picket.Decision
		if err := json.UnmarshalRead(q.Body, &d); err != nil {
			t.Error(err)
		}
		if r.before != nil {
			r.before()
		}
		r.sent = append(r.sent, d.Digest)
		w.Header().Set("Content-Type", "application/json")
		if d.Digest != r.digest {
			w.WriteHeader(http.StatusConflict)
			_, _ = w.Write([]byte(`{"code":"version_conflict","message":"the evidence changed","remedy":"look","current":"` + r.digest + `"}`))
			return
		}
		_ = json.MarshalWrite(w,
			picket.Task{
				TaskID: r.task,
				State:  picket.TaskCompleted,
				Review: &picket.Review{TaskID: r.task, RunID: "run_2", Digest: r.digest},
			})
	}
	mux.HandleFunc("POST /api/v1/reviews/{id}/approve", decide)
	mux.HandleFunc("POST /api/v1/reviews/{id}/reject", decide)
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	t.Setenv("PICKET_URL", server.URL)
	t.Setenv("PICKET_API_KEY", "pkk_x")
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
	t.Setenv("XDG_STATE_HOME", t.TempDir())
	return r
}

func (r *oneReview) run(args ...string) error {
	r.log.Reset()
	root := newTestRoot()
	root.SetArgs(append([]string{"review"}, args...))
	root.SetOut(&r.log)
	root.SetErr(&r.log)
	return root.Execute()
}

// What was shown is what is decided about, however much later: then the person
// looks again.
func TestADecisionSendsWhatWasShown(t *testing.T) {
	for _, verb := range []string{"approve", "reject"} {
		r := newOneReview(t)
		if err := r.run("show", r.task); err != nil {
			t.Fatal(err)
		}
		if out := r.log.String(); !strings.Contains(out, "digest a-b-0") || !strings.Contains(out, "picket/x") ||
			strings.Contains(out, "stolen") || !strings.Contains(out, "run_3") {
			t.Errorf("shown:\n%s", out)
		}
		r.digest = "a-c-0"
		for range 2 {
			err := r.run(verb, r.task)
			no, ok := picket.RefusalOf(err)
			if !ok || no.Code != picket.CodeVersion || !strings.Contains(no.Remedy, "picket review show "+r.task) {
				t.Errorf("%s: %v", verb, err)
			}
		}
		if err := r.run("show", r.task); err != nil {
			t.Fatal(err)
		}
		if err := r.run(verb, r.task); err != nil {
			t.Errorf("%s after looking again: %v", verb, err)
		}
		r.digest = "a-d-0" // nothing is remembered of a task that was decided
		if err := r.run(verb, r.task); err != nil || strings.Join(r.sent, " ") != "a-b-0 a-b-0 a-c-0 a-d-0" {
			t.Errorf("%s sent %v, %v", verb, r.sent, err)
		}
	}
}

// What was never shown is printed and decided about. When something else is
// there by then, the command ends: nobody has seen that. A digest that was given
// is sent as it is.
func TestADecisionShowsWhatItIsAbout(t *testing.T) {
	for _, verb := range []string{"approve", "reject"} {
		r := newOneReview(t)
		r.before = func() { r.digest = "a-e-1" }
		err := r.run(verb, r.task)
		no, ok := picket.RefusalOf(err)
		if !ok || no.Code != picket.CodeVersion || exit.ForHTTP(no.Code.Status()) != exit.Conflict ||
			!strings.Contains(no.Remedy, "picket review show "+r.task) {
			t.Errorf("%s: %v", verb, err)
		}
		if out := r.log.String(); strings.Join(r.sent, " ") != "a-b-0" || !strings.Contains(out, "a.go of a-b-0") ||
			strings.Contains(out, "a.go of a-e-1") {
			t.Errorf("%s sent %v:\n%s", verb, r.sent, out)
		}
	}
	r := newOneReview(t)
	if err := r.run("approve", r.task); err != nil || strings.Join(r.sent, " ") != "a-b-0" ||
		!strings.Contains(r.log.String(), "a.go of a-b-0") {
		t.Errorf("sent %v, %v:\n%s", r.sent, err, &r.log)
	}
	r.digest = "a-e-1"
	r.sent = nil
	err := r.run("approve", r.task, "--digest", "a-b-0")
	if no, ok := picket.RefusalOf(err); !ok || no.Code != picket.CodeVersion || strings.Join(r.sent, " ") != "a-b-0" {
		t.Errorf("sent %v: %v", r.sent, err)
	}
	if err := r.run("approve", "--role", "coder", "--digest", "a-b-0"); picket.CodeOf(err) != exit.CodeUsage {
		t.Errorf("a digest for many: %v", err)
	}
}
