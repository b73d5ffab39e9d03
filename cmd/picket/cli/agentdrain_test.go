package cli

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/spf13/cobra"

	"github.com/picket-dev/picket"
)

// Waiting for the end of a drain tells what it waits for: of an agent without a lease,
// and of a server that is away.
func TestAWaitForADrainTellsWhatItWaitsFor(t *testing.T) {
	var mu sync.Mutex // a client that got no answer asks again on another connection
	asked := 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		w.Header().Set("Content-Type", "application/json")
		if r.URL.Path == "/api/v1/leases" && asked > 0 && asked < 3 {
			panic(http.ErrAbortHandler) // the number of leases is then not known
		}
		if !strings.HasSuffix(r.URL.Path, "/agents/worker") {
			io.WriteString(w, `{}`)
			return
		}
		switch asked++; asked {
		case 1, 2:
			panic(http.ErrAbortHandler) // no answer
		case 3:
			io.WriteString(w, `{"agent_id":"worker","status":"draining","incarnation":7}`)
		default:
			io.WriteString(w, `{"agent_id":"worker","status":"deregistered","incarnation":7}`)
		}
	}))
	defer server.Close()
	var out, talk bytes.Buffer
	cmd := &cobra.Command{}
	cmd.Flags().String("output", "table", "")
	cmd.SetOut(&out)
	cmd.SetErr(&talk)
	s := NewConnection(server.URL, "")
	agent := picket.Agent{AgentID: "worker", Status: picket.AgentDraining, Incarnation: 7}
	agent.Heartbeat.IntervalSeconds = 30
	if err := s.awaitDrained(t.Context(), cmd, agent, ""); err != nil {
		t.Fatal(err)
	}
	_, said, _ := strings.Cut(talk.String(), "\n") // the first line has a time
	want := "it holds 0 leases\nit is deregistered at its next heartbeat, or after 30s without one\n" +
		"the server does not answer; going on when it does\n"
	if said != want || asked != 4 {
		t.Errorf("asked %d times, said %q, want %q", asked, said, want)
	}
}
