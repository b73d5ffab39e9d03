//go:build unix

package adapter_test

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/adapter"
	"github.com/picket-dev/picket/adapter/adaptertest"
	"github.com/picket-dev/picket/client"
	"github.com/picket-dev/picket/internal/rig"
)

// myWorker is an adapter of one's own in forty lines: what the lease protocol
// asks of one at least.
func myWorker(ctx context.Context, c *client.Client, h *http.Client, command []string) {
	for n := 0; ctx.Err() == nil; {
		leases, err := c.Leases.Acquire(ctx, picket.AcquireRequest{AgentID: "mine"},
			client.WithIdempotencyKey(fmt.Sprint("acquire ", n)))
		if err == nil { // else the same key again: what was granted is not lost
			n++
		}
		for _, lease := range leases {
			myRun(lease, h, command)
		}
		time.Sleep(100 * time.Millisecond)
	}
}

func myRun(lease picket.Lease, h *http.Client, command []string) {
	ctx, done := context.WithCancel(context.Background())
	defer done()
	proxy, window := adapter.NewProxy(lease, "", h), time.Duration(lease.WindowMs)*time.Millisecond
	sent := time.Now() // a lease counts from before its renewal was sent
	if _, err := proxy.Renew(ctx); err != nil {
		return // never launch for a lease that may not have arrived
	}
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Env = append(os.Environ(), "PICKET_RUN_ID="+lease.RunID, "PICKET_LEASE_TOKEN="+lease.LeaseToken.Reveal(),
		"PICKET_PROXY_URL="+proxy.BaseURL())
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	ended, lost := make(chan error, 1), make(chan bool, 1)
	if err := cmd.Start(); err != nil {
		return
	}
	go func() { // the next run waits for what was announced; this one waits for nobody
		_ = proxy.Events(ctx, picket.RunEvent{Type: picket.EventRunLaunched, Containment: picket.ContainmentGroup})
	}()
	go func() { ended <- cmd.Wait() }()
	go func() { lost <- lostLease(ctx, proxy) }()
	for deadline, next := sent.Add(window), sent.Add(window*6/10); ; {
		kill := time.Until(deadline) < max(window*3/100, 500*time.Millisecond) // the margin
		select {
		case <-lost:
			kill = true
		case <-ended:
			for end := time.Now().Add(time.Second); syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) == nil &&
				time.Now().Before(end); {
				time.Sleep(5 * time.Millisecond) // what it left behind has to be gone, too
			}
			tell(proxy, cmd.ProcessState)
			return
		case <-time.After(50 * time.Millisecond):
		}
		if kill {
			_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		} else if sent = time.Now(); sent.After(next) {
			try, cancel := context.WithDeadline(ctx, sent.Add(window/10))
			if _, err := proxy.Renew(try); err == nil {
				deadline, next = sent.Add(window), sent.Add(window*6/10)
			}
			cancel()
		}
	}
}

// lostLease returns when the lease is gone.
func lostLease(ctx context.Context, proxy *adapter.Proxy) bool {
	for ctx.Err() == nil {
		w, _, err := proxy.Watch(ctx, 50*time.Second)
		if picket.CodeOf(err).Fenced() ||
			err == nil && w.State != "" && w.State != picket.WatchHeld && w.State != picket.WatchReclaim {
			return true
		}
		time.Sleep(100 * time.Millisecond)
	}
	return false
}

// tell releases the lease with how the process ended, until that has arrived;
// a lease that has ended already gets it as evidence.
func tell(proxy *adapter.Proxy, state *os.ProcessState) {
	code := state.ExitCode()
	exit := picket.Exit{Class: picket.ExitCrash, Code: &code}
	if status := state.Sys().(syscall.WaitStatus); status.Signaled() {
		code, exit.Signal = 128+int(status.Signal()), new(string)
		*exit.Signal = map[bool]string{true: "SIGKILL", false: "SIGTERM"}[status.Signal() == syscall.SIGKILL]
	} else if code == 0 {
		exit.Class = picket.ExitNoResult
	}
	for try := 0; try < 100; try++ {
		_, err := proxy.Release(context.Background(), exit)
		if picket.CodeOf(err).Fenced() {
			exit.Class = picket.ExitKilled
			err = proxy.Exit(context.Background(), exit, picket.ContainmentGroup)
		}
		if err == nil {
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// An adapter of one's own: myWorker leases, launches, renews, watches, kills and
// releases. TestCustomAdapterConforms runs it against the rules of adaptertest.
func Example_customAdapter() {
	server := adaptertest.New() // in life: picket up
	task := server.Queue(adaptertest.Task{Title: "fails"})
	ctx, stop := context.WithCancel(context.Background())
	worked := make(chan bool)
	go func() {
		h := server.HTTPClient()
		myWorker(ctx, client.New(server.URL, adaptertest.Key, client.Options{HTTP: h}), h,
			[]string{"sh", "-c", "exit 3"})
		close(worked)
	}()
	view, err := server.Await(ctx, task, func(v adaptertest.View) bool { return v.State == picket.TaskHandoff })
	stop()
	<-worked
	fmt.Println(view.State, view.Runs[0].Released.Class, *view.Runs[0].Released.Code, err)
	// Output: handoff crash 3 <nil>
}

// It keeps the rules of leases; what it does not claim stands here.
func TestCustomAdapterConforms(t *testing.T) {
	rig.SkipShort(t)
	adaptertest.Conform(t, func(ctx context.Context, s *adaptertest.Server, command []string) error {
		myWorker(ctx, client.New(s.URL, adaptertest.Key, client.Options{}), nil, command)
		return nil
	}, append(adaptertest.RegistryRules(), // it does not register
		"hands in the output of onExit complete", "does one task after the other",
		"lets an agent that is done end on its own", "obeys stop", "kills a tree that is deaf to SIGTERM",
		"ships the output, each byte once", "ends a run at its timeout and reports it",
		"completes once although request and reply are lost")...)
}

// The table of the documentation is the table that is checked.
func TestRulesAreDocumented(t *testing.T) {
	page, err := os.ReadFile("../docs/protocol.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(page), "| rule | without it |\n|---|---|\n")
	var want strings.Builder
	for _, r := range adaptertest.Rules() {
		fmt.Fprintf(&want, "| %s | %s |\n", r.Name, r.Why)
	}
	if !strings.HasPrefix(table, want.String()) {
		t.Errorf("docs/protocol.md has other rules; it should have\n%s", want.String())
	}
}
