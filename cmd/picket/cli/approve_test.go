package cli

import (
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"

	"github.com/picket-dev/picket"
)

// longQueue answers pages of the review queue on which nothing matches except for
// one task on the page that is the last one, and approves what it is asked to.
func longQueue(t *testing.T, last int) (pages *int) {
	pages = new(int)
	mux := http.NewServeMux()
	mux.HandleFunc("GET /api/v1/reviews", func(w http.ResponseWriter, r *http.Request) {
		*pages++
		page := picket.ReviewPage{Reviews: []picket.PendingReview{}}
		if at, _ := strconv.Atoi(r.URL.Query().Get("cursor")); at < last {
			next := strconv.Itoa(at + 1)
			page.NextCursor = &next
		} else {
			page.Reviews = append(page.Reviews, picket.PendingReview{TaskID: "task_far", Role: "coder"})
		}
		_ = json.MarshalWrite(w, page)
	})
	mux.HandleFunc("POST /api/v1/reviews/approve", func(w http.ResponseWriter, r *http.Request) {
		var asked picket.BulkApproval
		if err := json.UnmarshalRead(r.Body, &asked); err != nil {
			t.Error(err)
		}
		_ = json.MarshalWrite(w, picket.BulkApproved{Approved: asked.Filter.TaskIDs, Lost: []picket.LostRace{}})
	})
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	t.Setenv("PICKET_URL", server.URL)
	t.Setenv("PICKET_API_KEY", "pkk_x")
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
	return pages
}

// A page of a filtered queue can be empty and not the last one: what matches is
// looked for to the end of the queue.
func TestApproveLooksThroughTheWholeQueue(t *testing.T) {
	longQueue(t, 25)
	var out strings.Builder
	root := newTestRoot()
	root.SetArgs([]string{"review", "approve", "--role", "coder", "--yes", "-o", "name"})
	root.SetOut(&out)
	if err := root.Execute(); err != nil || out.String() != "task_far\n" {
		t.Errorf("approved %q, %v", out.String(), err)
	}
}

// Of a queue that is too long it does not say that nothing matches.
func TestApproveSaysThatItStoppedLooking(t *testing.T) {
	pages := longQueue(t, 1<<30)
	root := newTestRoot()
	root.SetArgs([]string{"review", "approve", "--role", "coder", "--yes"})
	err := root.Execute()
	no, ok := picket.RefusalOf(err)
	if !ok || !strings.Contains(no.Message, "goes on") || !strings.Contains(no.Remedy, "--count") ||
		*pages != maxQueuePages {
		t.Errorf("after %d pages: %v", *pages, err)
	}
}
