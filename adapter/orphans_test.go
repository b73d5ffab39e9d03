//go:build linux

package adapter

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/adapter/adaptertest"
	"github.com/picket-dev/picket/adapter/process"
	"github.com/picket-dev/picket/adapter/workspace"
	"github.com/picket-dev/picket/internal/files"
	"github.com/picket-dev/picket/internal/rig/proctest"
)

// writeOrphan leaves a lease as an adapter does that is killed while it holds it.
func writeOrphan(t *testing.T, cfg *Config, lease picket.Lease, left process.Record) (dir string) {
	t.Helper()
	dir, err := workspace.PrivateDir(cfg.StateDir, lease.RunID)
	if err != nil {
		t.Fatal(err)
	}
	note := leaseRecord{
		TaskID: lease.TaskID, RunID: lease.RunID, FencingToken: lease.FencingToken, LeaseToken: lease.LeaseToken,
		KillAt: picket.InstantOf(time.Now().Add(time.Minute)), Suspect: isSuspect(lease),
	}
	if err := files.WriteJSON(filepath.Join(dir, leaseFile), note); err != nil {
		t.Fatal(err)
	}
	if left != (process.Record{}) {
		if err := files.WriteJSON(filepath.Join(dir, "process.json"), left); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// sweepUntilReleased runs an adapter until the task is released, and then to its drain.
func sweepUntilReleased(t *testing.T, a *Adapter, s *adaptertest.Server, task string) adaptertest.View {
	t.Helper()
	ctx, drain := context.WithCancel(t.Context())
	ended := runAsync(ctx, a)
	v, err := s.Await(withTimeout(t, time.Hour), task, func(v adaptertest.View) bool {
		return v.Runs[0].Released != nil || v.Runs[0].ExitReport != nil
	})
	time.Sleep(time.Minute) // of the bubble: a lost reply is repeated
	drain()
	if e := ended(); err != nil || e != nil {
		t.Fatal(err, e)
	}
	return v
}

// What a dead adapter held is given back before anything is asked for, the
// agent's failures are not counted up, and the task goes on.
func TestOrphanIsGivenBackFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, s := newScriptedAdapter(t, runForever)
		lease := s.Grant(adaptertest.Task{})
		dir := writeOrphan(t, &a.cfg, lease, process.Record{})
		s.Fail("/v1/lease/release", adaptertest.Unavailable, 3)
		ctx, drain := context.WithCancel(t.Context())
		ended := runAsync(ctx, a)
		v, err := s.Await(withTimeout(t, time.Hour), lease.TaskID,
			func(v adaptertest.View) bool { return len(v.Runs) == 2 })
		if err != nil {
			t.Fatal(err)
		}
		for i, c := range s.Calls("")[:5] {
			if want := "/v1/lease/release"; i < 4 && c.Path != want || i == 4 && c.Path == want {
				t.Errorf("call %d was %s", i, c.Path)
			}
		}
		if exit := v.Runs[0].Released; exit == nil || exit.Class != picket.ExitReleased ||
			!strings.HasPrefix(exit.Detail, orphanDetailPrefix) {
			t.Errorf("given back as %+v", exit)
		}
		if _, err := os.Stat(filepath.Join(dir, leaseFile)); !os.IsNotExist(err) {
			t.Errorf("the note of the lease is still there: %v", err)
		}
		if _, err := os.Stat(filepath.Join(dir, exitFile)); err != nil {
			t.Errorf("the end of the run is not noted: %v", err)
		}
		drain()
		a.ReleaseNow()
		if err := ended(); err != nil {
			t.Fatal(err)
		}
		if left := a.cfg.lockOrphans(); len(left) != 0 {
			t.Errorf("%d orphans after a clean end", len(left))
		}
	})
}

// A run whose adapter lives is left alone, no matter who shares the directory.
func TestLivingAdaptersRunIsLeftAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first, s := newScriptedAdapter(t, runForever)
		held := s.Queue(adaptertest.Task{})
		ctx, drain := context.WithCancel(t.Context())
		ended := runAsync(ctx, first)
		if err := s.AwaitCalls(withTimeout(t, time.Minute), "/v1/run/events", 1); err != nil {
			t.Fatal(err)
		}
		second, _ := newScriptedAdapter(t, runForever, func(c *Config) {
			c.StateDir, c.BaseURL, c.HTTP = first.cfg.StateDir, s.URL, s.HTTPClient()
		})
		other, drainOther := context.WithCancel(t.Context())
		otherEnded := runAsync(other, second)
		asked := len(s.Calls("/api/v1/leases"))
		if err := s.AwaitCalls(withTimeout(t, time.Minute), "/api/v1/leases", asked+1); err != nil {
			t.Fatal(err)
		}
		if v := s.View(held); v.State != picket.TaskLeased || v.Runs[0].Released != nil {
			t.Errorf("the run of a living adapter was taken: %+v", v)
		}
		drainOther()
		if err := otherEnded(); err != nil {
			t.Error(err)
		}
		drain()
		first.ReleaseNow()
		if err := ended(); err != nil {
			t.Error(err)
		}
	})
}

// The report of an orphan's end meets trouble: it is repeated, and a lease that
// is over gets the end as evidence.
func TestReportOfAnOrphan(t *testing.T) {
	for _, tt := range []struct {
		name     string
		happens  func(*adaptertest.Server, picket.Lease)
		released bool
	}{
		{"the reply is lost", func(s *adaptertest.Server, _ picket.Lease) {
			s.Fail("/v1/lease/release", adaptertest.DropReply, 2)
		}, true},
		{"the server is away for a while", func(s *adaptertest.Server, _ picket.Lease) {
			restore := s.Fail("/v1/", adaptertest.Unavailable, -1)
			time.AfterFunc(5*time.Minute, restore)
		}, false},
		{"the server is away for a moment",
			func(s *adaptertest.Server, _ picket.Lease) { s.Fail("/v1/", adaptertest.Unavailable, 3) }, true},
		{"the lease is over", func(s *adaptertest.Server, l picket.Lease) { s.Expire(l.TaskID) }, false},
		{"the lease is another's", func(s *adaptertest.Server, l picket.Lease) { s.Supersede(l.TaskID) }, false},
	} {
		synctest.Test(t, func(t *testing.T) {
			a, s := newScriptedAdapter(t, runForever)
			lease := s.Grant(adaptertest.Task{})
			writeOrphan(t, &a.cfg, lease, process.Record{})
			tt.happens(s, lease)
			s.Pause(true)
			v := sweepUntilReleased(t, a, s, lease.TaskID)
			if tt.released != (v.Runs[0].Released != nil) {
				t.Errorf("%s: released as %+v", tt.name, v.Runs[0].Released)
			}
			if e := v.Runs[0].ExitReport; !tt.released && (e == nil || e.Class != picket.ExitKilled) {
				t.Errorf("%s: evidence %+v", tt.name, e)
			}
			if left := a.cfg.lockOrphans(); len(left) != 0 {
				t.Errorf("%s: the run is still noted as held", tt.name)
			}
		})
	}
}

// A drain does not wait for a server that is away; the next start tries again.
func TestOrphanOutlivesADrain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, s := newScriptedAdapter(t, runForever)
		lease := s.Grant(adaptertest.Task{})
		writeOrphan(t, &a.cfg, lease, process.Record{})
		restore := s.Fail("/v1/", adaptertest.Unavailable, -1)
		ctx, drain := context.WithTimeout(t.Context(), time.Minute)
		defer drain()
		start := time.Now()
		if err := runAsync(ctx, a)(); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(start); took > 75*time.Second {
			t.Errorf("drained after %s", took)
		}
		restore()
		s.Pause(true)
		// The lease is over by then, but its evidence is taken.
		if v := sweepUntilReleased(t, a, s, lease.TaskID); v.Runs[0].Released == nil && v.Runs[0].ExitReport == nil {
			t.Errorf("%+v", v.Runs[0])
		}
	})
}

// A run that ended and could not be reported keeps its own end.
func TestUnreportedEndIsReportedLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, s := newScriptedAdapter(t, func(p *scriptedProcess) {
			time.Sleep(time.Second)
			p.endWith(process.Exited{Code: 3})
		}, func(c *Config) { c.ReportRetry = time.Second })
		lease := s.Grant(adaptertest.Task{Window: time.Hour})
		restore := s.Fail("/v1/lease/release", adaptertest.Unavailable, -1)
		ctx, hurried := context.WithCancel(t.Context())
		time.AfterFunc(5*time.Second, hurried)
		if res, err := a.RunLease(ctx, lease); err == nil || !res.Unreported {
			t.Fatalf("%+v, %v", res, err)
		}
		restore()
		s.Pause(true)
		if exit := sweepUntilReleased(t, a, s, lease.TaskID).Runs[0].Released; exit == nil ||
			exit.Class != picket.ExitCrash ||
			exit.Code == nil || *exit.Code != 3 {
			t.Errorf("released as %+v", exit)
		}
	})
}

// Two runs in a row that took their adapter with them and reported nothing are
// a failure of the agent; with a report between they are not.
func TestSuspectCounts(t *testing.T) {
	own := &picket.Exit{Class: picket.ExitReleased, Detail: orphanDetailPrefix + "; the machine was restarted"}
	for _, tt := range []struct {
		name   string
		before *picket.Exit
		report *picket.Report
		want   picket.ExitClass
	}{
		{"first", nil, nil, picket.ExitReleased},
		{"after another end", &picket.Exit{Class: picket.ExitReleased}, nil, picket.ExitReleased},
		{"twice", own, nil, picket.ExitCrash},
		{"twice, with an old report", own, &picket.Report{FencingToken: 3}, picket.ExitCrash},
		{"twice, with a report between", own, &picket.Report{FencingToken: 4}, picket.ExitReleased},
	} {
		lease := picket.Lease{FencingToken: 5, PreviousExit: tt.before, LastReport: tt.report}
		o := &orphanedRun{dir: t.TempDir(), lease: leaseRecord{Suspect: isSuspect(lease)}}
		if exit := o.exitReport(); exit.Class != tt.want || !strings.HasPrefix(exit.Detail, orphanDetailPrefix) {
			t.Errorf("%s: %+v, want %s", tt.name, exit, tt.want)
		}
	}
}

// Anyone who is suspected is asked about first: a report of this very run acquits it.
func TestSuspicionIsClearedByAReport(t *testing.T) {
	for _, reports := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			a, s := newScriptedAdapter(t, runForever)
			lease := s.Grant(adaptertest.Task{})
			lease.PreviousExit = &picket.Exit{Class: picket.ExitReleased, Detail: orphanDetailPrefix}
			writeOrphan(t, &a.cfg, lease, process.Record{})
			want := picket.ExitCrash
			if reports {
				want = picket.ExitReleased
				if _, err := NewProxy(lease, s.URL, s.HTTPClient()).
					Report(t.Context(), picket.Progress{Summary: "on the way"}); err != nil {
					t.Fatal(err)
				}
			}
			s.Fail("/v1/tools/get_task", adaptertest.DropReply, 2)
			s.Pause(true)
			if exit := sweepUntilReleased(t, a, s, lease.TaskID).Runs[0].Released; exit == nil || exit.Class != want {
				t.Errorf("reported %t: released as %+v, want %s", reports, exit, want)
			}
		})
	}
}

// Notes that are damaged, foreign or of nobody's run end nothing and nobody.
func TestDamagedNotes(t *testing.T) {
	a, _ := newScriptedAdapter(t, runForever)
	for name, text := range map[string]string{
		"run_01J00000000000000000000000": "{",
		"run_01J00000000000000000000001": `{"runId":"run_01J00000000000000000000009"}`,
		"run_01J00000000000000000000002": "",
		"other":                          `{"runId":"other"}`,
	} {
		dir, err := workspace.PrivateDir(a.cfg.StateDir, name)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, leaseFile), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if found := a.cfg.lockOrphans(); len(found) != 0 {
		t.Errorf("%d orphans in damaged notes", len(found))
	}
}

// A lease that was noted under another API key cannot be given back, and its
// token is shown to nobody: the lease ends by its own deadline. The adapter
// that has the key again gives it back.
func TestOrphanOfAnotherKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, s := newScriptedAdapter(t, runForever, func(c *Config) { c.StateKey = "another" })
		lease := s.Grant(adaptertest.Task{})
		dir := writeOrphan(t, &a.cfg, lease, process.Record{})
		var note leaseRecord
		if err := files.ReadJSON(filepath.Join(dir, leaseFile), &note); err != nil {
			t.Fatal(err)
		}
		note.LeaseToken, note.ProxyURL = "", s.URL
		if err := note.seal("the key of before", lease); err != nil {
			t.Fatal(err)
		}
		if err := files.WriteJSON(filepath.Join(dir, leaseFile), note); err != nil {
			t.Fatal(err)
		}
		if err := sweepAndStop(t, a, s); err != nil {
			t.Fatal(err)
		}
		if n := len(s.Calls("/v1/lease/release")); n != 0 {
			t.Errorf("%d releases with a credential that cannot be read", n)
		}
		// The server's address belongs to the note: with another one it does not open.
		note.ProxyURL = "http://elsewhere"
		if _, err := note.openLeaseToken("the key of before"); err == nil {
			t.Error("the credential opens beside another proxy")
		}
		a.cfg.StateKey = "the key of before"
		if err := sweepAndStop(t, a, s); err != nil {
			t.Fatal(err)
		}
		if v := s.View(lease.TaskID); v.Runs[0].Released == nil {
			t.Errorf("not given back: %+v", v.Runs[0])
		}
	})
}

// sweepAndStop lets an adapter sweep and ask for work, and ends it.
func sweepAndStop(t *testing.T, a *Adapter, s *adaptertest.Server) error {
	t.Helper()
	ctx, end := context.WithCancel(t.Context())
	s.Pause(true)
	ended := runAsync(ctx, a)
	asked := len(s.Calls("/api/v1/leases"))
	err := s.AwaitCalls(withTimeout(t, time.Hour), "/api/v1/leases", asked+1)
	end()
	if e := ended(); e != nil {
		return e
	}
	return err
}

// startLeftover starts a process that belongs to a run by its environment.
func startLeftover(t *testing.T, run string) (pid int) {
	t.Helper()
	cmd := exec.Command("sleep", "1000")
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "PICKET_RUN_ID=" + run}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // the group of the tests is not to be killed
	if err := cmd.Start(); err != nil {                   // it has its environment when Start returns
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return cmd.Process.Pid
}

// A process is killed as one of the run only if the record is of this boot.
func TestOrphanOfAnotherBoot(t *testing.T) {
	stranger := startLeftover(t, "another")
	other := orphanedRun{lease: leaseRecord{RunID: "run_01J00000000000000000000002"}}
	other.processes.BootID = "another-boot"
	other.processes.Leader.PID, other.processes.Leader.Start = stranger, proctest.StartTime(t, stranger)
	other.processes.Shim = other.processes.Leader
	if err := other.killProcesses(); err != nil || !proctest.Alive(strconv.Itoa(stranger)) {
		t.Fatalf("a process of this boot was taken for one of another: %v", err)
	}
	other.processes.BootID = process.BootID()
	if err := other.killProcesses(); err != nil || proctest.Alive(strconv.Itoa(stranger)) {
		t.Fatalf("the very process was not killed: %v", err)
	}
}

// A tree that does not die keeps its lease: nobody may start beside it.
func TestLeaseOfALivingTreeIsNotGivenBack(t *testing.T) {
	a, s := newScriptedAdapter(t, runForever)
	lease := s.Grant(adaptertest.Task{})
	writeOrphan(t, &a.cfg, lease, process.Record{})
	found := a.cfg.lockOrphans()
	if len(found) != 1 {
		t.Fatalf("%d orphans", len(found))
	}
	// Locked by us: a second look finds nobody to sweep.
	if again := a.cfg.lockOrphans(); len(again) != 0 {
		t.Errorf("%d orphans are swept by two", len(again))
	}
	found[0].lock.Close()
	startLeftover(t, lease.RunID)
	if err := process.KillLeftovers(process.Record{}, lease.RunID, -time.Second); err == nil {
		t.Error("an end that did not come in time was taken for one")
	}
}
