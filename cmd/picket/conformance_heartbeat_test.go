package main

import (
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/picket-dev/picket/internal/agentheartbeat"
	"github.com/picket-dev/picket/internal/conformance"
	"github.com/picket-dev/picket/internal/rig"
)

// heartbeatDeviations are the rules of Agent Heartbeat that Picket does not keep yet, and why. A rule that is
// kept must not be here.
var heartbeatDeviations = map[string]string{}

// onVirtualHeartbeat runs a test of the heartbeat suite on the virtual clock, with a server without sockets.
func onVirtualHeartbeat(t *testing.T, test func(t *testing.T, cfg agentheartbeat.Config)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		store, end := rig.Memory()
		defer end()
		l := newPipes()
		c, stop := startSuiteServer(t, store, l, &http.Transport{DialContext: l.dial, MaxIdleConnsPerHost: 100})
		defer stop()
		test(t, agentheartbeat.Config{URL: c.url, Key: c.key, HTTP: c.http, Slack: 2 * time.Second, Exact: true})
	})
}

// expectHeartbeat expects each rule that can be run to have passed, unless Picket is known to deviate.
func expectHeartbeat(t *testing.T, report conformance.Report, notRun func(agentheartbeat.Rule) bool) {
	t.Helper()
	t.Log(report.Summary())
	rules := agentheartbeat.Rules()
	for i, r := range report.Results {
		name := rules[i].Name()
		want, why := conformance.Passed, ""
		if heartbeatDeviations[name] != "" {
			want, why = conformance.Failed, heartbeatDeviations[name]
		}
		if notRun(rules[i]) {
			want = conformance.NotRun
		}
		if r.Outcome != want {
			t.Errorf("%s is %s %s, want %s %s: %s\n  expected: %s\n  got:      %s\n  repeat:   %s", name, r.Outcome, r.Why,
				want, why, r.Text, r.Expected, r.Got, r.Repeat)
		}
		if r.Outcome == conformance.NotRun && r.Why == "" {
			t.Errorf("%s was not run for no reason", name)
		}
	}
	if len(report.Left) > 0 {
		t.Errorf("left behind: %s", strings.Join(report.Left, ", "))
	}
}

func TestHeartbeatVirtual(t *testing.T) {
	rig.SkipShort(t)
	t.Parallel()
	onVirtualHeartbeat(t, func(t *testing.T, cfg agentheartbeat.Config) {
		report, err := agentheartbeat.Run(t.Context(), cfg)
		if err != nil {
			t.Fatal(err)
		}
		expectHeartbeat(t, report, func(r agentheartbeat.Rule) bool {
			return r.Check == nil || slices.Contains(r.Needs, "binary")
		})
	})
}

// TestHeartbeatReal is the same on the clock on the wall, with a process of `picket up`, its Redis and its
// files, and with commands.
func TestHeartbeatReal(t *testing.T) {
	rig.SkipShort(t)
	t.Parallel()
	if _, err := exec.LookPath("redis-server"); err != nil {
		t.Fatal("redis-server is not installed: what is not tested on a real store is not tested")
	}
	url, key := startUp(t)
	report, err := agentheartbeat.Run(t.Context(),
		agentheartbeat.Config{URL: url, Key: key, Picket: picketCommand(t), Slack: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	expectHeartbeat(t, report, func(r agentheartbeat.Rule) bool {
		return r.Check == nil || slices.Contains(r.Needs, "exact clock")
	})
}

// picketCommand is the path of this test binary under the name of picket.
func picketCommand(t *testing.T) string {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "picket")
	if err := os.Symlink(self, path); err != nil {
		t.Fatal(err)
	}
	return path
}
