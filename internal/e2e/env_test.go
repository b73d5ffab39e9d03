//go:build linux

package e2e

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/oklog/ulid/v2"

	"github.com/picket-dev/picket"
)

// testEnv is one test's server, workers and directory, apart from all others.
type testEnv struct {
	t         *testing.T
	dir       string
	env       []string
	url       string
	key       string
	processes []*process
	fifos     []*fifo
	count     int
	events    *eventLog
	within    *netns   // where processes are started; nil: in this network
	atEnd     []func() // to be done when all processes have ended

	pairFlags  []string      // of the workers of lanes
	pairWindow time.Duration // of their leases; 0: window
}

// newTestEnv makes an empty world. At its end every process is asked to end, no
// process and no socket may be left, and the event log must tell the truth.
func newTestEnv(t *testing.T) *testEnv {
	t.Helper()
	t.Parallel()
	return newSerialTestEnv(t)
}

// newSerialTestEnv is newTestEnv for a test that would take the machine away from
// others beside it.
func newSerialTestEnv(t *testing.T) *testEnv {
	t.Helper()
	// A test may run more than once in one process: each time in a new place.
	dir, err := os.MkdirTemp(suiteDir, strings.ReplaceAll(strings.TrimPrefix(t.Name(), "Test"), "/", "-")+"-")
	if err != nil {
		t.Fatal(err)
	}
	w := &testEnv{t: t, dir: dir}
	for _, sub := range []string{"out", "tmp", "home"} {
		if err := os.MkdirAll(w.path(sub), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	w.env = []string{
		"PATH=" + filepath.Join(suiteDir, "bin") + ":" + os.Getenv("PATH"), "HOME=" + w.path("home"),
		"TMPDIR=" + w.path("tmp"),
		"XDG_CONFIG_HOME=" + w.path("config"), "XDG_DATA_HOME=" + w.path("data"), "XDG_STATE_HOME=" + w.path("state"),
		"E2E=" + w.dir, "LANG=C.UTF-8", "NO_COLOR=1",
	}
	t.Cleanup(w.close)
	return w
}

func (w *testEnv) path(parts ...string) string {
	return filepath.Join(append([]string{w.dir}, parts...)...)
}

func (w *testEnv) data() string { return w.path("data", "picket") }

// up starts `picket up` and waits until it serves. After the first time it
// listens where it did before.
func (w *testEnv) up(flags ...string) *process {
	w.t.Helper()
	listen := "127.0.0.1:0"
	if w.url != "" {
		listen = strings.TrimPrefix(w.url, "http://")
	}
	p := w.start("up", append([]string{"up", "--listen", listen}, flags...)...)
	w.url = p.ready()
	w.key = w.secret("admin.key")
	if w.events == nil {
		w.events = followEvents(w)
	}
	return p
}

// ready waits for the one line that servers print on stdout.
func (p *process) ready() (url string) {
	p.t.Helper()
	ok := p.out.await(func(all string) bool {
		_, rest, found := strings.Cut(all, "ready ")
		url, _, _ = strings.Cut(rest, "\n")
		return found && strings.Contains(rest, "\n")
	})
	if !ok {
		p.t.Fatalf("%s is not ready: %s", p.name, p.err.text())
	}
	p.rank = serverRank
	return url
}

func (w *testEnv) secret(file string) string {
	w.t.Helper()
	b, err := os.ReadFile(filepath.Join(w.data(), file))
	if err != nil {
		w.t.Fatal(err)
	}
	return strings.TrimSpace(string(b))
}

func (w *testEnv) read(file string) string {
	w.t.Helper()
	b, err := os.ReadFile(w.path(file))
	if err != nil {
		w.t.Fatal(err)
	}
	return string(b)
}

// storePID is the process id of the living store that `picket up` brought.
func (w *testEnv) storePID() int {
	w.t.Helper()
	for _, line := range processesOf(w.path("data", "picket", "redis")) {
		if strings.Contains(line, "redis-server") {
			return atoi(line)
		}
	}
	w.t.Fatal("there is no store")
	return 0
}

// worker starts a resident adapter that runs a shell script for each task.
func (w *testEnv) worker(name, script string, flags ...string) *process {
	w.t.Helper()
	args := append([]string{"adapter", "--agent-id", name, "--log-level", "debug", "--env", "E2E"}, flags...)
	return w.start(name, append(args, "--", "sh", "-c", script)...)
}

// outcome is a finished command.
type outcome struct {
	code   int
	out    string
	errOut string
}

// cli runs one command to its end.
func (w *testEnv) cli(args ...string) outcome {
	w.t.Helper()
	return w.cliFor(waitLimit, args...)
}

// cliFor is cli for what may take longer.
func (w *testEnv) cliFor(limit time.Duration, args ...string) outcome {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	cmd := exec.CommandContext(ctx, binary(), args...)
	var out, errOut bytes.Buffer
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = w.dir, w.env, &out, &errOut
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) || ctx.Err() != nil {
		w.t.Fatalf("picket %s: %v %v", strings.Join(args, " "), err, ctx.Err())
	}
	return outcome{cmd.ProcessState.ExitCode(), out.String(), errOut.String()}
}

// ok runs one command that must succeed and answers its stdout.
func (w *testEnv) ok(args ...string) string {
	w.t.Helper()
	got := w.cli(args...)
	if got.code != 0 {
		w.t.Fatalf("picket %s: exit %d\n%s%s", strings.Join(args, " "), got.code, got.out, got.errOut)
	}
	return strings.TrimSpace(got.out)
}

// refused runs one command that must end with an exit code and name an error
// code.
func (w *testEnv) refused(exit int, code picket.Code, args ...string) {
	w.t.Helper()
	got := w.cli(args...)
	if got.code != exit || !strings.Contains(got.errOut, string(code)) {
		w.t.Errorf("picket %s: exit %d, want %d and %s\n%s%s", strings.Join(args, " "), got.code, exit, code, got.out,
			got.errOut)
	}
}

// answer is what a server said.
type answer struct {
	status int
	header http.Header
	body   []byte
}

func (a answer) code() picket.Code {
	var problem struct {
		Code picket.Code `json:"code"`
	}
	_ = json.Unmarshal(a.body, &problem)
	return problem.Code
}

// call sends one request with a bearer; header holds names and values in turn.
func (w *testEnv) call(bearer, method, url string, body any, header ...string) answer {
	w.t.Helper()
	got, err := try(bearer, method, url, body, header...)
	if err != nil {
		w.t.Fatalf("%s %s: %v", method, url, err)
	}
	return got
}

// try is call for a goroutine, which may not end the test.
func try(bearer, method, url string, body any, header ...string) (answer, error) {
	return tryFor(waitLimit, bearer, method, url, body, header...)
}

// tryFor is try with a shorter wait.
func tryFor(limit time.Duration, bearer, method, url string, body any, header ...string) (answer, error) {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	var in io.Reader
	if body != nil {
		b, err := json.Marshal(body, json.Deterministic(true))
		if err != nil {
			return answer{}, err
		}
		in = bytes.NewReader(b)
	}
	req, err := http.NewRequestWithContext(ctx, method, url, in)
	if err != nil {
		return answer{}, err
	}
	req.Header.Set("Authorization", "Bearer "+bearer)
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	for pair := range slices.Chunk(header, 2) {
		req.Header.Set(pair[0], pair[1])
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return answer{}, err
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	return answer{res.StatusCode, res.Header, b}, err
}

// api calls the control plane as the administrator.
func (w *testEnv) api(method, path string, body any, header ...string) answer {
	w.t.Helper()
	return w.call(w.key, method, w.url+"/api/v1"+path, body, header...)
}

// into calls the control plane and reads an answer that must be a success. While
// the store does not answer, as on a busy machine, it repeats the same request,
// as the refusal tells every client to do.
func (w *testEnv) into(v any, method, path string, body any) {
	w.t.Helper()
	var header []string
	if method == http.MethodPost {
		header = []string{"Idempotency-Key", ulid.Make().String()}
	}
	var got answer
	w.until(method+" "+path+" is answered", func() bool {
		got = w.api(method, path, body, header...)
		return got.code() != picket.CodeUnavailable
	})
	if got.status/100 != 2 {
		w.t.Fatalf("%s %s: %d %s", method, path, got.status, got.body)
	}
	if err := json.Unmarshal(got.body, v); err != nil {
		w.t.Fatalf("%s %s: %v", method, path, err)
	}
}

func (w *testEnv) submit(spec picket.TaskSpec) (task picket.Task) {
	w.t.Helper()
	w.into(&task, http.MethodPost, "/tasks", spec)
	return task
}

func (w *testEnv) task(id string) (task picket.Task) {
	w.t.Helper()
	w.into(&task, http.MethodGet, "/tasks/"+id, nil)
	return task
}

// until looks at a state that nothing signals until it is as wanted.
func (w *testEnv) until(what string, as func() bool) {
	w.t.Helper()
	for deadline := time.Now().Add(waitLimit); !as(); {
		if time.Now().After(deadline) {
			w.t.Fatalf("not observed: %s", what)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// decodeInto reads what a server said, in a goroutine, too.
func decodeInto(t *testing.T, b []byte, v any) {
	if err := json.Unmarshal(b, v); err != nil {
		t.Errorf("%v: %.200s", err, b)
	}
}
