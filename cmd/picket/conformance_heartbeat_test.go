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

	"github.com/picket-dev/picket/cmd/picket/settings"
	"github.com/picket-dev/picket/internal/agentheartbeat"
	"github.com/picket-dev/picket/internal/conformance"
	"github.com/picket-dev/picket/internal/rig"
	"github.com/picket-dev/picket/orchestrator"
	"github.com/picket-dev/picket/orchestrator/heartbeat"
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
		wakes := quickWakes(t)
		transport := &http.Transport{DialContext: l.dial, MaxIdleConnsPerHost: 100}
		c, stop := startSuiteServerWith(t, store, l, transport, wakes)
		defer stop()
		test(t, agentheartbeat.Config{URL: c.url, Key: c.key, HTTP: c.http, Files: wakes.Dir, Slack: 5 * time.Second,
			Exact: true})
	})
}

// quickWakes are settings with which the scheduler wakes by the clock every two minutes. With the defaults, which
// TestHeartbeatReal has, the rules about it would take a day of virtual time.
func quickWakes(t *testing.T) settings.Wake {
	t.Helper()
	d := heartbeat.Defaults()
	return settings.Wake{Enabled: true, MaxBodyBytes: d.MaxBodyBytes, MinInterval: time.Minute,
		DefaultInterval: 2 * time.Minute, WakeCooldown: 20 * time.Second, MaxWakesPerCycle: d.MaxWakesPerCycle,
		ContextProjectionBytes: d.ContextProjectionBytes, WakeEventRetention: d.WakeEventRetention,
		SessionHealthStaleAfter:      d.SessionHealthStaleAfter,
		SessionHealthHookMinInterval: d.SessionHealthHookMinInterval, ActiveSessionOnly: true,
		AllowActiveHoursPreferences: true, Budget: orchestrator.DefaultSessionLimits().Namespace,
		Dir: filepath.Join(t.TempDir(), "agents")}
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
	dir := t.TempDir()
	url, key := startUpIn(t, dir)
	report, err := agentheartbeat.Run(t.Context(), agentheartbeat.Config{URL: url, Key: key, Picket: picketCommand(t),
		Files: filepath.Join(dir, "data", "agents"), Slack: time.Minute})
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
