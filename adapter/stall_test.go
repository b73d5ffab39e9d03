package adapter

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/adapter/adaptertest"
	"github.com/picket-dev/picket/adapter/process"
	"github.com/picket-dev/picket/internal/rig"
)

// runBusy is an agent that does something every so often for some time.
func runBusy(every, lasts time.Duration, act func(p *scriptedProcess, n int)) scriptedLauncher {
	return func(p *scriptedProcess) {
		end := time.After(lasts)
		for n := 0; ; n++ {
			select {
			case <-p.done:
				return
			case <-end:
				p.endWith(process.Exited{})
				return
			case <-time.After(every):
				act(p, n)
			}
		}
	}
}

func prints(p *scriptedProcess, n int) { fmt.Fprintln(p.job.Stdout, n) }

// reports is a sign of life that only the store sees.
func reports(s **adaptertest.Server) func(p *scriptedProcess, n int) {
	return func(p *scriptedProcess, n int) {
		NewProxy(p.job.Lease, "", (*s).HTTPClient()).
			Report(context.Background(), picket.Progress{Summary: fmt.Sprint(n)})
	}
}

// runWithStall invokes an agent with stallAfterSeconds 60, in the server given to it.
func runWithStall(t *testing.T, play func(s **adaptertest.Server) scriptedLauncher,
	change ...func(*Config, *observedRun,
		*adaptertest.Server)) (*observedRun, adaptertest.RunView, *adaptertest.Server) {
	t.Helper()
	var s *adaptertest.Server
	change = append(change, func(_ *Config, _ *observedRun, in *adaptertest.Server) { s = in })
	v, run := runObserved(t, adaptertest.Task{Stall: time.Minute}, play(&s), change...)
	return v, run, s
}

// toldWithoutTicks leaves out heartbeats.
func (v *observedRun) toldWithoutTicks() (out []string) {
	for _, line := range v.told {
		if !strings.HasPrefix(line, "agent-heartbeat") {
			out = append(out, line)
		}
	}
	return out
}

// Silence for stall_after is one nudge; as long again is the end.
func TestSilenceIsNudgedThenEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var nudge []byte
		v, run, _ := runWithStall(t, func(**adaptertest.Server) scriptedLauncher {
			return func(p *scriptedProcess) {
				time.Sleep(61 * time.Second)
				file := ""
				for _, kv := range p.job.Env {
					if path, ok := strings.CutPrefix(kv, "PICKET_TASK_FILE="); ok {
						file = path
					}
				}
				nudge, _ = os.ReadFile(filepath.Join(filepath.Dir(file), "nudge.json"))
				<-p.done
			}
		})
		wantTold(t, "silent", v.toldWithoutTicks(), []string{"nudged 60.0", "stalled 120.0"})
		if v.err != nil || v.result.Ending != EndReleased || run.Released == nil ||
			run.Released.Class != picket.ExitStalled {
			t.Fatalf("%+v, %v", v.result, v.err)
		}
		if !strings.Contains(run.Released.Detail, "nor after a nudge") {
			t.Errorf("detail %q", run.Released.Detail)
		}
		if n := count(run.Events, picket.EventRunStalled); n != 1 {
			t.Errorf("%d nudges were logged", n)
		}
		var file NudgeFile
		if err := json.Unmarshal(nudge, &file); err != nil || file.Cause != picket.NudgeSilent || file.Reason == "" ||
			file.At.IsZero() {
			t.Errorf("nudge.json %s: %v", nudge, err)
		}
	})
}

// Output and tool calls are signs of life. For tool calls the store is asked,
// once for each silence that has become long, and not in between.
func TestSignsOfLife(t *testing.T) {
	for _, tt := range []struct {
		name     string
		play     func(s **adaptertest.Server) scriptedLauncher
		renewals int // at most
	}{
		{"output", func(**adaptertest.Server) scriptedLauncher { return runBusy(59*time.Second, time.Hour, prints) },
			21},
		{"tool calls", func(s **adaptertest.Server) scriptedLauncher {
			return runBusy(30*time.Second, time.Hour, reports(s))
		},
			121},
	} {
		synctest.Test(t, func(t *testing.T) {
			v, run, _ := runWithStall(t, tt.play)
			wantTold(t, tt.name, v.toldWithoutTicks(), nil)
			if run.Renewals > tt.renewals {
				t.Errorf("%s: renewed %d times, at most %d are needed", tt.name, run.Renewals, tt.renewals)
			}
		})
	}
}

// A sign of life after a nudge begins the silence again.
func TestNudgeThatHelps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v, _, _ := runWithStall(t, func(**adaptertest.Server) scriptedLauncher {
			return func(p *scriptedProcess) {
				time.Sleep(100 * time.Second)
				prints(p, 1)
				time.Sleep(100 * time.Second)
				prints(p, 2)
				<-p.done
			}
		})
		wantTold(t, "helped twice", v.toldWithoutTicks(),
			[]string{"nudged 60.0", "nudged 160.0", "nudged 260.0", "stalled 320.0"})
	})
}

// While the store cannot be asked nobody is called silent; the lease's own
// deadline is still good.
func TestSilenceWhileTheProxyIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v, run, _ := runWithStall(t, func(**adaptertest.Server) scriptedLauncher { return runForever },
			func(_ *Config, _ *observedRun, s *adaptertest.Server) {
				time.AfterFunc(30*time.Second, func() {
					restore := s.Fail("/v1/", adaptertest.Unavailable, -1)
					time.AfterFunc(290*time.Second, restore)
				})
			})
		wantTold(t, "away", v.toldWithoutTicks(), nil)
		if v.result.Exit.Class != picket.ExitLeaseLost || run.ExitReport == nil {
			t.Errorf("%+v", v.result)
		}
	})
}

// Time in suspend is not silence.
func TestSuspendIsNoSilence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v, _, _ := runWithStall(t, func(**adaptertest.Server) scriptedLauncher { return runForever },
			func(_ *Config, v *observedRun, _ *adaptertest.Server) {
				time.AfterFunc(50500*time.Millisecond, func() { v.suspend.Store(int64(100 * time.Second)) })
			})
		wantTold(t, "suspended for 100 s", v.toldWithoutTicks(), []string{"nudged 211.0", "stalled 271.0"})
	})
}

// An agent whose processes are all stopped is killed after 10 s, whatever stall_after is. A shorter
// stop has no effect.
func TestHungAgentIsEnded(t *testing.T) {
	for _, tt := range []struct {
		stopped time.Duration
		hung    bool
	}{{time.Hour, true}, {8 * time.Second, false}} {
		synctest.Test(t, func(t *testing.T) {
			var p *scriptedProcess
			play := func(made *scriptedProcess) {
				p = made
				time.Sleep(20 * time.Second)
				for range 2 { // two short stops are not one long one
					p.stopped.Store(true)
					select {
					case <-time.After(tt.stopped):
					case <-p.done:
						return
					}
					p.stopped.Store(false)
					time.Sleep(5 * time.Second)
				}
				p.endWith(process.Exited{})
			}
			v, run := runObserved(t, adaptertest.Task{OnExit: picket.OnExitComplete}, play)
			if !tt.hung {
				wantTold(t, "stopped for a while", v.toldWithoutTicks(), nil)
				return
			}
			if len(v.toldWithoutTicks()) != 1 || len(p.signals) != 1 || p.signals[0] != "KILL" || run.Released == nil ||
				run.Released.Class != picket.ExitStalled {
				t.Fatalf("%v, %v, %+v", v.toldWithoutTicks(), p.signals, run.Released)
			}
			if took := time.Since(v.start); took < 30*time.Second || took > 34*time.Second {
				t.Errorf("ended after %s", took)
			}
		})
	}
}

// A nudge of the store arrives by watch and with every renewal, and counts once.
func TestNudgeFromTheServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		loop := picket.Command{Command: "nudge", Number: 1, Cause: picket.NudgeLoop, Reason: "the same call"}
		v, _ := runObserved(t, adaptertest.Task{}, runFor(10*time.Minute),
			func(_ *Config, v *observedRun, s *adaptertest.Server) {
				for _, at := range []time.Duration{45 * time.Second, time.Minute, 2 * time.Minute} {
					time.AfterFunc(at, func() { s.Command(v.task, loop) })
				}
				time.AfterFunc(3*time.Minute+time.Second, func() {
					loop.Number = 2
					s.Command(v.task, loop)
				})
			})
		wantTold(t, "nudges", v.toldWithoutTicks(), []string{"nudged 45.0", "nudged 181.0"})
	})
}

// Without stall_after nobody is nudged.
func TestNoStallAfter(t *testing.T) {
	rig.SkipShort(t)
	synctest.Test(t, func(t *testing.T) {
		v, _ := runObserved(t, adaptertest.Task{}, runFor(24*time.Hour))
		wantTold(t, "no stall_after", v.toldWithoutTicks(), nil)
	})
}

var _ process.Observer = (*scriptedProcess)(nil)

// Stopped says what a test has set.
func (p *scriptedProcess) Stopped() bool { return p.stopped.Load() }
