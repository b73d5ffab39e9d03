//go:build linux

package e2e

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// asAgent is the word that makes the test binary an agent: see diehard.
const asAgent = "as-agent"

// stubbornAgent is an agent that does all it can to outlive its lease: it ignores SIGTERM, keeps
// children, and goes on writing after refusals. It keeps a ledger of its own in $E2E/ledger:
//
//	start TOKEN RUN N PIDS    N processes of older runs of the task live, as /proc shows
//	wrote|refused|away TOKEN MILLISECONDS CODE
//
// It ends with mark_complete once $E2E/finish/TASK exists, or at once when the
// task is titled so.
func stubbornAgent(escape bool) int {
	signal.Ignore(syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
	task, run := os.Getenv("PICKET_TASK_ID"), os.Getenv("PICKET_RUN_ID")
	token, _ := strconv.ParseInt(os.Getenv("PICKET_FENCING_TOKEN"), 10, 64)
	ledger, err := os.OpenFile(filepath.Join(os.Getenv("E2E"), "ledger", task), os.O_CREATE|os.O_APPEND|os.O_WRONLY,
		0o600)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	var older []string
	for pid, of := range marked("PICKET_TASK_ID=" + task) {
		if of != run {
			older = append(older, strconv.Itoa(pid))
		}
	}
	fmt.Fprintf(ledger, "start %d %s %d %s\n", token, run, len(older), strings.Join(older, ","))
	return spawnWriter(escape)
}

// writer is the part of diehard that writes. It is a child, so that it can
// outlive even its leader.
func writer() int {
	signal.Ignore(syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
	task, run := os.Getenv("PICKET_TASK_ID"), os.Getenv("PICKET_RUN_ID")
	token, _ := strconv.ParseInt(os.Getenv("PICKET_FENCING_TOKEN"), 10, 64)
	ledger, err := os.OpenFile(filepath.Join(os.Getenv("E2E"), "ledger", task), os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	for n := 1; ; n++ {
		if quick() || exists(filepath.Join(os.Getenv("E2E"), "finish", task)) {
			if write(ledger, token, "mark_complete", map[string]any{"output": "done", "summary": ""}) {
				return 0
			}
		}
		write(ledger, token, "report_progress", map[string]any{"summary": fmt.Sprintf("%s %d", run, n)})
		time.Sleep(50 * time.Millisecond) // an agent works between its writes
	}
}

// write calls a tool, notes what came of it, and reports whether it was
// admitted.
func write(ledger io.Writer, token int64, tool string, body any) bool {
	got, err := tryFor(2*time.Second, os.Getenv("PICKET_LEASE_TOKEN"), http.MethodPost,
		os.Getenv("PICKET_PROXY_URL")+"/v1/tools/"+tool, body)
	what, code := "away", got.code()
	switch {
	case err != nil:
	case got.status/100 == 2:
		what = "wrote"
	case code.Fenced():
		what = "refused"
	}
	fmt.Fprintf(ledger, "%s %d %d %s\n", what, token, time.Now().UnixMilli(), code)
	return what == "wrote"
}

// spawnWriter starts a child that sleeps in the agent's group and the writer, which
// leaves it for a session of its own if it may, and lasts as long as that does.
func spawnWriter(escape bool) int {
	sleeper := exec.Command("sleep", "1000")
	if err := sleeper.Start(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	self, err := os.Executable()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	child := exec.Command(self, asAgent, "writer")
	child.Stdout, child.Stderr = os.Stdout, os.Stderr
	child.SysProcAttr = &syscall.SysProcAttr{Setsid: escape}
	if err := child.Run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

func quick() bool {
	b, _ := os.ReadFile(os.Getenv("PICKET_TASK_FILE"))
	return strings.Contains(string(b), `"title": "quick`)
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// marked finds every living process that has a variable in its environment and
// answers the run it belongs to. A zombie has no environment any more.
func marked(variable string) map[int]string {
	found := map[int]string{}
	entries, _ := os.ReadDir("/proc")
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		environ, _ := os.ReadFile(filepath.Join("/proc", e.Name(), "environ"))
		env := "\x00" + string(environ)
		if !strings.Contains(env, "\x00"+variable+"\x00") {
			continue
		}
		_, run, _ := strings.Cut(env, "\x00PICKET_RUN_ID=")
		found[pid], _, _ = strings.Cut(run, "\x00")
	}
	return found
}

// ledgerEntry is a line of an agent's ledger.
type ledgerEntry struct {
	what  string
	token int64
	run   string    // of start
	older int       // of start: processes of older runs that lived then
	at    time.Time // of a write
	code  string    // of a write that was refused
}

func (w *testEnv) ledger(task string) (all []ledgerEntry) {
	w.t.Helper()
	b, err := os.ReadFile(w.path("ledger", task))
	if err != nil && !os.IsNotExist(err) {
		w.t.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		if !strings.HasSuffix(line, "\n") {
			break // under way
		}
		f := append(strings.Fields(line), "", "", "", "")
		e := ledgerEntry{what: f[0]}
		e.token, _ = strconv.ParseInt(f[1], 10, 64)
		if e.what == "start" {
			e.run = f[2]
			e.older, _ = strconv.Atoi(f[3])
		} else {
			ms, _ := strconv.ParseInt(f[2], 10, 64)
			e.at, e.code = time.UnixMilli(ms), f[3]
		}
		all = append(all, e)
	}
	return all
}
