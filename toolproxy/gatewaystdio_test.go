//lint:file-ignore SA1019 clients and upstreams of the older wire still ask for samples and roots, and log

package toolproxy_test

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/internal/rig"
	"github.com/picket-dev/picket/toolproxy"
	mcppart "github.com/picket-dev/picket/toolproxy/mcp"
)

// stdioUpstream is an upstream that is this test binary, started by the proxy.
func stdioUpstream(t testing.TB, wire string) mcppart.Upstream {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv(asStdio, wire)
	t.Setenv("NOT_FOR_OTHERS", "hunter2")
	return mcppart.Upstream{Name: "up", Command: []string{self}, Env: []string{asStdio}}
}

func TestACommandAsUpstream(t *testing.T) {
	p := newFakeEnvelope(100 * cent)
	b := newGatewayEnv(t, p, stdioUpstream(t, protocolVersions[1]))
	for i, wire := range protocolVersions {
		s := connect(t, b.url, b.token(), wire, nil)
		if r := call(t, s, "up_echo", map[string]any{"n": i}); r.IsError || object(t, r)["n"] != float64(i) {
			t.Errorf("%s: %+v", wire, r)
		}
	}
	env := resultText(t, call(t, connect(t, b.url, b.token(), protocolVersions[1], nil), "up_env", nil))
	if strings.Contains(env, "hunter2") || !strings.Contains(env, "PATH=") || !strings.Contains(env, asStdio) {
		t.Errorf("the command's environment is %s", env)
	}
	p.expectSettled(t, 3*cent)
}

// The command speaks and answers in one breath; every word comes through.
func TestCommandNotificationsArrive(t *testing.T) {
	for _, wire := range protocolVersions {
		b := newGatewayEnv(t, newFakeEnvelope(1000*cent), stdioUpstream(t, wire))
		heard := make(chan string, 100)
		s := connect(t, b.url, b.token(), wire,
			&mcp.ClientOptions{
				ProgressNotificationHandler: func(_ context.Context, r *mcp.ProgressNotificationClientRequest) {
					heard <- r.Params.ProgressToken.(string) + strconv.FormatFloat(r.Params.Progress, 'f', 0, 64)
				},
			})
		for range 20 {
			params := &mcp.CallToolParams{Name: "up_work"}
			params.SetProgressToken("t")
			if r, err := s.CallTool(t.Context(), params); err != nil || resultText(t, r) != "worked" {
				t.Fatalf("%v %+v", err, r)
			}
			for _, want := range []string{"t1", "t2", "t3"} {
				if got := receive(t, heard, want); got != want {
					t.Errorf("heard %s, want %s", got, want)
				}
			}
		}
	}
}

// Each session that can be asked has a process of its own, which ends with it.
func TestQuestionsOfACommandGoToTheirSession(t *testing.T) {
	b := newGatewayEnv(t, newFakeEnvelope(100*cent), stdioUpstream(t, protocolVersions[0]))
	shared := resultText(t, call(t, connect(t, b.url, b.token(), protocolVersions[1], nil), "up_pid", nil))
	pids := map[string]bool{shared: true}
	for _, name := range []string{"anna", "berta"} {
		s := connect(t, b.url, b.token(), protocolVersions[0], answeringClient(name))
		pid := resultText(t, call(t, s, "up_pid", nil))
		if pids[pid] {
			t.Errorf("%s shares the process %s", name, pid)
		}
		pids[pid] = true
		if r := call(t, s, "up_elicit", nil); r.IsError || resultText(t, r) != "accept "+name {
			t.Errorf("%s: %+v", name, r)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		awaitGone(t, pid)
	}
}

func TestAKilledCommandIsStartedAgain(t *testing.T) {
	p := newFakeEnvelope(100 * cent)
	b := newGatewayEnv(t, p, stdioUpstream(t, protocolVersions[1]))
	s := connect(t, b.url, b.token(), protocolVersions[1], nil)
	first := resultText(t, call(t, s, "up_pid", nil))
	pid, err := strconv.Atoi(first)
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	var second string
	for until := time.Now().Add(patience); time.Now().Before(until); {
		r := call(t, s, "up_pid", nil)
		if !r.IsError {
			second = resultText(t, r)
			break
		}
		if code, _ := refusal(t, r); code != "upstream_failed" {
			t.Fatalf("while it is away: %s", code)
		}
	}
	if second == "" || second == first {
		t.Fatalf("it was not started again: %q, %q", first, second)
	}
	// A call that was under way when it died is charged; one that found nobody is not.
	if r := call(t, s, "up_die", nil); !r.IsError {
		t.Errorf("a call that killed the command: %+v", r)
	}
	outcomes := p.outcomes()
	if !slices.Contains(outcomes, picket.CallUncertain) || !slices.Contains(outcomes, picket.CallUndispatched) {
		t.Errorf("the calls ended %v", outcomes)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	sent := 0 * cent
	for _, o := range outcomes {
		if o != picket.CallUndispatched {
			sent += cent
		}
	}
	if len(p.holds) != 0 || p.charged.USD != sent {
		t.Errorf("%d reservations are open, %s charged after %v", len(p.holds), p.charged.USD, outcomes)
	}
}

// Closing the proxy ends its commands with everything they have started, those
// that do not listen included.
func TestCommandsEndWithTheProxy(t *testing.T) {
	rig.SkipShort(t)
	u := stdioUpstream(t, protocolVersions[1])
	pids := filepath.Join(t.TempDir(), "pids")
	script := `trap '' TERM; sleep 1000 & echo $! $$ > "$1"; "$0"; exec sleep 1000`
	u.Command = []string{"/bin/sh", "-c", script, u.Command[0], pids}
	b := newGatewayEnv(t, newFakeEnvelope(cent), u)
	raw, err := os.ReadFile(pids)
	if err != nil {
		t.Fatal(err)
	}
	b.Close()
	for _, pid := range strings.Fields(string(raw)) {
		awaitGone(t, pid)
	}
}

// awaitGone waits until a process no longer exists.
func awaitGone(t testing.TB, pid string) {
	t.Helper()
	for until := time.Now().Add(patience); time.Now().Before(until); {
		stat, err := os.ReadFile("/proc/" + pid + "/stat")
		if err != nil || strings.Contains(string(stat), ") Z ") {
			return
		}
	}
	t.Errorf("the process %s is still there", pid)
}

// What an upstream adds and removes is followed, and clients are told.
func TestChangesOfAnUpstreamAreFollowed(t *testing.T) {
	rig.SkipShort(t)
	forEachProtocolPair(t, func(t *testing.T, wire string, o *fakeUpstream, url string) {
		b := newGatewayEnv(t, newFakeEnvelope(100*cent), mcppart.Upstream{Name: "up", URL: url})
		told := make(chan struct{}, 10)
		s := connect(t, b.url, b.token(), wire,
			&mcp.ClientOptions{
				ToolListChangedHandler: func(context.Context, *mcp.ToolListChangedRequest) { told <- struct{}{} },
			})
		o.server.AddTool(&mcp.Tool{Name: "later", InputSchema: plain}, o.counted(o.echo))
		b.await(t, s, "up_later", true)
		receive(t, told, "the client to be told")
		if r := call(t, s, "up_later", nil); r.IsError {
			t.Errorf("%+v", r)
		}
		o.server.RemoveTools("later")
		b.await(t, s, "up_later", false)
		if code, _ := refusal(t, call(t, s, "up_later", nil)); code != "not_found" {
			t.Errorf("a tool that was removed: %s", code)
		}
	})
}

// An upstream that is not there costs nothing, and is found when it comes.
func TestAnUpstreamThatIsNotThere(t *testing.T) {
	p := newFakeEnvelope(100 * cent)
	o := newFakeUpstream()
	b := newGatewayEnv(t, p, mcppart.Upstream{Name: "up", URL: o.listen(t, protocolVersions[1])},
		mcppart.Upstream{Name: "gone", URL: "http://127.0.0.1:1/mcp"})
	s := connect(t, b.url, b.token(), protocolVersions[1], nil)
	if code, _ := refusal(t, call(t, s, "gone_echo", nil)); code != "not_found" {
		t.Errorf("an unknown tool: %s", code)
	}
	if r := call(t, s, "up_echo", nil); r.IsError {
		t.Errorf("its neighbour: %+v", r)
	}
	p.expectSettled(t, cent)
	for _, bad := range []mcppart.Upstream{{Name: "a b", URL: "http://x"}, {Name: "a"},
		{Name: "a", URL: "http://x", Command: []string{"x"}}, {Name: "a", URL: "ftp://x"}} {
		if _, err := toolproxy.New(toolproxy.Config{
			Sealer:  newSealer(t),
			Backend: func(string) toolproxy.Backend { return p },
			Parts:   []toolproxy.Part{mcppart.New([]mcppart.Upstream{bad})},
		}); err == nil {
			t.Errorf("%+v is taken", bad)
		}
	}
}
