//go:build linux

package e2e

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/go-json-experiment/json"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/internal/rig/proctest"
)

// window is the lease of the tasks on lanes, margin how long before its end the
// agent has to be dead.
const (
	window = 3 * time.Second
	margin = 500 * time.Millisecond
)

// workerPair is a task with a worker of its own, whose agent is struck, and a second
// worker that waits for the task.
type workerPair struct {
	*testEnv
	name      string
	story     string
	level     string // of containment; empty: the best there is
	first     *process
	second    *process
	task      picket.Task
	run       string // the first that came to work
	token     int64  // of it
	agents    []int  // the tree of the first run
	shim      int
	died      chan time.Time
	front     string            // where workers reach the servers
	locations map[string]*netns // of the workers; nil: this one
	flags     []string          // of the workers
}

// openWorkerPair submits a task and waits until the agent of the first worker writes.
func (w *testEnv) openWorkerPair(name, level string) *workerPair {
	w.t.Helper()
	l := w.newWorkerPair(name, level)
	l.first = l.startWorker("first")
	return l
}

func (w *testEnv) newWorkerPair(name, level string) *workerPair {
	w.t.Helper()
	if err := os.MkdirAll(w.path("ledger"), 0o700); err != nil {
		w.t.Fatal(err)
	}
	l := &workerPair{
		testEnv: w,
		name:    name,
		level:   level,
		died:    make(chan time.Time, 1),
		front:   w.url,
		flags:   w.pairFlags,
	}
	l.task = w.submit(l.spec("diehard"))
	return l
}

func (l *workerPair) spec(title string) picket.TaskSpec {
	s := spec(title+" "+l.name, int(cmp.Or(l.pairWindow, window)/time.Second))
	s.Role, s.Review, s.Escalate = l.name, picket.ReviewByNone, picket.EscalateFail
	attempts, backoff := 100, 0
	s.Retry = &picket.Retry{MaxAttempts: &attempts, BackoffSeconds: &backoff,
		On: []picket.ExitClass{picket.ExitCrash, picket.ExitNoResult, picket.ExitStalled}}
	return s
}

func (l *workerPair) startWorker(which string) *process {
	l.t.Helper()
	args := []string{"adapter", "--agent-id", l.name + "-" + which, "--role", l.name, "--env", "E2E", "--log-level",
		"debug"}
	shape := "escape"
	if l.level == picket.ContainmentGroup {
		shape = "stay"
	}
	if l.level != "" {
		args = append(args, "--containment", l.level)
	}
	args = append(args, l.flags...)
	self, err := os.Executable()
	if err != nil {
		l.t.Fatal(err)
	}
	env := l.env
	defer func() { l.env, l.within = env, nil }()
	l.within = l.locations[which]
	l.env = append(env[:len(env):len(env)], "PICKET_URL="+l.front, "PICKET_API_KEY="+l.key)
	return l.start(l.name+"-"+which, append(args, "--", self, asAgent, shape)...)
}

// awaitRunning waits for the agent at work, lets the second worker wait, too, and
// looks at what runs.
func (l *workerPair) awaitRunning() {
	l.t.Helper()
	l.token = l.writes(1, 2, time.Time{})
	for _, e := range l.ledger(l.task.TaskID) {
		if e.what == "start" && e.token == l.token {
			l.run = e.run
		}
	}
	l.second = l.startWorker("second")
	l.second.says("waiting for tasks")
	l.shim = l.shimOf(l.run)
	for pid := range marked("PICKET_RUN_ID=" + l.run) {
		if pid != l.shim {
			l.agents = append(l.agents, pid)
		}
	}
	if len(l.agents) < 3 {
		l.t.Fatalf("%s: the tree is only %v", l.name, l.agents)
	}
	go func() {
		for _, pid := range l.agents {
			_ = awaitEnd(pid, time.Now().Add(3*waitLimit))
		}
		l.died <- time.Now()
	}()
}

// writes waits until n writes under one token, at least as high as given, were
// admitted after an instant, and answers that token.
func (l *workerPair) writes(least int64, n int, after time.Time) (token int64) {
	l.t.Helper()
	l.until(fmt.Sprintf("%s: %d writes under %d or more", l.name, n, least), func() bool {
		had := map[int64]int{}
		for _, e := range l.ledger(l.task.TaskID) {
			if e.what == "wrote" && e.token >= least && e.at.After(after) {
				had[e.token]++
				token = e.token
			}
		}
		return had[token] >= n
	})
	return token
}

// orphaned waits until the next run is at work beside the tree of the first,
// which lives and is refused.
func (l *workerPair) orphaned() {
	l.t.Helper()
	l.writes(l.token+1, 1, time.Time{})
	asked := time.Now()
	l.until(l.name+": the orphan is refused", func() bool {
		for _, e := range l.ledger(l.task.TaskID) {
			if e.what == "refused" && e.token == l.token && e.at.After(asked) {
				return true
			}
		}
		return false
	})
}

// shimOf is the process that outlives a killed adapter, as the adapter wrote it
// down.
func (w *testEnv) shimOf(run string) int {
	w.t.Helper()
	b, err := os.ReadFile(w.path("state", "picket", "adapter", run, "process.json"))
	if err != nil {
		w.t.Fatalf("what holds the run is not written down: %v", err)
	}
	var is struct {
		Shim struct {
			PID int `json:"pid"`
		} `json:"shim"`
	}
	if err := json.Unmarshal(b, &is); err != nil || is.Shim.PID == 0 { // to a signal, 0 is the sender's own group
		w.t.Fatalf("process.json: %v: %s", err, b)
	}
	return is.Shim.PID
}

// killAt is when the first worker has to be done with its agent, as far as it
// knows: one margin before the end that the last renewal was answered with.
func (l *workerPair) killAt() time.Time {
	l.t.Helper()
	var at time.Time
	for line := range strings.Lines(l.first.err.text()) {
		if _, rest, ok := strings.Cut(line, "lease renewed"); ok && strings.Contains(line, l.run) {
			_, text, _ := strings.Cut(rest, "expires=")
			text, _, _ = strings.Cut(strings.TrimSpace(text), " ")
			got, err := time.Parse(time.RFC3339, text)
			if err != nil {
				l.t.Fatalf("%q: %v", line, err)
			}
			at = got.Add(-margin)
		}
	}
	return at
}

// signalParts sends a signal to some of the lane's processes. They are all stopped
// first, so that none reacts to what befalls another.
func (l *workerPair) signalParts(who string, sig syscall.Signal) {
	l.t.Helper()
	signals := []syscall.Signal{syscall.SIGSTOP, sig}
	if sig == syscall.SIGCONT {
		signals = signals[1:]
	}
	for _, sig := range signals {
		var signalled []int
		for part := range strings.SplitSeq(who, "+") {
			for _, pid := range l.part(part) {
				if err := unix.Kill(pid, sig); err != nil && err != unix.ESRCH {
					l.t.Fatalf("%s: %s with %s: %v", l.name, part, sig, err)
				}
				signalled = append(signalled, pid)
			}
		}
		for _, pid := range signalled {
			if sig == syscall.SIGSTOP {
				proctest.AwaitStopped(l.t, pid)
			}
		}
	}
}

func (l *workerPair) part(name string) []int {
	switch name {
	case "adapter":
		return []int{l.first.pid()}
	case "shim":
		return []int{l.shim}
	}
	return l.agents
}

// thawAfter wakes them again.
func (l *workerPair) thawAfter(d time.Duration, who string, done *sync.WaitGroup) {
	done.Add(1)
	var pids []int
	for _, part := range strings.Split(who, "+") {
		pids = append(pids, l.part(part)...)
	}
	time.AfterFunc(d, func() {
		defer done.Done()
		for _, pid := range pids {
			_ = unix.Kill(pid, unix.SIGCONT)
		}
	})
}

// settle waits until one run is at work, alone, and finishes the task.
func (l *workerPair) settle() {
	l.t.Helper()
	since := time.Now()
	var token int64
	l.until(l.name+": one run at work", func() bool {
		token = l.testEnv.task(l.task.TaskID).FencingToken
		for _, e := range l.ledger(l.task.TaskID) {
			if e.what == "wrote" && e.token == token && e.at.After(since) {
				return true
			}
		}
		return false
	})
	run := l.testEnv.task(l.task.TaskID).CurrentRun
	l.until(l.name+": older runs are gone", func() bool {
		for _, of := range marked("PICKET_TASK_ID=" + l.task.TaskID) {
			if run == nil || of != run.RunID {
				return false
			}
		}
		return true
	})
	l.finish(l.task.TaskID)
}

func (l *workerPair) finish(task string) {
	l.t.Helper()
	dir := l.path("finish")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		l.t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, task), nil, 0o600); err != nil {
		l.t.Fatal(err)
	}
	l.of(task, picket.EventTaskCompleted)
}

// serves has a worker do a task for itself alone: whatever befell it, it goes
// on cleanly.
func (l *workerPair) serves(p *process, which string) {
	l.t.Helper()
	s := l.spec("quick")
	s.Agent = l.name + "-" + which
	l.of(l.submit(s).TaskID, picket.EventTaskCompleted)
	if p.ended() {
		l.t.Errorf("%s: the %s worker is gone:\n%s", l.name, which, p.err.text())
	}
}

func tail(text string) string { return text[max(0, len(text)-2_000):] }
