package sessions

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/adapter/agents"
	"github.com/picket-dev/picket/adapter/process"
)

// scriptedProcess is a coding agent that a test plays.
type scriptedProcess struct {
	out    io.Writer
	killed chan struct{}
	kill   func()
	done   chan struct{}
}

func (p *scriptedProcess) PID() int              { return 1 }
func (p *scriptedProcess) Done() <-chan struct{} { return p.done }
func (p *scriptedProcess) Exit() process.Exited  { return process.Exited{} }
func (p *scriptedProcess) Terminate()            { p.kill() }
func (p *scriptedProcess) Kill()                 { p.kill() }
func (p *scriptedProcess) Containment() string   { return "" }

// say prints words as Gemini CLI does.
func (p *scriptedProcess) say(words string) {
	fmt.Fprintf(p.out, "{\"type\":\"message\",\"role\":\"assistant\",\"content\":%q,\"delta\":true}\n", words)
}

// wait waits, and reports false if it is killed meanwhile.
func (p *scriptedProcess) wait(d time.Duration) bool {
	select {
	case <-p.killed:
		return false
	case <-time.After(d):
		return true
	}
}

type scriptedLauncher func(p *scriptedProcess)

func (l scriptedLauncher) Launch(ctx context.Context, job process.Job) (process.Process, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	p := &scriptedProcess{out: job.Stdout, killed: make(chan struct{}), done: make(chan struct{})}
	p.kill = sync.OnceFunc(func() { close(p.killed) })
	go func() {
		defer close(p.done)
		l(p)
	}()
	return p, nil
}

// virtual runs a test on the virtual clock, with a keeper whose agent is a script.
func virtual(t *testing.T, script scriptedLauncher, test func(t *testing.T, s *scriptedServer, cfg Config)) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		s, began := newScriptedServer(t), time.Now()
		test(t, s, Config{
			Server:      s,
			Incarnation: 7,
			StateDir:    dir,
			Preset:      agents.PresetGemini,
			launcher:    func([]string) process.Launcher { return script },
			clock:       func() time.Duration { return time.Since(began) + time.Hour },
		})
	})
}

func sayHello(p *scriptedProcess) { p.say("hello") }

// A prompt without output makes the session silent, until there is output.
func TestASilentPromptIsReported(t *testing.T) {
	virtual(t, func(p *scriptedProcess) {
		p.wait(20 * time.Minute)
		p.say("sorry")
		p.wait(10 * time.Minute)
	}, func(t *testing.T, s *scriptedServer, cfg Config) {
		k, _ := start(t, cfg)
		id := s.prompt(s.ids(0)[0], "think", time.Hour)
		for _, c := range []struct {
			after  time.Duration
			silent bool
			idle   time.Duration
		}{{14 * time.Minute, false, 14 * time.Minute}, {2 * time.Minute, true, 16 * time.Minute},
			{5 * time.Minute, false, time.Minute}} {
			time.Sleep(c.after)
			synctest.Wait()
			r := k.Sessions()[0]
			idle := time.Duration(*r.IdleMs) * time.Millisecond
			if r.PromptID != id || r.Silent != c.silent || (idle-c.idle).Abs() > 2*time.Second {
				t.Errorf("after %s more: %+v, idle %s", c.after, r, idle)
			}
			s.mu.Lock()
			if last := s.reports[len(s.reports)-1].Sessions[0]; last.Silent != c.silent {
				t.Errorf("reported is %+v", last)
			}
			s.mu.Unlock()
		}
		time.Sleep(time.Hour)
		s.answered(id, "sorry")
	})
}

// The list is reported at every interval, and again after a pause if that fails.
func TestTheListIsReportedAtEveryInterval(t *testing.T) {
	virtual(t, sayHello, func(t *testing.T, s *scriptedServer, cfg Config) {
		var failing atomic.Bool
		var failures atomic.Int64
		s.reportFault = func() error {
			if failing.Load() {
				failures.Add(1)
				return picket.ErrUnknown
			}
			return nil
		}
		start(t, cfg)
		time.Sleep(5*time.Minute + time.Second)
		if n := len(s.ids(0)); n != 1 {
			t.Errorf("%d sessions are reported", n)
		}
		if n := s.reported(); n != 11 {
			t.Errorf("%d reports in five minutes, want 11", n)
		}
		failing.Store(true)
		time.Sleep(10 * time.Minute)
		if n := failures.Load(); n < 15 || n > 60 {
			t.Errorf("%d attempts in ten minutes", n)
		}
		failing.Store(false)
		before := s.reported()
		time.Sleep(time.Minute)
		if s.reported() == before {
			t.Error("nothing is reported any more")
		}
	})
}

// Whichever call reports that the agent is gone: the keeper ends with that, and so do its processes.
func TestTheKeeperEndsWithItsAgent(t *testing.T) {
	for _, call := range []string{"report", "pending", "result"} {
		t.Run(call, func(t *testing.T) {
			var killed atomic.Bool
			virtual(t, func(p *scriptedProcess) { killed.Store(!p.wait(time.Hour)) },
				func(t *testing.T, s *scriptedServer, cfg Config) {
					var gone atomic.Bool
					refuse := func() error {
						if gone.Load() {
							return picket.CodeAgentGone
						}
						return nil
					}
					switch call {
					case "report":
						s.reportFault = refuse
					case "pending":
						cfg.Server = goneServer{s, refuse}
					case "result":
						s.resultFault = func(string, picket.CommandResult) (error, bool) { return refuse(), false }
					}
					k, err := New(cfg)
					if err != nil {
						t.Fatal(err)
					}
					ended := make(chan error, 1)
					go func() { ended <- k.Run(t.Context()) }()
					id := s.prompt(s.ids(0)[0], "work", time.Hour)
					s.await("the prompt is not accepted", func() bool { return len(s.results[id]) > 0 })
					synctest.Wait()
					gone.Store(true)
					s.prompt(k.Sessions()[0].SessionID, "another", time.Hour)
					if err := <-ended; !errors.Is(err, picket.CodeAgentGone) {
						t.Errorf("the keeper ended with %v", err)
					}
					if !killed.Load() {
						t.Error("the process was not killed")
					}
				})
		})
	}
}

// goneServer refuses to say what is pending.
type goneServer struct {
	*scriptedServer
	refuse func() error
}

func (s goneServer) Pending(ctx context.Context, wait time.Duration) (picket.PendingCommands, error) {
	if err := s.refuse(); err != nil {
		return picket.PendingCommands{}, err
	}
	p, err := s.scriptedServer.Pending(ctx, wait)
	return p, errors.Join(err, s.refuse())
}

// The pieces of an answer come as the agent says them, at most four a second.
func TestTheAnswerComesInPieces(t *testing.T) {
	virtual(t, func(p *scriptedProcess) {
		for range 600 {
			p.say(strings.Repeat("é", 50))
			p.wait(10 * time.Millisecond)
		}
	}, func(t *testing.T, s *scriptedServer, cfg Config) {
		start(t, cfg)
		id := s.prompt(s.ids(0)[0], "talk", time.Hour)
		s.answered(id, strings.Repeat("é", 30_000))
		s.mu.Lock()
		defer s.mu.Unlock()
		if n := len(s.results[id]); n < 15 || n > 40 {
			t.Errorf("%d pieces in six seconds", n)
		}
		var last time.Time
		for i, at := range s.resultAt[id][:len(s.resultAt[id])-1] {
			if s.results[id][i].Output == "" {
				continue
			}
			if at.Sub(last) < pieceInterval {
				t.Errorf("piece %d comes after %s", i, at.Sub(last))
			}
			last = at
		}
	})
}

// The time of a prompt does not begin with the request that has waited for it.
func TestAPromptAtTheEndOfALongPollHasItsTime(t *testing.T) {
	virtual(t, func(p *scriptedProcess) {
		p.wait(8 * time.Second)
		p.say("done")
	}, func(t *testing.T, s *scriptedServer, cfg Config) {
		start(t, cfg)
		session := s.ids(0)[0]
		time.Sleep(40 * time.Second)
		s.answered(s.prompt(session, "work", 10*time.Second), "done")
		s.mu.Lock()
		defer s.mu.Unlock()
		if len(s.polls) < 2 || s.polls[0] != pollWait || s.polls[1] != 0 {
			t.Errorf("the requests waited %v", s.polls)
		}
	})
}

// The agent sees a prompt only after the server has taken it for accepted.
func TestAPromptThatIsNotAcceptedIsNotBegun(t *testing.T) {
	for code, reason := range map[picket.Code]string{
		picket.CodeStateConflict:   "not_accepted",
		picket.CodeUnavailable:     "timeout",
		picket.CodeUnauthenticated: "timeout",
	} {
		t.Run(string(code), func(t *testing.T) {
			var begun atomic.Int64
			virtual(t, func(p *scriptedProcess) { begun.Add(1) }, func(t *testing.T, s *scriptedServer, cfg Config) {
				s.resultFault = func(_ string, r picket.CommandResult) (error, bool) {
					if r.State == picket.PromptAccepted {
						return code, false
					}
					return nil, true
				}
				k, _ := start(t, cfg)
				id := s.prompt(s.ids(0)[0], "work", time.Minute)
				time.Sleep(2 * time.Minute)
				synctest.Wait()
				if r := k.Sessions()[0]; r.State != picket.SessionIdle || begun.Load() != 0 {
					t.Errorf("%d processes were started, and the session is %s", begun.Load(), r.State)
				}
				if last, _ := s.awaitEnd(id); last.State != picket.PromptFailed || last.Reason != reason {
					t.Errorf("the prompt is %s: %s", last.State, last.Reason)
				}
			})
		})
	}
}

// A server that sends the same commands again and again is not asked without a pause.
func TestRepeatedCommandsDoNotMakeABusyLoop(t *testing.T) {
	virtual(t, sayHello, func(t *testing.T, s *scriptedServer, cfg Config) {
		s.repeat = true
		start(t, cfg)
		s.command(picket.SessionCommand{CommandID: "cmd_1", Command: "dance", SessionID: s.ids(0)[0]})
		s.command(picket.SessionCommand{CommandID: "../1", Command: picket.CommandPrompt})
		time.Sleep(10 * time.Minute)
		if last, _ := s.awaitEnd("cmd_1"); last.State != picket.PromptRefused || last.Reason != "unsupported_command" {
			t.Errorf("an unknown command is %s: %s", last.State, last.Reason)
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		if n := len(s.polls); n > 1200 {
			t.Errorf("%d requests in ten minutes", n)
		}
		if len(s.results["../1"]) > 0 {
			t.Error("a command with an impossible id gets a result")
		}
	})
}

// Commands are forgotten after a day, and earlier if there are too many.
func TestOldCommandsAreForgotten(t *testing.T) {
	virtual(t, sayHello, func(t *testing.T, s *scriptedServer, cfg Config) {
		k, end := start(t, cfg)
		session := s.ids(0)[0]
		first := s.prompt(session, "1", time.Minute)
		s.answered(first, "hello")
		time.Sleep(rememberFor - time.Hour)
		s.answered(s.prompt(session, "2", time.Minute), "hello")
		synctest.Wait()
		if k.memory.find(first) == nil {
			t.Error("a command is forgotten within a day")
		}
		time.Sleep(2 * time.Hour)
		s.answered(s.prompt(session, "3", time.Minute), "hello")
		if k.memory.find(first) != nil {
			t.Error("an old command is remembered")
		}
		if err := end(); err != nil {
			t.Fatal(err)
		}
		if left, err := os.ReadDir(k.memory.dir); err != nil || len(left) != 2 {
			t.Errorf("%d files of commands are left, %v", len(left), err)
		}
		m := &memory{dir: t.TempDir(), log: k.cfg.Log, commands: map[string]*command{}}
		for i := range remembered + 50 {
			c := m.add(picket.SessionCommand{CommandID: fmt.Sprintf("prompt_%d", i)})
			c.record.State = picket.PromptAnswered
			time.Sleep(time.Second)
		}
		m.prune(time.Now())
		if n := len(m.commands); n != remembered-1 || m.find("prompt_0") != nil || m.find("prompt_1049") == nil {
			t.Errorf("%d commands are remembered", n)
		}
	})
}

func TestAConfigurationIsChecked(t *testing.T) {
	good := Config{Server: newScriptedServer(t), Incarnation: 1, StateDir: t.TempDir(), Preset: agents.PresetClaude}
	if _, err := New(good); err != nil {
		t.Fatal(err)
	}
	for name, spoil := range map[string]func(c *Config){
		"no server":      func(c *Config) { c.Server = nil },
		"no incarnation": func(c *Config) { c.Incarnation = 0 },
		"no directory":   func(c *Config) { c.StateDir = "" },
		"no preset":      func(c *Config) { c.Preset = "" },
		"no program":     func(c *Config) { c.Preset = agents.PresetExec },
		"too many":       func(c *Config) { c.Max = picket.MaxAgentSessions + 1 },
		"a lease":        func(c *Config) { c.Env = []string{"PICKET_LEASE_TOKEN"} },
		"negative":       func(c *Config) { c.StallAfter = -1 },
		"containment":    func(c *Config) { c.Containment = "prison" },
	} {
		bad := good
		spoil(&bad)
		if _, err := New(bad); !errors.Is(err, picket.CodeValidation) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
