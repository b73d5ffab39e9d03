//go:build linux

package e2e

import (
	"net/http"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/picket-dev/picket"
)

// endpointSettings give two pools endpoints.
const endpointSettings = `
agents:
  coder:
    capabilities: [go, sql]
    a2a: {enabled: true, budget: 0.50, max_queue: 100}
    card: {name: Coders, description: They change code and write the tests for it.}
    skills:
      go: {name: Go code, description: Writes Go.}
  translator:
    a2a: {enabled: true, budget: 0.10, max_queue: 20}
`

// The page of endpoints shows how to give a pool an endpoint, and then commands with which a client uses it. A person
// who does exactly what the page shows gets an answer of an agent.
func TestConsoleEndpoints(t *testing.T) {
	w := newTestEnv(t)
	server := w.up()
	b := w.browse(t)
	b.signIn("/console/")
	b.click(`nav a[href="/console/endpoints"]`)
	b.reads("h2", "No pool has an endpoint")
	b.click("#none .copy")
	b.reads("#none .copy", "Copied")
	steps := b.texts("#none pre")
	if len(steps) != 2 {
		t.Fatalf("the page shows %q", steps)
	}
	trust, start, _ := strings.Cut(steps[1], "\n")
	if start != "picket up" {
		t.Fatalf("the page shows %q", steps)
	}
	if err := os.WriteFile(w.path("picket.yaml"), []byte(steps[0]), 0o600); err != nil {
		t.Fatal(err)
	}
	server.signal(syscall.SIGTERM)
	server.wait()
	w.shell("trust", trust).succeeds()
	w.up()

	b.open("/console/endpoints")
	b.reads("#pool-coder", "No agent of the pool lives")
	w.worker("c1", `picket tool mark_complete --output "Hello."`, "--role", "coder")
	b.reads("#pool-coder", w.url+"/agents/coder/instances/c1")
	commands := b.texts("#pool-coder pre")
	if len(commands) != 1 {
		t.Fatalf("the page shows %q", commands)
	}
	client := w.shell("client", commands[0])
	var waiting picket.ReviewPage
	w.until("the result waits for a review", func() bool {
		w.into(&waiting, http.MethodGet, "/reviews", nil)
		return len(waiting.Reviews) == 1
	})
	b.open("/console/endpoints")
	b.reads("#pool-coder", "1 of clients")
	w.until("the result is approved", func() bool { // its digest changes with the exit of the agent
		w.into(&waiting, http.MethodGet, "/reviews", nil)
		r := waiting.Reviews[0]
		return w.cli("review", "approve", r.TaskID, "--digest", r.Digest).code == 0
	})
	client.succeeds()
	for _, want := range []string{"interface           JSONRPC 1.0 at " + w.url + "/agents/coder/a2a", "completed", "Hello."} {
		if !strings.Contains(client.out.text(), want) {
			t.Errorf("the client is not told %q:\n%s", want, client.out.text())
		}
	}
	b.open("/console/endpoints")
	b.reads("#pool-coder", "0 of clients")
	w.shell("orchestrator", b.texts("#orchestrator pre")[0]).succeeds()
}

// shell runs what a person pastes into a shell.
func (w *testEnv) shell(name, commands string) *process {
	w.t.Helper()
	cmd := exec.Command("sh", "-ec", commands)
	return w.launch(name, cmd)
}

func (p *process) succeeds() {
	p.t.Helper()
	if code := p.wait(); code != 0 {
		p.t.Fatalf("%s: exit %d\n%s%s", p.name, code, p.out.text(), p.err.text())
	}
}
