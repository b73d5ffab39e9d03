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
)

// busy is an agent that does something every so often for some time.
func busy(every, lasts time.Duration, act func(p *puppet, n int)) puppets {
	return func(p *puppet) {
		end := time.After(lasts)
		for n := 0; ; n++ {
			select {
			case <-p.done:
				return
			case <-end:
				p.exits(Exited{})
				return
			case <-time.After(every):
				act(p, n)
			}
		}
	}
}

func prints(p *puppet, n int) { fmt.Fprintln(p.job.Stdout, n) }

// reports is a sign of life that only the store sees.
func reports(s **adaptertest.Server) func(p *puppet, n int) {
	return func(p *puppet, n int) {
		NewProxy(p.job.Lease, "", (*s).HTTPClient()).
			Report(context.Background(), picket.Progress{Summary: fmt.Sprint(n)})
	}
}

// stallOf invokes an agent with stallAfterSeconds 60, in the server given to it.
func stallOf(t *testing.T, play func(s **adaptertest.Server) puppets,
	change ...func(*Config, *invocation, *adaptertest.Server)) (*invocation, adaptertest.RunView, *adaptertest.Server) {
	t.Helper()
	var s *adaptertest.Server
	change = append(change, func(_ *Config, _ *invocation, in *adaptertest.Server) { s = in })
	v, run := invoke(t, adaptertest.Task{Stall: time.Minute}, play(&s), change...)
	return v, run, s
}

// unheard leaves out heartbeats.
func (v *invocation) unheard() (out []string) {
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
		v, run, _ := stallOf(t, func(**adaptertest.Server) puppets {
			return func(p *puppet) {
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
		wants(t, "silent", v.unheard(), []string{"nudged 60.0", "stalled 120.0"})
		if v.err != nil || v.result.Ending != EndReleased || run.Released == nil ||
			run.Released.Class != picket.ExitStalled {
			t.Fatalf("%+v, %v", v.result, v.err)
		}
		if !strings.Contains(run.Released.Detail, "nor after a nudge") {
			t.Errorf("detail %q", run.Released.Detail)
		}
		if n := count(run.Events, picket.EventRunStalled); n != 1 {
			t.Errorf("the log was told of %d nudges", n)
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
		play     func(s **adaptertest.Server) puppets
		renewals int // at most
	}{
		{"output", func(**adaptertest.Server) puppets { return busy(59*time.Second, time.Hour, prints) }, 21},
		{"tool calls", func(s **adaptertest.Server) puppets { return busy(30*time.Second, time.Hour, reports(s)) },
			121},
	} {
		synctest.Test(t, func(t *testing.T) {
			v, run, _ := stallOf(t, tt.play)
			wants(t, tt.name, v.unheard(), nil)
			if run.Renewals > tt.renewals {
				t.Errorf("%s: renewed %d times, at most %d are needed", tt.name, run.Renewals, tt.renewals)
			}
		})
	}
}

// A sign of life after a nudge begins the silence anew.
func TestNudgeThatHelps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v, _, _ := stallOf(t, func(**adaptertest.Server) puppets {
			return func(p *puppet) {
				time.Sleep(100 * time.Second)
				prints(p, 1)
				time.Sleep(100 * time.Second)
				prints(p, 2)
				<-p.done
			}
		})
		wants(t, "helped twice", v.unheard(), []string{"nudged 60.0", "nudged 160.0", "nudged 260.0", "stalled 320.0"})
	})
}

// While the store cannot be asked nobody is called silent; the lease's own
// deadline is still good.
func TestSilenceWhileTheProxyIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v, run, _ := stallOf(t, func(**adaptertest.Server) puppets { return forever },
			func(_ *Config, _ *invocation, s *adaptertest.Server) {
				time.AfterFunc(30*time.Second, func() {
					mend := s.Fail("/v1/", adaptertest.Unavailable, -1)
					time.AfterFunc(290*time.Second, mend)
				})
			})
		wants(t, "away", v.unheard(), nil)
		if v.result.Exit.Class != picket.ExitLeaseLost || run.Evidence == nil {
			t.Errorf("%+v", v.result)
		}
	})
}

// Time in suspend is no silence.
func TestSuspendIsNoSilence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v, _, _ := stallOf(t, func(**adaptertest.Server) puppets { return forever },
			func(_ *Config, v *invocation, _ *adaptertest.Server) {
				time.AfterFunc(50500*time.Millisecond, func() { v.suspend.Store(int64(100 * time.Second)) })
			})
		wants(t, "suspended for 100 s", v.unheard(), []string{"nudged 211.0", "stalled 271.0"})
	})
}

// An agent whose processes are all stopped is killed after 10 s, whatever
// stall_after says; a shorter stop is none of our business.
func TestHungAgentIsEnded(t *testing.T) {
	for _, tt := range []struct {
		stopped time.Duration
		hung    bool
	}{{time.Hour, true}, {8 * time.Second, false}} {
		synctest.Test(t, func(t *testing.T) {
			var p *puppet
			play := func(made *puppet) {
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
				p.exits(Exited{})
			}
			v, run := invoke(t, adaptertest.Task{OnExit: picket.OnExitComplete}, play)
			if !tt.hung {
				wants(t, "stopped for a while", v.unheard(), nil)
				return
			}
			if len(v.unheard()) != 1 || len(p.got) != 1 || p.got[0] != "KILL" || run.Released == nil ||
				run.Released.Class != picket.ExitStalled {
				t.Fatalf("%v, %v, %+v", v.unheard(), p.got, run.Released)
			}
			if took := time.Since(v.start); took < 30*time.Second || took > 34*time.Second {
				t.Errorf("ended after %s", took)
			}
		})
	}
}

// A nudge of the store arrives by watch and with every renewal, and counts once.
func TestNudgeOfTheStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		loop := picket.Command{Command: "nudge", Number: 1, Cause: picket.NudgeLoop, Reason: "the same call"}
		v, _ := invoke(t, adaptertest.Task{}, lasting(10*time.Minute),
			func(_ *Config, v *invocation, s *adaptertest.Server) {
				for _, at := range []time.Duration{45 * time.Second, time.Minute, 2 * time.Minute} {
					time.AfterFunc(at, func() { s.Command(v.task, loop) })
				}
				time.AfterFunc(3*time.Minute+time.Second, func() {
					loop.Number = 2
					s.Command(v.task, loop)
				})
			})
		wants(t, "nudges", v.unheard(), []string{"nudged 45.0", "nudged 181.0"})
	})
}

// Without stall_after nobody is nudged.
func TestNoStallAfter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v, _ := invoke(t, adaptertest.Task{}, lasting(24*time.Hour))
		wants(t, "no stall_after", v.unheard(), nil)
	})
}

var _ Observer = (*puppet)(nil)

// Stopped says what a test has set.
func (p *puppet) Stopped() bool { return p.stopped.Load() }
