//go:build linux

package e2e

import (
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/picket-dev/picket"
)

// partitionTest is RFC-0016 section 4.6: a worker that is cut off while it works.
type partitionTest struct {
	*testEnv
	first       *process
	task        picket.Task
	processes   []int
	proxy       string
	bearer      string // of the first lease
	incarnation int64
	cutOff      func()
	heal        func()
	behindURL   string // of the orchestrator that the first worker talks to
}

// The network of a worker breaks both ways, by its link.
func TestPartitionStoryOfALink(t *testing.T) {
	hub, all := spokes(t, 2)
	w := newTestEnv(t)
	w.store()
	server := w.up("--redis", w.storeURL())
	relay := hub.relay(t, w.url)
	server.end()
	w.env = append(w.env, "PICKET_PROXY_URL="+relay)
	w.up("--redis", w.storeURL())
	s := &partitionTest{testEnv: w, behindURL: w.url}
	s.cutOff = func() { hub.cut(all[0], "both ways") }
	s.heal = func() { hub.heal(all[0], "both ways") }
	s.run(func(name, script string) *process {
		env := w.env
		defer func() { w.env, w.within = env, nil }()
		w.within = all[map[string]int{"first": 0, "second": 1}[name]]
		w.env = append(env[:len(env):len(env)], "PICKET_URL="+relay, "PICKET_API_KEY="+w.key)
		return w.briskWorker(name, script)
	})
}

// The same without any rights: the first worker reaches its servers through
// fronts, and those lose everything.
func TestPartitionStoryOfAFront(t *testing.T) {
	w := newTestEnv(t)
	w.store()
	w.up("--redis", w.storeURL())
	proxy := w.newTCPProxy(w.url)
	_, beside := w.serve("orchestrator", "orchestrator", "", "--proxy-url", proxy.url, "--secret-file",
		filepath.Join(w.data(), "secret.key"))
	control := w.newTCPProxy(beside)
	s := &partitionTest{testEnv: w, behindURL: beside}
	s.cutOff = func() { control.cut(); proxy.cut() }
	s.heal = func() { control.heal(); proxy.heal() }
	s.run(func(name, script string) *process {
		env := w.env
		defer func() { w.env = env }()
		if name == "first" {
			w.env = append(env[:len(env):len(env)], "PICKET_URL="+control.url, "PICKET_API_KEY="+w.key)
		}
		return w.briskWorker(name, script)
	})
}

// briskWorker is a worker that is missed within seconds.
func (w *testEnv) briskWorker(name, script string, flags ...string) *process {
	w.t.Helper()
	return w.worker(name, script, slices.Concat([]string{"--role", "story"}, briskFlags, flags)...)
}

// briskFlags are the same thresholds as brisk.
var briskFlags = []string{"--heartbeat", "1s", "--unhealthy-after", "2s", "--dead-after", "4s"}

// outlasting is an agent that hands its credential to the test, keeps a child
// that left its group and is deaf, and works for ever; asked to be quick it
// completes at once.
const outlasting = `
if grep -q '"title": *"quick"' "$PICKET_TASK_FILE"; then exec picket tool mark_complete --output quick; fi
picket tool report_progress --summary "before the cut" || exit
setsid sh -c 'trap "" TERM HUP; echo $$ >"$E2E/pid"; while :; do sleep 1001; done' &
echo $$ >"$E2E/pid"
echo "$PICKET_PROXY_URL $PICKET_LEASE_TOKEN" >"$E2E/token"
while :; do sleep 1003; done`

// replacing is an agent that completes when it is told to.
const replacing = `echo $$ >"$E2E/pid"; read x <"$E2E/go"; exec picket tool mark_complete --output "by the second"`

func (s *partitionTest) run(hire func(name, script string) *process) {
	s.begin(hire)
	cut := time.Now()
	s.cutOff()
	gone(s.t, "the tree of a worker that is cut off", s.processes...)
	s.t.Logf("the tree was dead %s after the cut", time.Since(cut).Round(time.Millisecond))
	dead := s.lifecycle("first", picket.AgentDead, picket.ReasonHeartbeatTimeout, 1)
	next := s.leased(s.task.TaskID, 2)
	s.t.Logf("leased again %s after the cut", time.Since(cut).Round(time.Millisecond))
	if next.AgentID != "second" {
		s.t.Errorf("%s replaces it", next.AgentID)
	}
	record := s.agent("first")
	silent := time.Duration(dead.Timestamp-record.LastHeartbeatAt) * time.Millisecond
	if record.Status != picket.AgentDead || silent < 4*time.Second-100*time.Millisecond {
		s.t.Errorf("it is %s, made dead after a silence of %s", record.Status, silent)
	}
	s.expectGone(http.StatusGone, 0)
	s.expectGone(http.StatusGone, s.incarnation)
	s.expectFencedOff()

	before := s.turnedAway()
	s.heal()
	s.lifecycle("first", picket.AgentActive, picket.ReasonReRegistered, 1)
	if n := s.turnedAway(); n == before {
		s.t.Errorf("the worker registered again though it was not turned away: %d were", n)
	}
	if again := s.agent("first"); again.Incarnation <= s.incarnation || again.Version != 1 ||
		again.RegisteredAt != record.RegisteredAt {
		s.t.Errorf("registered again: %+v", again)
	}
	s.expectGone(http.StatusGone, s.incarnation) // anyone who was before
	s.expectFencedOff()

	s.give("go")
	s.of(s.task.TaskID, picket.EventTaskCompleted)
	if got := s.testEnv.task(s.task.TaskID); string(got.Output) != `"by the second"` || got.Attempts != 2 {
		s.t.Errorf("output %s after %d attempts", got.Output, got.Attempts)
	}
	s.goesOn()
	s.expectOrder()
}

// begin has the first worker at work and the second one waiting.
func (s *partitionTest) begin(hire func(name, script string) *process) {
	s.t.Helper()
	pid, token := s.fifo("pid"), s.fifo("token")
	s.fifo("go")
	spec := spec("interrupted", 60)
	spec.Role, spec.Review = "story", picket.ReviewByNone
	backoff := 0
	spec.Retry = &picket.Retry{BackoffSeconds: &backoff}
	s.first = hire("first", outlasting)
	s.lifecycle("first", picket.AgentActive, picket.ReasonRegistered, 1)
	s.task = s.submit(spec)
	s.processes = []int{pid.takePID(), pid.takePID()}
	s.proxy, s.bearer, _ = strings.Cut(token.take(), " ")
	s.incarnation = s.agent("first").Incarnation
	hire("second", replacing)
	s.lifecycle("second", picket.AgentActive, picket.ReasonRegistered, 1)
	s.waiting(1)
}

// expectGone sends a heartbeat for the first agent from somewhere that is not
// cut off.
func (s *partitionTest) expectGone(status int, incarnation int64) {
	s.t.Helper()
	got, err := (&rawAgent{testEnv: s.testEnv, id: "first", incarnation: incarnation}).beat()
	if err != nil || got.status != status || got.code() != picket.CodeAgentGone {
		s.t.Errorf("heartbeat of a dead agent, incarnation %d: %d %v %s", incarnation, got.status, err, got.body)
	}
}

// expectFencedOff sends every kind of write with the old credential of the agent,
// past the cut. The adapter's routes are closed to it in any case.
func (s *partitionTest) expectFencedOff() {
	s.t.Helper()
	for path, body := range map[string]any{
		"/v1/tools/report_progress":    map[string]string{"summary": "as if nothing had happened"},
		"/v1/tools/mark_complete":      map[string]string{"output": "by the first"},
		"/v1/tools/mark_failed":        map[string]any{"reason": "why not", "retryable": true},
		"/v1/tools/request_human_help": map[string]string{"question": "who am I?"},
	} {
		got := s.call(s.bearer, http.MethodPost, s.url+path, body)
		if got.status != http.StatusPreconditionFailed || got.code() != picket.CodeStaleFence {
			s.t.Errorf("%s under the old lease: %d %s", path, got.status, got.body)
		}
	}
	for path, body := range map[string]any{
		"/v1/lease/renew":   struct{}{},
		"/v1/lease/release": map[string]any{"exit": map[string]string{"class": "crash"}},
	} {
		if got := s.call(s.bearer, http.MethodPost, s.url+path, body); got.status != http.StatusForbidden {
			s.t.Errorf("%s with the credential of the agent: %d %s", path, got.status, got.body)
		}
	}
}

// turnedAway counts the heartbeats and the requests for leases that were answered with 410 where
// the first worker sends its own: it learns of its death by whichever comes first.
func (s *partitionTest) turnedAway() int {
	s.t.Helper()
	url := s.url
	defer func() { s.url = url }()
	s.url = s.behindURL
	return s.counted(`/heartbeat",status="410"`) + s.counted(`/leases",status="410"`)
}

// goesOn has the first worker do another task: what befell it is over.
func (s *partitionTest) goesOn() {
	s.t.Helper()
	after := spec("quick", 60)
	after.Role, after.Agent, after.Review = "story", "first", picket.ReviewByNone
	s.of(s.submit(after).TaskID, picket.EventTaskCompleted)
	if s.first.ended() {
		s.t.Errorf("the first worker is gone:\n%s", s.first.err.text())
	}
}

// expectOrder reads the whole story from the log.
func (s *partitionTest) expectOrder() {
	s.t.Helper()
	var got []string
	for _, ev := range s.allEvents() {
		switch {
		case ev.Type == picket.EventAgentLifecycle && ev.LifecycleAgentID == "first":
			got = append(got, fmt.Sprintf("%s > %s: %s", ev.PreviousStatus, ev.NewStatus, ev.Reason))
		case ev.TaskID == s.task.TaskID && ev.Type == picket.EventLeaseExpired:
			got = append(got, fmt.Sprintf("%s %d: %s", ev.Type, ev.FencingToken, ev.Reason))
		case ev.TaskID == s.task.TaskID && slices.Contains([]string{picket.EventTaskSubmitted, picket.EventTaskLeased,
			picket.EventTaskProgress, picket.EventTaskCompleted, picket.EventLeaseReleased, picket.EventTaskHandoff},
			ev.Type):
			got = append(got, fmt.Sprintf("%s %d", ev.Type, ev.FencingToken))
		}
	}
	want := []string{
		"registering > active: registered", "task.submitted 0", "task.leased 1", "task.progress 1",
		"active > unhealthy: heartbeat_timeout", "unhealthy > dead: heartbeat_timeout", "lease.expired 1: agent_dead",
		"task.leased 2", "dead > active: re_registered", "task.completed 2",
	}
	if got = steady(got); !slices.Equal(got, want) {
		s.t.Errorf("the log tells\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}
