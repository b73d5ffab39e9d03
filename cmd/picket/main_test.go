package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/rogpeppe/go-internal/testscript"

	"github.com/picket-dev/picket/cmd/picket-conformance/command"
	"github.com/picket-dev/picket/cmd/picket/demo"
	"github.com/picket-dev/picket/internal/devredis"
	"github.com/picket-dev/picket/internal/rig"
	"github.com/picket-dev/picket/internal/rig/cleanup"
)

// The scripts in testdata are the manual: each is a story that a reader can
// type, and fails when it is no longer true.

var update = flag.Bool("update", false, "rewrite the expected outputs in testdata")

func TestMain(m *testing.M) {
	tests := &ownTests{M: m, end: func() {}}
	if name := filepath.Base(os.Args[0]); name != "picket" && name != conformanceProgram { // which a script calls
		var err error
		if tests.end, err = cleanup.OwnTempDir("pk-cli-"); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		if signal.Ignored(syscall.SIGHUP) { // under nohup; the commands of a script are to heed it as without
			signal.Notify(make(chan os.Signal, 1), syscall.SIGHUP)
		}
	}
	testscript.Main(tests, map[string]func(){
		"picket":           main,
		conformanceProgram: func() { os.Exit(command.Main(os.Args[1:])) },
	})
}

// ownTests leave no directory behind.
type ownTests struct {
	*testing.M
	end func()
}

func (t *ownTests) Run() int {
	defer t.end()
	return t.M.Run()
}

func TestScripts(t *testing.T) {
	rig.SkipShort(t)
	if _, err := exec.LookPath("redis-server"); err != nil {
		t.Log("redis-server is not installed: the scripts run on the in-memory store")
	}
	testscript.Run(t, scriptParams(t))
}

// scriptDeadline is when scripts that still run are ended: early enough before
// the end of the test binary to print what they did.
func scriptDeadline(t *testing.T) time.Time {
	end, ok := t.Deadline()
	if !ok {
		return time.Time{}
	}
	return end.Add(-time.Minute)
}

// scriptParams are those of the scripts in testdata.
func scriptParams(t *testing.T) testscript.Params {
	return testscript.Params{
		Dir:                 "testdata",
		Deadline:            scriptDeadline(t),
		UpdateScripts:       *update,
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Setup: func(env *testscript.Env) error {
			home := filepath.Join(env.WorkDir, ".home")
			env.Setenv("XDG_CONFIG_HOME", home+"/config")
			env.Setenv("XDG_DATA_HOME", home+"/data")
			env.Setenv("XDG_STATE_HOME", home+"/state")
			env.Setenv("XDG_RUNTIME_DIR", "")
			env.Setenv("NO_COLOR", "1")
			// Never the port of a picket that runs on this machine: nothing
			// listens on port 1, and what listens picks a free one.
			env.Setenv("PICKET_URL", "http://127.0.0.1:1")
			env.Setenv("PICKET_LISTEN", "127.0.0.1:0")
			env.Defer(func() { killLeftovers(t, env.WorkDir) })
			return os.MkdirAll(home, 0o700)
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"server":     startServer,
			"stopserver": stopServer,
			"killserver": killServer,
			"keep":       keepMatch,
			"await":      await,
			"gone":       awaitGone,
			"exits":      exits,
			"redis":      startRedis,
			"serve":      startRole,
			"logged":     awaitInFile,
			"target":     startTarget,
		},
		Condition: func(name string) (bool, error) {
			if name == "redis" {
				_, err := exec.LookPath("redis-server")
				return err == nil, nil
			}
			return false, errors.New("unknown condition " + name)
		},
	}
}

// exits runs a command and checks its exit code: exits CODE COMMAND ARG…
func exits(ts *testscript.TestScript, neg bool, args []string) {
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	err = ts.Exec(args[1], args[2:]...)
	got := 0
	var failed *exec.ExitError
	if errors.As(err, &failed) {
		got = failed.ExitCode()
	} else {
		ts.Check(err)
	}
	if got != want {
		ts.Fatalf("exit code %d, want %d\n%s%s", got, want, ts.ReadFile("stdout"), ts.ReadFile("stderr"))
	}
}

// startRedis starts a store for the roles apart, sets REDIS_URL and then
// parameters of the server: redis NAME=VALUE…
func startRedis(ts *testscript.TestScript, neg bool, args []string) {
	server, err := devredis.Start(context.Background(), ts.MkAbs("redis"), 0, nil)
	ts.Check(err)
	ts.Defer(func() { ts.Check(server.Stop(context.Background())) })
	ts.Setenv("REDIS_URL", "unix://"+server.Addr())
	c := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer c.Close()
	for _, arg := range args {
		name, value, _ := strings.Cut(arg, "=")
		ts.Check(c.ConfigSet(context.Background(), name, value).Err())
	}
}

// startRole runs `picket serve` and keeps its URL in VAR and its process id in
// VAR_PID: serve VAR ROLE FLAG…
func startRole(ts *testscript.TestScript, neg bool, args []string) {
	url, pid := startProcess(ts, args[1], append([]string{"serve"}, args[1:]...)...)
	ts.Setenv(args[0], url)
	ts.Setenv(args[0]+"_PID", strconv.Itoa(pid))
}

// startServer runs `picket up` with further arguments and waits for its ready
// line. Unless they have a --listen, it picks a free port. It is stopped when the
// script ends, and must end cleanly.
func startServer(ts *testscript.TestScript, neg bool, args []string) {
	line := []string{"up"}
	if !slices.Contains(args, "--listen") {
		line = append(line, "--listen", "127.0.0.1:0")
	}
	url, pid := startProcess(ts, "server", append(line, args...)...)
	ts.Setenv("SERVER_URL", url)
	ts.Setenv("SERVER_ADDR", strings.TrimPrefix(url, "http://"))
	ts.Setenv("PICKET_URL", "") // from here on the saved profile names the server
	ts.Setenv("SERVER_PID", strconv.Itoa(pid))
}

// startProcess starts a picket that serves, waits for its ready line, and sees
// to it that it is ended with the script.
func startProcess(ts *testscript.TestScript, name string, args ...string) (url string, pid int) {
	binary, err := exec.LookPath("picket")
	ts.Check(err)
	out, err := os.Create(ts.MkAbs(name + ".out"))
	ts.Check(err)
	errOut, err := os.OpenFile(ts.MkAbs(name+".err"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	ts.Check(err)
	defer out.Close()
	defer errOut.Close()
	cmd := exec.Command(binary, args...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = ts.MkAbs("."), out, errOut
	for _, v := range []string{"PATH", "HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME", "NO_COLOR",
		"PICKET_REDIS", "PICKET_SECRET_FILE", "PICKET_CONFIG"} {
		cmd.Env = append(cmd.Env, v+"="+ts.Getenv(v))
	}
	ts.Check(cmd.Start())
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	ts.Defer(func() {
		if err := terminate(cmd, ended); err != nil {
			ts.Logf("%s did not stop cleanly: %v", name, err)
		}
	})
	err = demo.PollUntil(context.Background(), func() (bool, error) {
		select {
		case err := <-ended:
			ended <- err
			return false, fmt.Errorf("it ended: %w", err)
		default:
			text := ts.ReadFile(name + ".out")
			url = strings.TrimSpace(strings.TrimPrefix(text, "ready "))
			return strings.HasSuffix(text, "\n"), nil
		}
	})
	if err != nil {
		ts.Fatalf("%s is not ready: %v\n%s", name, err, ts.ReadFile(name+".err"))
	}
	return url, cmd.Process.Pid
}

func terminate(cmd *exec.Cmd, ended chan error) error {
	_ = cmd.Process.Signal(syscall.SIGTERM)
	select {
	case err := <-ended:
		ended <- err
		return err
	case <-time.After(time.Minute):
		_ = cmd.Process.Kill()
		return errors.New("killed after a minute")
	}
}

// stopServer ends the server with SIGTERM and waits until it is gone.
func stopServer(ts *testscript.TestScript, neg bool, args []string) {
	signalServer(ts, syscall.SIGTERM)
}

// killServer ends it with SIGKILL.
func killServer(ts *testscript.TestScript, neg bool, args []string) {
	signalServer(ts, syscall.SIGKILL)
}

func signalServer(ts *testscript.TestScript, sig syscall.Signal) {
	pid, err := strconv.Atoi(ts.Getenv("SERVER_PID"))
	ts.Check(err)
	ts.Check(syscall.Kill(pid, sig))
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	ts.Check(demo.PollUntil(ctx, func() (bool, error) { return !demo.ProcessAlive(pid), nil }))
}

// keepMatch sets a variable to what a pattern finds in stdout or a file:
// keep VAR FILE PATTERN. A group in the pattern is what is kept.
func keepMatch(ts *testscript.TestScript, neg bool, args []string) {
	if len(args) != 3 {
		ts.Fatalf("usage: keep VAR FILE PATTERN")
	}
	found := regexp.MustCompile("(?m)" + args[2]).FindStringSubmatch(ts.ReadFile(args[1]))
	if found == nil {
		ts.Fatalf("no match for %s in %s:\n%s", args[2], args[1], ts.ReadFile(args[1]))
	}
	ts.Setenv(args[0], found[len(found)-1])
}

// await repeats a picket command until its stdout matches: await PATTERN ARGS…
func await(ts *testscript.TestScript, neg bool, args []string) {
	want := regexp.MustCompile(args[0])
	err := demo.PollUntil(context.Background(), func() (bool, error) {
		_ = ts.Exec("picket", args[1:]...) // a failure is looked at when the time is over
		return want.MatchString(ts.ReadFile("stdout")), nil
	})
	if err != nil {
		ts.Fatalf("picket %s never matched %s\n%s%s", strings.Join(args[1:], " "), args[0], ts.ReadFile("stdout"),
			ts.ReadFile("stderr"))
	}
}

// awaitGone waits until no process with this text in its command line is left:
// gone TEXT
func awaitGone(ts *testscript.TestScript, neg bool, args []string) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	err := demo.PollUntil(ctx, func() (bool, error) { return processMatching(args[0]) == "", nil })
	if err != nil {
		ts.Fatalf("still running: %s", processMatching(args[0]))
	}
}

func processMatching(text string) string {
	for _, line := range processesMatching(regexp.QuoteMeta(text)) {
		return line
	}
	return ""
}
