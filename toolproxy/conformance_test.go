//lint:file-ignore SA1019 Director leaves the Host of the request as it came, which a scenario is about

package toolproxy_test

import (
	"bufio"
	"bytes"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/picket-dev/picket/budget"
	mcppart "github.com/picket-dev/picket/toolproxy/mcp"
)

// suiteDir names the directory in which the public MCP conformance suite and a
// node to run it are installed; without it the test is skipped. `make
// conformance-mcp` installs them.
const suiteDir = "PICKET_MCP_SUITE"

// protocolScenarios need no tools of their own.
var protocolScenarios = []string{"server-initialize", "logging-set-level", "ping", "tools-list", "resources-list",
	"prompts-list",
	"server-sse-multiple-streams", "dns-rebinding-protection"}

// TestMCPConformance runs the public suite against the bare mount and through
// the gateway, to the suite's own kind of server behind it. The authorizing
// middleware is on in both.
func TestMCPConformance(t *testing.T) {
	dir := os.Getenv(suiteDir)
	if dir == "" {
		t.Skip("the MCP conformance suite is not installed: make conformance-mcp")
	}
	everything := filepath.Join(t.TempDir(), "everything")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", everything,
		"github.com/modelcontextprotocol/go-sdk/conformance/everything-server")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	t.Run("bare mount", func(t *testing.T) {
		f := newProxyEnv(t, &fakeBackend{})
		for _, scenario := range protocolScenarios {
			runSuite(t, dir, withLease(t, listenMCP(t, f), f.token(), ""), "--scenario", scenario)
		}
	})
	through := func(t *testing.T, u mcppart.Upstream, args ...string) {
		p := newFakeEnvelope(1000 * cent)
		b := newGatewayEnvFor(t, p, "up_test_simple_text", map[string]budget.Price{"up_*": {}}, u)
		runSuite(t, dir, withLease(t, b.url, b.token(), "up_"), append(args, "--suite", "all")...)
		if p.asks == 0 {
			t.Error("no call was metered")
		}
	}
	t.Run("through the gateway to a command", func(t *testing.T) {
		through(t, mcppart.Upstream{Name: "up", Command: []string{everything}})
	})
	t.Run("through the gateway to HTTP", func(t *testing.T) {
		// In server-sse-polling the server behind closes the stream of a call and
		// keeps no events, so nobody can have its answer: directly the suite finds
		// nothing to check, through the gateway a call that failed. That a stream
		// which can be resumed is resumed has a test of its own.
		baseline := filepath.Join(t.TempDir(), "baseline.yml")
		if err := os.WriteFile(baseline, []byte("server:\n  - server-sse-polling\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		through(t, mcppart.Upstream{Name: "up", URL: serveEverything(t, everything)}, "--expected-failures", baseline)
	})
}

// serveEverything starts the suite's kind of server, with sessions.
func serveEverything(t *testing.T, binary string) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	at := l.Addr().String()
	_ = l.Close()
	cmd := exec.Command(binary, "-http", at, "-stateless=false")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	for until := time.Now().Add(patience); ; {
		c, err := net.Dial("tcp", at)
		if err == nil {
			_ = c.Close()
			return "http://" + at
		}
		if time.Now().After(until) {
			t.Fatal(err)
		}
	}
}

var verdict = regexp.MustCompile(`(\d+) passed, (\d+) failed|Passed: ([1-9]\d*)/`)

// runSuite runs scenarios and shows their summary.
func runSuite(t *testing.T, dir, at string, args ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), filepath.Join(dir, "node_modules/.bin/node"),
		append([]string{filepath.Join(dir, "node_modules/@modelcontextprotocol/conformance/dist/index.js"), "server",
			"--url", at}, args...)...)
	cmd.Dir = t.TempDir()
	out, err := cmd.CombinedOutput()
	passed := 0
	for line := range strings.Lines(string(out)) {
		if m := verdict.FindStringSubmatch(line); m != nil && !strings.HasPrefix(line, "Total") {
			t.Logf("%s %s", strings.Join(args, " "), strings.TrimSpace(line))
			passed++
		}
	}
	if err != nil || passed == 0 {
		t.Errorf("%v: %v\n%s", args, err, out)
	}
}

// withLease is a proxy that adds the lease, which the suite cannot send, and
// gives the tools and prompts of the upstream the names that the suite knows.
func withLease(t *testing.T, to, token, prefix string) string {
	t.Helper()
	target, err := url.Parse(to)
	if err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{}
	p := &httputil.ReverseProxy{
		Transport: transport, FlushInterval: -1,
		Director: func(r *http.Request) {
			r.URL.Scheme, r.URL.Host, r.URL.Path = target.Scheme, target.Host, target.Path
			r.Header.Set("Authorization", "Bearer "+token)
			if r.Body == nil {
				return
			}
			body, _ := io.ReadAll(r.Body)
			if named.Match(body) {
				body = ownName.ReplaceAll(body, []byte(`"name":"`+prefix))
			}
			r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
		},
		ModifyResponse: func(r *http.Response) error {
			r.Header.Del("Content-Length")
			r.ContentLength = -1
			r.Body = &prefixStripper{r.Body, bufio.NewReader(r.Body), []byte(`"name":"` + prefix), nil}
			return nil
		},
	}
	s := httptest.NewServer(p)
	t.Cleanup(func() {
		s.CloseClientConnections()
		s.Close()
		transport.CloseIdleConnections()
	})
	return s.URL
}

var (
	named   = regexp.MustCompile(`"(tools/call|prompts/get|completion/complete)"`)
	ownName = regexp.MustCompile(`"name":"`)
)

// prefixStripper takes the prefix off every name, a line at a time.
type prefixStripper struct {
	io.Closer
	in     *bufio.Reader
	prefix []byte
	rest   []byte
}

func (r *prefixStripper) Read(p []byte) (int, error) {
	if len(r.rest) == 0 {
		line, err := r.in.ReadBytes('\n')
		if len(line) == 0 {
			return 0, err
		}
		r.rest = bytes.ReplaceAll(line, r.prefix, []byte(`"name":"`))
	}
	n := copy(p, r.rest)
	r.rest = r.rest[n:]
	return n, nil
}
