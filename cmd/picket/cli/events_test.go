package cli

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"

	"github.com/picket-dev/picket"
)

// A listing with a filter goes on over pages that hold nothing, and ends at the
// end of a log that grows while it is read.
func TestEventsAreReadToTheEndOfTheLog(t *testing.T) {
	const window = 5000
	end := int64(3*window + 700)
	wanted := []int64{2*window + 5, 2*window + 6, end - 3}
	asked := 0
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked++
		after, _ := strconv.ParseInt(r.FormValue("after"), 10, 64)
		limit, _ := strconv.Atoi(r.FormValue("limit"))
		next, found := min(after+window, end), []string{}
		for _, seq := range wanted {
			if seq > after && seq <= next {
				found = append(found, fmt.Sprintf(`{"id":"%d"}`, seq))
				if len(found) == limit {
					next = seq
					break
				}
			}
		}
		end += 20 // others write
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"events":[%s],"next":"%d"}`, strings.Join(found, ","), next)
	}))
	defer srv.Close()
	s := NewConnection(srv.URL, "")
	for _, tc := range []struct {
		limit int
		found int
		asked int
		after string
		next  string
	}{
		{limit: 100, found: 3, asked: 5},
		{limit: 1, found: 1, asked: 3, next: "10005"},
		{limit: 1, found: 1, asked: 1, after: "10005", next: "10006"},
		{limit: 2, found: 2, asked: 3, next: "10006"},
	} {
		asked = 0
		got, err := s.EventsUpTo(t.Context(), picket.EventQuery{Types: []string{"write.refused"}}, tc.after, tc.limit)
		if err != nil {
			t.Fatal(err)
		}
		if len(got.Events) != tc.found || asked != tc.asked || tc.next != "" && got.Next != tc.next {
			t.Errorf("%+v: %d events in %d requests, next %s", tc, len(got.Events), asked, got.Next)
		}
	}
}

func TestTheTextOfAHandoffIsItsQuestion(t *testing.T) {
	e := picket.Event{Type: picket.EventTaskHandoff,
		Data: []byte(`{"state":"handoff","handoffId":"handoff_1","kind":"question","question":"Which one?"}`)}
	if got, want := EventText(e), "handoff Which one?"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
