package cli

import (
	"bytes"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
)

// A long conversation is read from its newest page to its oldest. It is shown in its order, with all
// that the server says of each message.
func TestAWholeConversation(t *testing.T) {
	const messages = 250
	message := func(n int) string {
		return fmt.Sprintf(`{"messageId":"message_%d","to":"coder","from":{"kind":"person","id":"k"},"body":"text %d",`+
			`"sentAt":"2026-01-01T00:00:00.000Z","unknown":1.50}`, n, n)
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		last := messages
		if before, _ := strconv.Atoi(r.FormValue("before")); before > 0 {
			last = before - 1
		}
		limit, _ := strconv.Atoi(r.FormValue("limit"))
		first := max(1, last-limit+1)
		var rows []string
		for n := first; n <= last; n++ {
			rows = append(rows, message(n))
		}
		before := ""
		if first > 1 {
			before = fmt.Sprintf(`,"before":%d`, first)
		}
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"messages":[%s],"unread":%d%s}`, strings.Join(rows, ","), last, before)
	}))
	defer server.Close()
	show := func(format string) string {
		t.Helper()
		cmd := agentInbox.newMessages()
		var out bytes.Buffer
		cmd.SetOut(&out)
		if err := cmd.ParseFlags([]string{"--all", "--output", format}); err != nil {
			t.Fatal(err)
		}
		cmd.SetContext(t.Context())
		if err := agentInbox.showAll(cmd, NewConnection(server.URL, ""), "coder"); err != nil {
			t.Fatal(err)
		}
		return out.String()
	}
	var lines strings.Builder
	for n := 1; n <= messages; n++ {
		lines.WriteString(message(n) + "\n")
	}
	if got := show("jsonl"); got != lines.String() {
		t.Errorf("the lines begin with %.300q and have %d bytes, want %d", got, len(got), lines.Len())
	}
	if got := show("json"); !strings.HasPrefix(got, `{`) || strings.Count(got, `"messageId"`) != messages ||
		!strings.Contains(got, `"unread": 250`) || strings.Contains(got, `"before"`) {
		t.Errorf("the document begins with %.300q", got)
	}
	if got := show("table"); strings.Count(got, "person k to this agent") != messages ||
		strings.Index(got, "text 1\n") > strings.Index(got, "text 250\n") || strings.Contains(got, "older messages") {
		t.Errorf("people see %.300q", got)
	}
}
