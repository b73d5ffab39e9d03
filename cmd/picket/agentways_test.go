package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/client"
	"github.com/picket-dev/picket/cmd/picket/demo"
	"github.com/picket-dev/picket/internal/rig"
)

// agentDriver is one way to be an agent. All of them must leave the same behind
// (RFC-0016 section 3.4).
type agentDriver struct {
	register   func(ctx context.Context, id string) error
	beat       func(ctx context.Context, id string, load int) error
	drain      func(ctx context.Context, id string, version int64) error
	deregister func(ctx context.Context, id string) error
}

// testRegistration is what every way registers.
func testRegistration(id string) picket.Registration {
	n := func(n int) *int { return &n }
	return picket.Registration{
		AgentID:             id,
		RoleID:              "billing-processor",
		Name:                "Billing Processor",
		Capabilities:        []string{"billing", "invoicing"},
		Capacity:            &picket.DeclaredCapacity{MaxConcurrentTasks: n(5)},
		Endpoint:            "https://billing.example.com/webhook",
		DrainTimeoutSeconds: n(77),
		Heartbeat: &picket.Thresholds{
			IntervalSeconds:       n(1),
			UnhealthyAfterSeconds: n(2),
			DeadAfterSeconds:      n(600),
		},
		Metadata: picket.RawJSON(`{"version":"1.2.0","n":12345678901234567890}`),
	}
}

func byLibrary(c *client.Client) agentDriver {
	return agentDriver{
		register: func(ctx context.Context, id string) error {
			_, err := c.Agents.Register(ctx, testRegistration(id), client.WithIdempotencyKey(rand.Text()))
			return err
		},
		beat: func(ctx context.Context, id string, load int) error {
			_, err := c.Agents.Heartbeat(ctx, id,
				picket.Heartbeat{
					Status:          picket.AgentActive,
					CurrentLoad:     &load,
					ClientTimestamp: picket.InstantOf(time.Now()),
				})
			return err
		},
		drain: func(ctx context.Context, id string, version int64) error {
			_, err := c.Agents.Drain(ctx, id, version, time.Minute)
			return err
		},
		deregister: func(ctx context.Context, id string) error { _, err := c.Agents.Deregister(ctx, id); return err },
	}
}

// byCommand runs the binary.
func byCommand(t *testing.T, c *client.Client) agentDriver {
	run := func(ctx context.Context, args ...string) error {
		cmd := exec.CommandContext(ctx, "picket", args...)
		cmd.Dir, cmd.Env = t.TempDir(),
			append(os.Environ(), "PICKET_URL="+c.URL(), "PICKET_API_KEY="+c.Key().Reveal(),
				"XDG_CONFIG_HOME="+t.TempDir())
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("picket %s: %w\n%s", strings.Join(args, " "), err, out)
		}
		return nil
	}
	return agentDriver{
		register: func(ctx context.Context, id string) error {
			return run(ctx, "agent", "register", id, "--role", "billing-processor", "--name", "Billing Processor",
				"--capability", "billing,invoicing", "--max", "5",
				"--endpoint", "https://billing.example.com/webhook", "--drain-timeout", "77s", "--heartbeat", "1s",
				"--unhealthy-after", "2s", "--dead-after", "10m",
				"--metadata", `{"version":"1.2.0","n":12345678901234567890}`)
		},
		beat: func(ctx context.Context, id string, load int) error {
			return run(ctx, "agent", "beat", id, "--load", strconv.Itoa(load))
		},
		drain: func(ctx context.Context, id string, _ int64) error {
			return run(ctx, "agent", "drain", id, "--timeout", "1m")
		},
		deregister: func(ctx context.Context, id string) error { return run(ctx, "agent", "deregister", id) },
	}
}

// byHand writes the requests as the document shows them.
func byHand(c *client.Client) agentDriver {
	send := func(ctx context.Context, method, path, match, body string) error {
		req, err := http.NewRequestWithContext(ctx, method, c.URL()+path, strings.NewReader(body))
		if err != nil {
			return err
		}
		req.Header.Set("X-API-Key", c.Key().Reveal())
		if body != "" {
			req.Header.Set("Content-Type", "application/json")
		}
		if match != "" {
			req.Header.Set("If-Match", match)
		}
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			return err
		}
		defer res.Body.Close()
		if said, _ := io.ReadAll(res.Body); res.StatusCode > 299 {
			return fmt.Errorf("%s %s: %s\n%s", method, path, res.Status, said)
		}
		return nil
	}
	return agentDriver{
		register: func(ctx context.Context, id string) error {
			return send(ctx, http.MethodPost, "/api/v1/agents", "",
				`{"agent_id":"`+id+`","role_id":"billing-processor","name":"Billing Processor",
				"capabilities":["billing","invoicing"],"capacity":{"max_concurrent_tasks":5},"endpoint":"https://billing.example.com/webhook","drain_timeout_seconds":77,
				"heartbeat_config":{"interval_seconds":1,"unhealthy_after_seconds":2,"dead_after_seconds":600},"metadata":{"version":"1.2.0","n":12345678901234567890}}`)
		},
		beat: func(ctx context.Context, id string, load int) error {
			return send(ctx, http.MethodPost, "/api/v1/agents/"+id+"/heartbeat", "",
				fmt.Sprintf(`{"status":"active","current_load":%d,"client_timestamp":%q}`, load, time.Now().UTC().
					Format(time.RFC3339)))
		},
		drain: func(ctx context.Context, id string, version int64) error {
			return send(ctx, http.MethodPatch, "/api/v1/agents/"+id+"/status",
				fmt.Sprintf("%q", strconv.FormatInt(version, 10)), `{"status":"draining","drain_timeout_seconds":60}`)
		},
		deregister: func(ctx context.Context, id string) error {
			return send(ctx, http.MethodDelete, "/api/v1/agents/"+id, "", "")
		},
	}
}

// Every way registers an agent, falls silent until the server reports it, comes
// back, drains, registers again and leaves: records and log are the same to the
// last field.
func TestEveryWayToBeAnAgentIsTheSame(t *testing.T) {
	rig.SkipShort(t)
	store, end := rig.Memory()
	defer end()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served, stop := startSuiteServer(t, store, l, http.DefaultTransport.(*http.Transport).Clone())
	defer stop()
	c := client.New(served.url, picket.Secret(served.key), client.Options{})
	ways := map[string]agentDriver{"library": byLibrary(c), "command": byCommand(t, c), "by-hand": byHand(c)}
	lives := map[string]chan string{}
	for name, w := range ways {
		life := make(chan string, 1)
		lives[name] = life
		go func() { life <- runAgentLife(t, c, name, w) }()
	}
	want := <-lives["by-hand"]
	for _, name := range []string{"library", "command"} {
		if got := <-lives[name]; got != want {
			t.Errorf("%s differs from the requests by hand:\n%s", name, firstDifference(got, want))
		}
	}
	if n := strings.Count(want, `"type":"agent.lifecycle"`); n != 7 {
		t.Errorf("%d lifecycle events, want 7: the life was not lived\n%s", n, want)
	}
}

// runAgentLife leads a life and tells it, a record or an event a line, without what
// must differ: ids, times, and the numbers all agents share.
func runAgentLife(t *testing.T, c *client.Client, id string, w agentDriver) string {
	var told []string
	step := func(what string, err error) picket.Agent {
		if err != nil {
			t.Errorf("%s, %s: %v", id, what, err)
		}
		a, err := c.Agents.Get(t.Context(), id)
		if err != nil {
			t.Errorf("%s, read after %s: %v", id, what, err)
		}
		told = append(told, what, readNormalized(t, c, "/api/v1/agents/"+id, id))
		return a
	}
	ctx := t.Context()
	step("register", w.register(ctx, id))
	told = append(told, "listed", listed(t, c, id))
	err := demo.PollUntil(ctx, func() (bool, error) {
		a, err := c.Agents.Get(ctx, id)
		return a.Status == picket.AgentUnhealthy, err
	})
	step("silence", err)
	a := step("heartbeat", w.beat(ctx, id, 2))
	step("drain", w.drain(ctx, id, a.Version))
	step("last heartbeat", w.beat(ctx, id, 0))
	step("register again", w.register(ctx, id))
	step("deregister", w.deregister(ctx, id))
	var log struct {
		Events []jsontext.Value `json:"events"`
	}
	if err := c.Call(ctx, http.MethodGet, "/api/v1/events?after=0&agent="+id, nil, &log); err != nil {
		t.Error(err)
	}
	for _, e := range log.Events {
		told = append(told, normalizeJSON(t, e, id))
	}
	return strings.Join(told, "\n")
}

// listed is the agent's row in the registry.
func listed(t *testing.T, c *client.Client, id string) string {
	var page struct {
		Agents []jsontext.Value `json:"agents"`
	}
	if err := c.Call(t.Context(), http.MethodGet,
		"/api/v1/agents?role_id=billing-processor&capabilities=invoicing&min_available_capacity=5", nil,
		&page); err != nil {
		t.Error(err)
	}
	for _, row := range page.Agents {
		if bytes.Contains(row, []byte(`"`+id+`"`)) {
			return normalizeJSON(t, row, id)
		}
	}
	return "not listed"
}

func readNormalized(t *testing.T, c *client.Client, path, id string) string {
	var raw []byte
	if err := c.Call(t.Context(), http.MethodGet, path, nil, nil, client.WithBody(&raw)); err != nil {
		t.Error(err)
	}
	return normalizeJSON(t, raw, id)
}

// varyingMembers are members whose values no two agents can have in common; that they
// are there is compared.
var varyingMembers = []string{"id", "seq", "at", "timestamp", "registered_at", "last_heartbeat_at", "drain_deadline_at",
	"incarnation"}

func normalizeJSON(t *testing.T, raw jsontext.Value, id string) string {
	t.Helper()
	var members map[string]jsontext.Value
	if err := json.Unmarshal(raw, &members); err != nil {
		t.Errorf("%s: %v", raw, err)
	}
	for name, v := range members {
		switch {
		case slices.Contains(varyingMembers, name):
			members[name] = jsontext.Value(`"` + strings.Map(shape, string(v[:min(len(v), 1)])) + `"`)
		case v.Kind() == '{' && name != "metadata":
			members[name] = jsontext.Value(normalizeJSON(t, v, id))
		case string(v) == `"`+id+`"`:
			members[name] = jsontext.Value(`"ID"`)
		}
	}
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(members)) {
		fmt.Fprintf(&b, ",%q:%s", name, members[name])
	}
	return "{" + strings.TrimPrefix(b.String(), ",") + "}"
}

// shape tells a text from a number.
func shape(r rune) rune {
	if r == '"' {
		return 't'
	}
	return 'n'
}

func firstDifference(got, want string) string {
	a, b := strings.Split(got, "\n"), strings.Split(want, "\n")
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			return fmt.Sprintf("line %d\n got %s\nwant %s", i+1, a[i], b[i])
		}
	}
	return fmt.Sprintf("%d lines, want %d", len(a), len(b))
}
