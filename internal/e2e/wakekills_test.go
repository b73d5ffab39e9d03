//go:build linux

package e2e

import (
	"net/http"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/go-json-experiment/json"
	"golang.org/x/sys/unix"

	"github.com/picket-dev/picket"
)

// sleepyAgent answers a prompt when it is told to, and notes which prompts it has seen.
const sleepyAgent = `dir=${0%/*}
while IFS= read -r line; do
	id=$(printf '%s' "$line" | sed 's/.*"promptId":"\([^"]*\)".*/\1/')
	echo "$id" >>"$dir/seen"
	echo $$ >"$dir/pid"
	read x <"$dir/go"
	printf '{"type":"answer","promptId":"%s","text":"nothing to do"}\n' "$id"
done
`

// wakeTest is a server with an agent whose sleeping session is woken, while processes are killed.
type wakeTest struct {
	*testEnv
	server  *process
	adapter *process
	session string
	pid     *fifo
}

func newWakeTest(t *testing.T) *wakeTest {
	w := &wakeTest{testEnv: newTestEnv(t)}
	w.put("agent.sh", sleepyAgent)
	w.put("seen", "")
	w.put("config/picket/picket.yaml", "wake: {wake_cooldown: 1s, min_interval: 1s}\nagents:\n  coder:\n"+
		"    session: {max: 1}\n    launch: {command: [sh, "+w.path("agent.sh")+"]}\n")
	w.pid = w.fifo("pid")
	w.fifo("go")
	w.store()
	w.startServer()
	w.startAdapter()
	return w
}

func (w *wakeTest) startServer() { w.server = w.up("--redis", w.storeURL(), "--log-level", "warn") }

// startAdapter starts the adapter, and waits until its session is idle.
func (w *wakeTest) startAdapter() {
	w.t.Helper()
	w.adapter = w.start("adapter", "adapter", "--as", "coder", "--agent-id", "sleeper")
	w.idle()
	if w.session == "" {
		var page picket.AgentSessionPage
		w.into(&page, http.MethodGet, "/agent-sessions", nil)
		w.session = page.Sessions[0].SessionID
		written := w.call(w.key, http.MethodPut, w.url+"/api/agents/coder/heartbeat",
			map[string]string{"body": "Look at your messages.\n", "expected_digest": ""})
		if written.status/100 != 2 {
			w.t.Fatalf("%d %s", written.status, written.body)
		}
	}
}

// idle waits until the session can be woken. A server that was started again decides about wakes as soon as it has the
// directory of the policies, and then counts only the reports that come after that.
func (w *wakeTest) idle() {
	w.t.Helper()
	w.until("the session is idle", func() bool {
		var page picket.AgentSessionPage
		w.into(&page, http.MethodGet, "/agent-sessions", nil)
		eligible := slices.ContainsFunc(page.Sessions,
			func(s picket.AgentSession) bool { return s.Health.EligibleForWake })
		return eligible && (w.session == "" || w.allowed())
	})
}

// allowed reports whether the session could be woken, if not now, then after the cooldown.
func (w *wakeTest) allowed() bool {
	var d picket.WakeDecision
	got, err := try(w.key, http.MethodPost, w.url+"/api/agents/coder/heartbeat/wake", map[string]bool{"dry_run": true})
	return err == nil && json.Unmarshal(got.body, &d) == nil &&
		(d.Result == picket.WakeResultSent || d.Result == picket.WakeResultRateLimited)
}

// tryWake asks for one wake. Its answer is zero if nobody has answered.
func (w *wakeTest) tryWake() (d picket.WakeDecision) {
	got, err := try(w.key, http.MethodPost, w.url+"/api/agents/coder/heartbeat/wake", map[string]string{})
	if err == nil {
		_ = json.Unmarshal(got.body, &d)
	}
	return d
}

// insistOnWake asks for a wake until one goes out, or nobody answers.
func (w *wakeTest) insistOnWake(decided chan<- picket.WakeDecision) {
	for {
		d := w.tryWake()
		if d.Result == picket.WakeResultRateLimited || d.Result == picket.WakeResultSkipped {
			continue
		}
		decided <- d
		return
	}
}

// wake wakes the session, and waits for its agent to work on that.
func (w *wakeTest) wake() (prompt string, agent int) {
	w.t.Helper()
	w.until("a wake is sent", func() bool {
		d := w.tryWake()
		prompt = d.WakeID
		return d.Result == picket.WakeResultSent
	})
	return prompt, w.pid.takePID()
}

// awaitPrompt waits for the end of a prompt, and checks how often the agent has seen it.
func (w *wakeTest) awaitPrompt(id string, want picket.PromptState, seen int) {
	w.t.Helper()
	var p picket.SessionPrompt
	w.until("the prompt ends", func() bool {
		w.into(&p, http.MethodGet, "/agent-sessions/"+w.session+"/prompts/"+id, nil)
		return p.State.Ended()
	})
	if p.State != want {
		w.t.Errorf("the prompt is %s: %s, want %s", p.State, p.Reason, want)
	}
	if n := w.seen(id); n != seen {
		w.t.Errorf("the agent has seen the prompt %d times, want %d", n, seen)
	}
}

func (w *wakeTest) seen(id string) int { return strings.Count(w.read("seen"), id) }

// prompts are all prompts of the session, newest first.
func (w *wakeTest) prompts() []picket.SessionPrompt {
	w.t.Helper()
	var page picket.PromptPage
	w.into(&page, http.MethodGet, "/agent-sessions/"+w.session+"/prompts?limit=50", nil)
	return page.Prompts
}

// audit checks that each wake that an adapter has accepted has one row, that the others have failed, and that no
// agent has seen one twice.
func (w *wakeTest) audit() {
	w.t.Helper()
	var page picket.WakePage
	got := w.call(w.key, http.MethodGet, w.url+"/api/agents/coder/heartbeat/wakes?limit=100", nil)
	if err := json.Unmarshal(got.body, &page); err != nil {
		w.t.Fatal(err)
	}
	sent, failed := map[string]int{}, 0
	for _, r := range page.Wakes {
		switch r.Result {
		case picket.WakeResultSent:
			sent[r.WakeID] += r.Count
		case picket.WakeResultFailed:
			failed += r.Count
		}
	}
	given := 0
	for _, p := range w.prompts() {
		want := 0
		if p.AcceptedAt != nil {
			want = 1
		} else {
			given++
		}
		if sent[p.PromptID] != want || w.seen(p.PromptID) > want {
			w.t.Errorf("the prompt %s, %s, was sent %d times and seen %d times, want %d", p.PromptID, p.State,
				sent[p.PromptID], w.seen(p.PromptID), want)
		}
	}
	if failed != given {
		w.t.Errorf("%d wakes have failed, and %d prompts were not accepted", failed, given)
	}
}

// Server, adapter and agent are killed at each step of a wake. No agent gets a prompt twice, each wake is either
// sent or given back, and the next one goes out.
func TestKillsWhileASessionIsWoken(t *testing.T) {
	w := newWakeTest(t)

	// The agent, while it works on the wake.
	prompt, agent := w.wake()
	if err := unix.Kill(agent, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	w.awaitPrompt(prompt, picket.PromptFailed, 1)

	// The adapter, while its agent works. Nothing of it survives, and the next adapter does not prompt again.
	prompt, agent = w.wake()
	w.adapter.kill()
	gone(t, "the agent of a killed adapter", agent)
	w.startAdapter()
	w.awaitPrompt(prompt, picket.PromptFailed, 1)

	// The server, while the agent works. The answer reaches the next server.
	prompt, _ = w.wake()
	w.server.kill()
	w.give("go")
	w.startServer()
	w.awaitPrompt(prompt, picket.PromptAnswered, 1)
	w.idle()

	// The server, after it has reserved the wake and before the adapter has accepted it: the adapter stands still.
	// The wake is given back at its deadline, and a late delivery is refused.
	w.adapter.signal(syscall.SIGSTOP)
	before := len(w.prompts())
	decided := make(chan picket.WakeDecision, 1)
	go w.insistOnWake(decided)
	w.until("the wake is reserved", func() bool { return len(w.prompts()) > before })
	prompt = w.prompts()[0].PromptID
	w.server.kill()
	if d := <-decided; d.Result == picket.WakeResultSent {
		t.Errorf("a wake that nobody has accepted was sent: %+v", d)
	}
	w.startServer()
	w.awaitPrompt(prompt, picket.PromptExpired, 0)
	w.adapter.signal(syscall.SIGCONT)
	w.idle()

	// The adapter, before it has accepted the wake. The next one accepts it, or it is given back.
	w.adapter.signal(syscall.SIGSTOP)
	before = len(w.prompts())
	go w.insistOnWake(decided)
	w.until("the wake is reserved", func() bool { return len(w.prompts()) > before })
	prompt = w.prompts()[0].PromptID
	w.adapter.kill()
	w.adapter = w.start("adapter", "adapter", "--as", "coder", "--agent-id", "sleeper")
	if d := <-decided; d.Result == picket.WakeResultSent {
		w.pid.takePID()
		w.give("go")
		w.awaitPrompt(prompt, picket.PromptAnswered, 1)
	}
	w.idle()

	prompt, _ = w.wake()
	w.give("go")
	w.awaitPrompt(prompt, picket.PromptAnswered, 1)
	w.audit()
}
