package adapter_test

import (
	stdjson "encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/adapter"
	"github.com/picket-dev/picket/adapter/adaptertest"
	"github.com/picket-dev/picket/adapter/workspace"
	"github.com/picket-dev/picket/internal/rig/proctest"
)

// outputOf runs a command for a task and answers what it printed.
func outputOf(t *testing.T, command []string, task adaptertest.Task,
	change ...func(*adapter.Config)) (string, picket.Lease, adapter.Result) {
	t.Helper()
	s := adaptertest.Start(t)
	task.OnExit = picket.OnExitComplete
	lease := s.Grant(task)
	res, err := newAdapter(t, s, command, change...).RunLease(proctest.Patience(t), lease)
	if err != nil {
		t.Fatal(err)
	}
	var text string
	if err := stdjson.Unmarshal(s.View(lease.TaskID).Output, &text); err != nil {
		t.Fatal(err)
	}
	return text, lease, res
}

func variables(text string) map[string]string {
	vars := map[string]string{}
	for line := range strings.Lines(text) {
		name, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "=")
		vars[name] = value
	}
	return vars
}

func TestEnvironment(t *testing.T) {
	t.Setenv("AWS_SECRET_ACCESS_KEY", "hush")
	t.Setenv("PICKET_API_KEY", "pkk_hush")
	t.Setenv("WANTED", "yes")
	t.Setenv("TRACEPARENT", "of the adapter")
	t.Setenv("TRACESTATE", "of the adapter")
	text, lease, res := outputOf(t, []string{"env"}, adaptertest.Task{},
		func(c *adapter.Config) { c.Env = []string{"WANTED", "NOT_SET"} })
	vars := variables(text)
	for name, want := range map[string]string{
		"PICKET_TASK_ID": lease.TaskID, "PICKET_RUN_ID": lease.RunID, "PICKET_FENCING_TOKEN": "1",
		"PICKET_LEASE_TOKEN": "[redacted]", "PICKET_BUDGET_TOKENS": "1000000", "PICKET_BUDGET_USD": "1",
		"PICKET_WORKSPACE": res.Workspace, "PICKET_PROXY_URL": lease.ProxyURL,
		"PICKET_TASK_FILE":   filepath.Join(res.Workspace, ".picket", "task.json"),
		"PICKET_LAST_REPORT": filepath.Join(res.Workspace, ".picket", "last-report.json"),
		"WANTED":             "yes", "PATH": os.Getenv("PATH"),
	} {
		if vars[name] != want {
			t.Errorf("%s is %q, want %q", name, vars[name], want)
		}
	}
	if vars["PICKET_LEASE_EXPIRES_AT"] == "" || vars["PICKET_LEASE_EXPIRES_AT"] == "-" {
		t.Errorf("PICKET_LEASE_EXPIRES_AT is %q", vars["PICKET_LEASE_EXPIRES_AT"])
	}
	for _, name := range []string{"AWS_SECRET_ACCESS_KEY", "PICKET_API_KEY", "PICKET_MCP_URL", "NOT_SET", "TRACEPARENT",
		"TRACESTATE"} {
		if value, there := vars[name]; there {
			t.Errorf("%s=%s was passed on", name, value)
		}
	}
	text, _, _ = outputOf(t, []string{"env"}, adaptertest.Task{MCPURL: "http://127.0.0.1/mcp"})
	if got := variables(text)["PICKET_MCP_URL"]; got != "http://127.0.0.1/mcp" {
		t.Errorf("PICKET_MCP_URL is %q", got)
	}
}

func TestTheTraceOfTheTaskIsPassedOn(t *testing.T) {
	t.Setenv("TRACEPARENT", "of the adapter")
	t.Setenv("TRACESTATE", "of the adapter")
	parent := "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	for _, state := range []string{"", `rojo=a b,congo="t61"`} {
		text, _, _ := outputOf(t, []string{"env"}, adaptertest.Task{Trace: &picket.Trace{Parent: parent, State: state}},
			func(c *adapter.Config) { c.Env = []string{"TRACEPARENT"} })
		vars := variables(text)
		if got, there := vars["TRACESTATE"]; vars["TRACEPARENT"] != parent || got != state || there != (state != "") {
			t.Errorf("TRACEPARENT=%s TRACESTATE=%s, %v", vars["TRACEPARENT"], got, there)
		}
	}
}

func TestFilesOfARun(t *testing.T) {
	task := adaptertest.Task{
		Title: "fix it", Input: picket.RawJSON(`{"n":12345678901234567890}`),
		LastReport: &picket.Report{Seq: 3, Progress: picket.Progress{Summary: "half way"}},
		Answers:    []picket.Answer{{Question: "which?", Answer: picket.RawJSON(`"that one"`)}},
	}
	text, lease, res := outputOf(t,
		[]string{"sh", "-c", `umask; pwd; ls -A; touch kept; cat "$PICKET_TASK_FILE" "$PICKET_LAST_REPORT"`}, task)
	for _, want := range []string{
		`"taskId": "` + lease.TaskID, `"title": "fix it"`, `"n": 12345678901234567890`, `"summary": "half way"`,
		`"that one"`, res.Workspace + "\n.picket\n{",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("%s is not in\n%s", want, text)
		}
	}
	for path, mode := range map[string]os.FileMode{
		res.StateDir:                            0o700,
		res.Workspace:                           0o700,
		filepath.Join(res.Workspace, ".picket"): 0o700,
		filepath.Join(res.Workspace, ".picket", "task.json"):        0o600,
		filepath.Join(res.Workspace, ".picket", "last-report.json"): 0o600,
		filepath.Join(res.Workspace, ".picket", "budget.json"):      0o600,
		filepath.Join(res.StateDir, "stdout.log"):                   0o600,
		filepath.Join(res.StateDir, "exit.json"):                    0o600,
	} {
		info, err := os.Stat(path)
		if err != nil || info.Mode().Perm() != mode {
			t.Errorf("%s: %v, %v", path, info.Mode(), err)
		}
	}
	files, _ := filepath.Glob(res.StateDir + "/*")
	for _, f := range files {
		if b, _ := os.ReadFile(f); strings.Contains(string(b), lease.LeaseToken.Reveal()) {
			t.Errorf("the lease token is in %s", f)
		}
	}
}

func TestWorkspaceHere(t *testing.T) {
	dir := t.TempDir()
	text, _, res := outputOf(t, []string{"sh", "-c", "pwd; ls -A"}, adaptertest.Task{}, func(c *adapter.Config) {
		c.Workspace, c.Dir = workspace.Here, dir
	})
	if text != dir+"\n" || res.Workspace != dir {
		t.Errorf("worked in %q, result %q", text, res.Workspace)
	}
}

// A server cannot make the adapter write elsewhere by the id of a run.
func TestHostileRunID(t *testing.T) {
	s := adaptertest.Start(t)
	lease := s.Grant(adaptertest.Task{})
	lease.RunID = "../../outside"
	res, err := newAdapter(t, s, []string{"true"}).RunLease(proctest.Patience(t), lease)
	if err == nil || res.StateDir != "" {
		t.Errorf("%+v, %v", res, err)
	}
	if v := s.View(lease.TaskID); v.Runs[0].Released == nil {
		t.Errorf("the lease was not given back: %+v", v)
	}
}
