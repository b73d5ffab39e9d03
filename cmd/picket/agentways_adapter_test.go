package main

import (
	"bytes"
	"context"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/adapter"
	"github.com/picket-dev/picket/client"
	"github.com/picket-dev/picket/cmd/picket/demo"
	"github.com/picket-dev/picket/internal/rig"
)

const adapterYAML = `agents:
  billing-processor:
    capabilities: [billing, invoicing]
    capacity: {max_concurrent_tasks: 5}
    heartbeat: {interval_seconds: 1, unhealthy_after_seconds: 60, dead_after_seconds: 600}
    drain_timeout_seconds: 77
    launch: {command: ["true"]}
`

// The declarative ways, an adapter in Go and `picket adapter --as`, register,
// work and drain as requests by hand do; only the metadata are their own.
func TestAdaptersAreAgentsLikeAnyOther(t *testing.T) {
	store, end := rig.Memory()
	defer end()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served, stop := startSuiteServer(t, store, l, http.DefaultTransport.(*http.Transport).Clone())
	defer stop()
	c := client.New(served.url, picket.Secret(served.key), client.Options{})
	lives := map[string]chan string{
		"by-hand": make(chan string, 1),
		"library": make(chan string, 1),
		"command": make(chan string, 1),
	}
	go func() { lives["by-hand"] <- workByHand(t, c, "by-hand") }()
	go func() { lives["library"] <- workAsLibrary(t, c, "library") }()
	go func() { lives["command"] <- workAsCommand(t, c, "command") }()
	want := <-lives["by-hand"]
	for _, name := range []string{"library", "command"} {
		if got := <-lives[name]; got != want {
			t.Errorf("%s differs from the requests by hand:\n%s\nall of it:\n%s", name, firstDifference(got, want), got)
		}
	}
	if n := strings.Count(want, `"type":"agent.lifecycle"`); n != 3 {
		t.Errorf("%d lifecycle events, want 3\n%s", n, want)
	}
}

func workByHand(t *testing.T, c *client.Client, id string) string {
	n := func(n int) *int { return &n }
	reg := picket.Registration{
		AgentID:             id,
		RoleID:              "billing-processor",
		Capabilities:        []string{"billing", "invoicing"},
		Capacity:            &picket.DeclaredCapacity{MaxConcurrentTasks: n(5)},
		DrainTimeoutSeconds: n(77),
		Heartbeat: &picket.Thresholds{
			IntervalSeconds:       n(1),
			UnhealthyAfterSeconds: n(60),
			DeadAfterSeconds:      n(600),
		},
	}
	if _, err := c.Agents.Register(t.Context(), reg); err != nil {
		t.Error(err)
	}
	told := awaitRegistered(t, c, id)
	hb := picket.Heartbeat{Status: picket.AgentDraining, ClientTimestamp: picket.InstantOf(time.Now())}
	if _, err := c.Agents.Heartbeat(t.Context(), id, hb); err != nil {
		t.Error(err)
	}
	if _, err := c.Agents.Deregister(t.Context(), id); err != nil { // it holds nothing, so there is nothing to wait for
		t.Error(err)
	}
	return told + "\n" + awaitDeregistered(t, c, id)
}

func workAsLibrary(t *testing.T, c *client.Client, id string) string {
	a, err := adapter.New(adapter.Config{
		BaseURL:      c.URL(),
		Key:          c.Key(),
		AgentID:      id,
		Role:         "billing-processor",
		Capabilities: []string{"billing", "invoicing"},
		Max:          5,
		Command:      []string{"true"},
		Health: adapter.HealthConfig{
			Interval:       time.Second,
			UnhealthyAfter: time.Minute,
			DeadAfter:      10 * time.Minute,
			DrainTimeout:   77 * time.Second,
		},
		StateDir:    t.TempDir(),
		Containment: picket.ContainmentGroup,
	})
	if err != nil {
		t.Error(err)
		return ""
	}
	ctx, drain := context.WithCancel(t.Context())
	defer drain()
	ended := make(chan error, 1)
	go func() { ended <- a.Run(ctx) }()
	told := awaitRegistered(t, c, id)
	awaitHeartbeat(t, c, id)
	drain()
	if err := <-ended; err != nil {
		t.Errorf("%s: %v", id, err)
	}
	return told + "\n" + awaitDeregistered(t, c, id)
}

func workAsCommand(t *testing.T, c *client.Client, id string) string {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "picket.yaml"), []byte(adapterYAML), 0o600); err != nil {
		t.Error(err)
	}
	cmd := exec.Command("picket", "adapter", "--config", "picket.yaml", "--as", "billing-processor", "--agent-id", id)
	var said bytes.Buffer
	cmd.Dir, cmd.Stderr = dir, &said
	cmd.Env = append(os.Environ(), "PICKET_URL="+c.URL(), "PICKET_API_KEY="+c.Key().Reveal(), "XDG_CONFIG_HOME="+dir,
		"XDG_STATE_HOME="+dir)
	if err := cmd.Start(); err != nil {
		t.Error(err)
		return ""
	}
	told := awaitRegistered(t, c, id)
	awaitHeartbeat(t, c, id)
	_ = cmd.Process.Signal(syscall.SIGTERM)
	if err := cmd.Wait(); err != nil {
		t.Errorf("%s: %v\n%s", id, err, said.String())
	}
	return told + "\n" + awaitDeregistered(t, c, id)
}

// awaitRegistered waits until the agent is in the registry and tells its record.
func awaitRegistered(t *testing.T, c *client.Client, id string) string {
	err := demo.PollUntil(t.Context(), func() (bool, error) {
		a, err := c.Agents.Get(t.Context(), id)
		return err == nil && a.Status == picket.AgentActive, nil
	})
	if err != nil {
		t.Errorf("%s is not registered: %v", id, err)
	}
	return withoutMetadata(readNormalized(t, c, "/api/v1/agents/"+id, id))
}

// awaitHeartbeat waits until an adapter knows of its registration: one that is to end
// before it does has nothing to drain.
func awaitHeartbeat(t *testing.T, c *client.Client, id string) {
	err := demo.PollUntil(t.Context(), func() (bool, error) {
		a, err := c.Agents.Get(t.Context(), id)
		return a.LastHeartbeatAt > a.RegisteredAt, err
	})
	if err != nil {
		t.Errorf("%s sends no heartbeats: %v", id, err)
	}
}

// awaitDeregistered waits until the agent is deregistered and tells its record and its
// log.
func awaitDeregistered(t *testing.T, c *client.Client, id string) string {
	err := demo.PollUntil(t.Context(), func() (bool, error) {
		a, err := c.Agents.Get(t.Context(), id)
		return a.Status == picket.AgentDeregistered, err
	})
	if err != nil {
		t.Errorf("%s is not deregistered: %v", id, err)
	}
	told := []string{withoutMetadata(readNormalized(t, c, "/api/v1/agents/"+id, id))}
	var log struct {
		Events []jsontext.Value `json:"events"`
	}
	if err := c.Call(t.Context(), http.MethodGet, "/api/v1/events?after=0&agent="+id, nil, &log); err != nil {
		t.Error(err)
	}
	for _, e := range log.Events {
		told = append(told, normalizeJSON(t, e, id))
	}
	return strings.Join(told, "\n")
}

// withoutMetadata takes the one member out that is the agent's own affair.
func withoutMetadata(record string) string {
	before, rest, _ := strings.Cut(record, `"metadata":`)
	_, after, _ := strings.Cut(rest, "}")
	return before + after
}
