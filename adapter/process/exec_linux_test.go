package process_test

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/adapter/process"
	"github.com/picket-dev/picket/internal/rig/proctest"
)

// launchIdleAgent is an agent that lives until it is killed, at each level.
func launchIdleAgent(t *testing.T, level string) (process.Process, process.Executor, string) {
	t.Helper()
	dir, run := t.TempDir(), "run_"+strings.ReplaceAll(t.Name(), "/", "_")
	p, err := process.CommandLauncher{
		Command:     []string{"sleep", "1000"},
		Containment: level,
	}.Launch(context.Background(),
		process.Job{
			Dir:   dir,
			Lease: picket.Lease{RunID: run},
			Env:   []string{"PICKET_RUN_ID=" + run, "PICKET_WORKSPACE=" + dir},
		})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Kill(); <-p.Done() })
	return p, p.(process.Executor), dir
}

func everyLevel(t *testing.T, test func(t *testing.T, level string)) {
	for _, level := range proctest.Levels(t) {
		t.Run(level, func(t *testing.T) {
			t.Parallel()
			test(t, level)
		})
	}
}

func shell(id, script string, out *bytes.Buffer) process.ExecJob {
	return process.ExecJob{
		ID:      id,
		Argv:    []string{"sh", "-c", script},
		Timeout: time.Minute,
		Stdin:   strings.NewReader("from stdin\n"),
		Stdout:  out,
	}
}

// pidIn waits for a process id that a program writes.
func pidIn(t *testing.T, file string) string {
	t.Helper()
	var pid string
	proctest.Eventually(t, func() bool {
		b, _ := os.ReadFile(file)
		pid = strings.TrimSpace(string(b))
		return strings.HasSuffix(string(b), "\n") && pid != ""
	}, "the program did not begin")
	return pid
}

func TestExecRunsInTheWorkspace(t *testing.T) {
	os.Setenv("SECRET_OF_THE_ADAPTER", "hunter2")
	everyLevel(t, func(t *testing.T, level string) {
		_, x, dir := launchIdleAgent(t, level)
		var out bytes.Buffer
		end, err := x.Exec(t.Context(),
			shell("c1",
				`pwd; cat; echo "$PICKET_EXEC $PICKET_WORKSPACE"; env | grep -c SECRET_OF; ulimit -c; echo "$0 $#"; exit 7`, &out))
		if err != nil {
			t.Fatal(err)
		}
		real, _ := filepath.EvalSymlinks(dir)
		if want := real + "\nfrom stdin\n" + "run_" + strings.ReplaceAll(t.Name(), "/", "_") + "/c1 " + dir +
			"\n0\n0\nsh 0\n"; end != (process.Exited{Code: 7}) || out.String() != want {
			t.Errorf("ended with %+v, wrote\n%s\nwant\n%s", end, out.String(), want)
		}
		if _, err := x.Exec(t.Context(),
			process.ExecJob{ID: "c2", Argv: []string{"no-such-program"}, Timeout: time.Minute}); err == nil ||
			!strings.Contains(err.Error(), "not found") {
			t.Errorf("a program that is not there: %v", err)
		}
		if _, err := x.Exec(t.Context(),
			process.ExecJob{ID: "c3", Argv: []string{"./nothing"}, Timeout: time.Minute}); err == nil {
			t.Error("a path that is not there was run")
		}
		// An argument is an argument: nothing is expanded.
		out.Reset()
		if _, err := x.Exec(t.Context(),
			process.ExecJob{
				ID:      "c4",
				Argv:    []string{"echo", "$HOME; *"},
				Timeout: time.Minute,
				Stdout:  &out,
			}); err != nil || out.String() != "$HOME; *\n" {
			t.Errorf("wrote %q, %v", out.String(), err)
		}
	})
}

// A call that is over has no more effects: what its program left behind goes
// with it, also what has left its session. The agent goes on.
func TestExecLeavesNobodyBehind(t *testing.T) {
	everyLevel(t, func(t *testing.T, level string) {
		p, x, dir := launchIdleAgent(t, level)
		var out bytes.Buffer
		file := filepath.Join(dir, "pid")
		end, err := x.Exec(t.Context(),
			shell("c1", `setsid sh -c 'echo $$ > `+file+`.tmp; mv `+file+`.tmp `+file+
				`; exec sleep 1000' & while [ ! -e `+file+` ]; do sleep 0.01; done; exit 0`, &out))
		if err != nil || end.Code != 0 {
			t.Fatal(end, err, out.String())
		}
		pid := pidIn(t, file)
		proctest.Eventually(t, func() bool { return !proctest.Alive(pid) }, "what the program started goes on")
		select {
		case <-p.Done():
			t.Fatal("the agent ended with the program")
		default:
		}
	})
}

func TestExecEndsAtItsLimitAndWhenToldTo(t *testing.T) {
	everyLevel(t, func(t *testing.T, level string) {
		p, x, dir := launchIdleAgent(t, level)
		for name, cut := range map[string]func(job *process.ExecJob) context.Context{
			"limit": func(job *process.ExecJob) context.Context {
				job.Timeout = 300 * time.Millisecond
				return t.Context()
			},
			"told": func(*process.ExecJob) context.Context {
				ctx, cancel := context.WithCancel(t.Context())
				go func() {
					pidIn(t, filepath.Join(dir, "told"))
					cancel()
				}()
				return ctx
			},
		} {
			var out bytes.Buffer
			file := filepath.Join(dir, name)
			job := shell(name, `trap '' TERM INT; (trap '' TERM; while :; do sleep 1; done) & echo $! > `+file+`; wait`,
				&out)
			end, err := x.Exec(cut(&job), job)
			if err != nil || end.Signal != "SIGKILL" {
				t.Errorf("%s: ended with %+v, %v", name, end, err)
			}
			pid := pidIn(t, file)
			proctest.Eventually(t, func() bool { return !proctest.Alive(pid) }, name+": its child goes on")
		}
		select {
		case <-p.Done():
			t.Fatal("the agent ended with the program")
		default:
		}
	})
}

// The end of the run is the end of its programs.
func TestExecEndsWithItsRun(t *testing.T) {
	everyLevel(t, func(t *testing.T, level string) {
		p, x, dir := launchIdleAgent(t, level)
		var out bytes.Buffer
		ended := make(chan process.Exited, 1)
		file := filepath.Join(dir, "pid")
		go func() {
			end, err := x.Exec(t.Context(),
				shell("c1", `trap '' TERM; echo $$ > `+file+`; while :; do sleep 1; done`, &out))
			if err != nil {
				t.Error(err)
			}
			ended <- end
		}()
		pid := pidIn(t, file)
		p.Kill()
		<-p.Done()
		if end := <-ended; end.Signal != "SIGKILL" {
			t.Errorf("ended with %+v", end)
		}
		proctest.Eventually(t, func() bool { return !proctest.Alive(pid) }, "the program goes on")
		if _, err := x.Exec(t.Context(), shell("c2", "true", &out)); err == nil {
			t.Error("a program was started beside an agent that has ended")
		}
	})
}

// A killed adapter leaves no program behind where a shim holds the tree.
func TestExecDiesWithAKilledAdapter(t *testing.T) {
	proctest.EachShimLevel(t, func(t *testing.T, level string) {
		dir := t.TempDir()
		file := filepath.Join(dir, "pid")
		command := append(proctest.Agent("execs"), level, dir, file)
		outside := exec.Command(command[0], command[1:]...)
		if err := outside.Start(); err != nil {
			t.Fatal(err)
		}
		pid := pidIn(t, file)
		if err := outside.Process.Signal(syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		_ = outside.Wait()
		proctest.Eventually(t, func() bool { return !proctest.Alive(pid) }, "the program outlives the adapter")
	})
}

// executing is an adapter outside of the test that runs a program for ever.
func init() { proctest.Scripts["execs"] = executing }

func executing() int {
	level, dir, file := os.Args[3], os.Args[4], os.Args[5]
	p, err := process.CommandLauncher{
		Command:     []string{"sleep", "1000"},
		Containment: level,
	}.Launch(context.Background(),
		process.Job{
			Dir:   dir,
			Lease: picket.Lease{RunID: "run_outside" + level},
			Env:   []string{"PICKET_RUN_ID=run_outside" + level},
		})
	if err != nil {
		return 1
	}
	var out bytes.Buffer
	_, _ = p.(process.Executor).Exec(context.Background(), shell("c1", `echo $$ > `+file+`; sleep 1000`, &out))
	return 0
}
