package cleanup_test

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/picket-dev/picket/internal/rig/cleanup"
)

// TestMain is also the test program that is told to end: it starts a process
// that does not end on its own, in a session of its own and with a child of its
// own, and one that keeps starting others.
func TestMain(m *testing.M) {
	end, err := cleanup.OwnTempDir("pk-cleanup-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	if os.Getenv("PICKET_REMAINS_DOOMED") != "" {
		os.Exit(startStubbornProcesses())
	}
	code := m.Run()
	end()
	os.Exit(code)
}

func startStubbornProcesses() int {
	dir := os.Getenv("TMPDIR")
	for _, script := range []string{
		`trap '' TERM INT; sleep 1000 & echo; wait`,
		`trap '' TERM INT; echo; while :; do sleep 0.01; done`,
		`cd "$1"; echo; exec env -i sleep 1000`, // carries it as where it works
	} {
		cmd := exec.Command("sh", "-c", script, "sh", dir)
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
		out, err := cmd.StdoutPipe()
		if err == nil {
			err = cmd.Start()
		}
		if err == nil {
			_, err = out.Read(make([]byte, 1))
		}
		if err != nil {
			fmt.Println(err)
			return 2
		}
	}
	fmt.Println(dir)
	select {}
}

// When a test program is ended by a signal, SIGKILL included, all processes that it
// started are killed and its directory is removed. SIGQUIT is what go test sends
// after its timeout.
func TestSignalEndsAllStartedProcesses(t *testing.T) {
	exits := map[syscall.Signal]int{syscall.SIGTERM: 1, syscall.SIGINT: 1, syscall.SIGQUIT: 2, syscall.SIGKILL: -1}
	for sig, exit := range exits {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), "PICKET_REMAINS_DOOMED=1")
		cmd.Stderr = new(strings.Builder) // closed by the program and its watcher
		out, err := cmd.StdoutPipe()
		if err == nil {
			err = cmd.Start()
		}
		if err != nil {
			t.Fatal(err)
		}
		dir, err := bufio.NewReader(out).ReadString('\n')
		dir = strings.TrimSpace(dir)
		if err != nil || !filepath.IsAbs(dir) {
			_ = cmd.Process.Kill()
			t.Fatalf("it says %q: %v", dir, err)
		}
		if found := cleanup.Processes(dir); len(found) < 3 {
			t.Errorf("it has started %v", found)
		}
		if err := cmd.Process.Signal(sig); err != nil {
			t.Fatal(err)
		}
		late := time.AfterFunc(time.Minute, func() { _ = cmd.Process.Kill() })
		err = cmd.Wait() // until the watcher has closed standard error, too
		late.Stop()
		var status *exec.ExitError
		if !errors.As(err, &status) || status.ExitCode() != exit {
			t.Errorf("%v: it ended with %v, want exit status %d", sig, err, exit)
		}
		if left := cleanup.Processes(dir); len(left) > 0 {
			t.Errorf("%v: left behind: %v", sig, left)
			for pid := range left {
				_ = syscall.Kill(pid, syscall.SIGKILL)
			}
		}
		if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%v: its directory is left: %v", sig, err)
		}
	}
}

// Another's directory whose name begins alike is not ours.
func TestProcessesIgnoresLongerPaths(t *testing.T) {
	dir := t.TempDir()
	cmd := exec.Command("/bin/sh", "-c", "echo; read x")
	cmd.Env, cmd.Dir = []string{"X=" + dir + "1/a"}, "/"
	in, err := cmd.StdinPipe()
	must(t, err)
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	defer func() { in.Close(); _ = cmd.Wait() }()
	_, err = out.Read(make([]byte, 1)) // before it has an environment
	must(t, err)
	if found := cleanup.Processes(dir); len(found) > 0 {
		t.Errorf("found %v", found)
	}
	if found := cleanup.Processes(dir + "1"); len(found) != 1 {
		t.Errorf("of that directory: %v", found)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
