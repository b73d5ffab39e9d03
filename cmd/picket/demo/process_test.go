package demo

import (
	"context"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/picket-dev/picket/internal/rig"
)

// TestFreezeOfAShellThatStartsProcesses freezes a shell that does nothing but
// start processes: stopped between vfork and exec, its child would hold it in a
// state in which no stop reaches it.
func TestFreezeOfAShellThatStartsProcesses(t *testing.T) {
	rig.SkipShort(t)
	if _, err := os.Stat("/proc/self/stat"); err != nil {
		t.Skip("there is no /proc")
	}
	st := &demoEnv{dir: t.TempDir(), binary: "/bin/sh", env: os.Environ()}
	for round := range 30 {
		// The outer shell stands for the adapter, the inner ones for the agent:
		// many, since each is between vfork and exec for a hundredth of its time.
		a, err := st.start("-c",
			"for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do sh -c 'while :; do sleep 0.002; done' & done; echo on; wait")
		if err != nil {
			t.Fatal(err)
		}
		if err := PollUntil(t.Context(), func() (bool, error) { return a.stdout() != "", nil }); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		agent, err := a.freeze(ctx)
		cancel()
		if err != nil || !allStopped(agent...) {
			t.Errorf("round %d: not frozen: %v", round, err)
		}
		for _, p := range append(agent, a.pid()) {
			_ = unix.Kill(p, unix.SIGKILL)
		}
		<-a.done
		if t.Failed() {
			return
		}
	}
}
