//go:build linux

package e2e

import (
	"bytes"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/picket-dev/picket"
)

// storePassword is what the store of this test asks for.
const storePassword = "canary-of-the-store-0123456789"

// A whole story at log level debug, with everything that goes wrong on the way:
// no secret stands in a log line, an event, an error, a metric, an argument of a
// process, the environment of an agent, or what a server says when it is made
// to crash.
func TestNoSecretIsTold(t *testing.T) {
	w := newTestEnv(t)
	store := w.guardedStore()
	plain := w.env
	w.env = append(plain[:len(plain):len(plain)], "PICKET_REDIS=unix://:"+storePassword+"@"+w.path("redis.sock"))
	server := w.up("--log-level", "debug")
	guarded := w.env
	w.env = plain
	pid, token := w.fifo("pid"), w.fifo("token")
	w.fifo("go")
	worker := w.worker("first", `env >"$E2E/agent-environment"; `+holder)
	w.env = guarded
	task := w.submit(spec("tells nothing", 60))
	agent := pid.takePID()
	proxy, bearer, _ := strings.Cut(token.take(), " ")
	secrets := map[string]string{
		"the administrator's key":   w.key,
		"the lease token":           bearer,
		"the MAC of the lease":      bearer[strings.LastIndex(bearer, ".")+1:],
		"secret.key":                w.secret("secret.key"),
		"the password of the store": storePassword,
	}
	var made picket.NewKey
	w.into(&made, http.MethodPost, "/keys", picket.KeyRequest{Name: "ci", Scopes: []picket.Scope{picket.ScopeAgent}})
	secrets["a new key"] = made.Key.Reveal()
	c := &secretScanner{testEnv: w, secrets: secrets}

	for _, pid := range []int{server.pid(), worker.pid(), agent, store.pid()} {
		c.scan("the arguments of process "+strconv.Itoa(pid), c.proc(pid, "cmdline"))
	}
	c.scan("the environment of the worker", c.proc(worker.pid(), "environ"))
	env := []byte(w.read("agent-environment"))
	if err := os.Remove(w.path("agent-environment")); err != nil { // it is where the lease token belongs
		t.Fatal(err)
	}
	c.scan("the environment of the agent",
		bytes.ReplaceAll(bytes.ReplaceAll(env, []byte(bearer), nil), []byte(secrets["the MAC of the lease"]), nil))

	c.provoke(proxy, bearer, made.Key.Reveal(), task)
	w.give("go")
	w.of(task.TaskID, picket.EventRunExited)
	w.ok("review", "approve", task.TaskID)
	c.ask(w.key, http.MethodGet, "/api/v1/events?limit=1000", nil)
	c.ask(w.key, http.MethodGet, "/metrics", nil)
	c.ask(w.key, http.MethodGet, "/api/v1/keys", nil)
	c.ask(w.key, http.MethodGet, "/api/v1/tasks/"+task.TaskID, nil)

	store.signal(syscall.SIGSTOP)
	c.withoutStore(proxy, bearer)
	store.signal(syscall.SIGCONT)
	w.serves()
	w.events.stop()
	w.events = nil
	server.signal(syscall.SIGQUIT) // every goroutine says where it is
	if code := server.wait(); code == 0 || !strings.Contains(server.err.text(), "goroutine ") {
		t.Errorf("the crash ended with %d and told nothing", code)
	}
	worker.kill()
	store.kill()
	c.lookIntoFiles()
	t.Logf("log canaries: %d secrets looked for in %d places, %d bytes", len(secrets), c.places, c.bytes)
	if n := os.Remove(w.path("redis.sock")); n != nil && !os.IsNotExist(n) {
		t.Error(n)
	}
}

// secretScanner looks for secrets where they must not be.
type secretScanner struct {
	*testEnv
	secrets map[string]string
	places  int
	bytes   int
}

func (c *secretScanner) scan(where string, text []byte) {
	c.t.Helper()
	c.places++
	c.bytes += len(text)
	for what, secret := range c.secrets {
		if bytes.Contains(text, []byte(secret)) {
			c.t.Errorf("%s stands in %s", what, where)
		}
	}
}

func (c *secretScanner) proc(pid int, file string) []byte {
	c.t.Helper()
	text, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), file))
	if err != nil {
		c.t.Fatal(err)
	}
	if len(text) == 0 {
		c.t.Fatalf("%s of process %d is empty", file, pid)
	}
	return text
}

// ask looks at what a request is answered, its headers too.
func (c *secretScanner) ask(bearer, method, path string, body any, header ...string) answer {
	c.t.Helper()
	a := c.call(bearer, method, c.url+path, body, header...)
	c.scan(method+" "+path, fmt.Appendf(nil, "%s\n%v", a.body, a.header))
	return a
}

// provoke makes every kind of refusal that has a secret at hand.
func (c *secretScanner) provoke(proxy, bearer, key string, task picket.Task) {
	c.t.Helper()
	forged := bearer[:len(bearer)-4] + "AAAA"
	for _, with := range []string{bearer, forged, key, key[:len(key)-4] + "AAAA", storePassword} {
		c.ask(with, http.MethodGet, "/api/v1/tasks", nil)
		c.ask(with, http.MethodPost, "/api/v1/keys", map[string]string{"name": with})
		c.ask(with, http.MethodPost, "/v1/tools/report_progress", map[string]string{"sumary": "x"})
		c.ask(with, http.MethodPost, "/v1/lease/renew", struct{}{}, "X-Fencing-Token", "99")
		c.ask(with, http.MethodPost, "/v1/run/logs?stream=none", nil)
		for _, lease := range []any{map[string]string{"leaseToken": bearer}, map[string]string{"leaseToken": forged},
			map[string]any{"leaseToken": bearer, "fencingToken": 99}, map[string]string{bearer: "x"}, bearer} {
			c.ask(with, http.MethodPost, "/v1/leases/renew", map[string]any{"leases": []any{lease}})
		}
	}
	c.ask(c.key, http.MethodGet, "/api/v1/tasks/"+task.TaskID+"?key=wrong", nil)
	c.ask(c.key, http.MethodPost, "/api/v1/tasks", []string{"no object"})
	for _, args := range [][]string{{"task", "show", "task_0"}, {"doctor"}, {"config"}, {"key", "list"},
		{"task", "list", "--url", "http://127.0.0.1:1"}} {
		got := c.cli(args...)
		c.scan("picket "+strings.Join(args, " "), []byte(got.out+got.errOut))
	}
}

// withoutStore looks at what is said while the store does not answer.
func (c *secretScanner) withoutStore(proxy, bearer string) {
	c.t.Helper()
	for what, knock := range c.sampleRequests(proxy, bearer) {
		a, err := knock()
		if err != nil || a.status != http.StatusServiceUnavailable {
			c.t.Errorf("%s without a store: %d, %v", what, a.status, err)
		}
		c.scan(what+" without a store", a.body)
	}
	c.ask(c.key, http.MethodGet, "/readyz", nil)
	got := c.cli("doctor")
	c.scan("picket doctor without a store", []byte(got.out+got.errOut))
}

// lookIntoFiles looks at all that the processes wrote except for the files that
// are made to hold a secret.
func (c *secretScanner) lookIntoFiles() {
	c.t.Helper()
	each(c.dir, func(path string, text []byte) {
		switch name := filepath.Base(path); name {
		case "secret.key", "admin.key":
			return
		}
		c.scan(path, text)
	})
}

// guardedStore is store with a password, given where no argument shows it.
func (w *testEnv) guardedStore() *process {
	w.t.Helper()
	dir := w.path("store")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		w.t.Fatal(err)
	}
	cmd := exec.Command("redis-server", "-", "--port", "0", "--unixsocket", w.path("redis.sock"), "--dir", dir,
		"--appendonly", "yes", "--appendfsync", "always", "--save", "", "--maxmemory-policy", "noeviction")
	cmd.Stdin = strings.NewReader("requirepass " + storePassword + "\n")
	p := w.launch("redis", cmd)
	p.rank = storeRank
	if !p.out.await(func(all string) bool { return strings.Contains(all, "is now ready to accept connections") }) {
		w.t.Fatalf("redis-server is not ready: %s%s", p.out.text(), p.err.text())
	}
	return p
}
