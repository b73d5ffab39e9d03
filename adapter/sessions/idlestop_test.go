package sessions

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/adapter/agents"
)

// idleAgent is an agent whose process takes a second to end.
type idleAgent struct {
	t *testing.T

	mu      sync.Mutex
	ends    []time.Time // when its process was ended
	closing bool
}

func (a *idleAgent) access(picket.SessionCommand) access { return access{} }

func (a *idleAgent) prompt(_ context.Context, p prompt) outcome {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closing {
		a.t.Error("a prompt begins while the process is being ended")
	}
	p.answer("well")
	return outcome{}
}

func (a *idleAgent) close() {
	a.set(true)
	time.Sleep(time.Second)
	a.set(false)
}

func (a *idleAgent) set(closing bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closing = closing; closing {
		a.ends = append(a.ends, time.Now())
	}
}

func (a *idleAgent) ended() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.ends)
}

// idleKeeper runs a test on the virtual clock with a session whose process is ended after ten minutes.
func idleKeeper(t *testing.T, idleStop time.Duration,
	test func(t *testing.T, s *scriptedServer, session string, a *idleAgent)) {
	virtual(t, nil, func(t *testing.T, s *scriptedServer, cfg Config) {
		cfg.Preset, cfg.Command, cfg.IdleStop = agents.PresetExec, []string{"agent"}, idleStop
		k, _ := start(t, cfg)
		session, a := s.ids(0)[0], &idleAgent{t: t}
		k.find(session).agent = a
		test(t, s, session, a)
	})
}

// The time without a prompt counts from the end of the last one. Each prompt begins it again.
func TestAProcessIsEndedWhenItIsIdle(t *testing.T) {
	idleKeeper(t, 10*time.Minute, func(t *testing.T, s *scriptedServer, session string, a *idleAgent) {
		time.Sleep(time.Hour)
		if n := a.ended(); n != 0 {
			t.Errorf("it was ended %d times before its first prompt", n)
		}
		for range 3 {
			s.answered(s.prompt(session, "hello", time.Hour), "well")
			time.Sleep(9 * time.Minute)
		}
		synctest.Wait()
		if n := a.ended(); n != 0 {
			t.Errorf("it was ended %d times between prompts", n)
		}
		time.Sleep(61 * time.Second)
		synctest.Wait()
		if n := a.ended(); n != 1 {
			t.Errorf("it was ended %d times", n)
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		if n := a.ended(); n != 1 {
			t.Errorf("it was ended %d times without a prompt", n)
		}
	})
}

// A prompt that comes while the process is being ended waits for that.
func TestAPromptWaitsForTheEndOfAnIdleProcess(t *testing.T) {
	idleKeeper(t, 10*time.Minute, func(t *testing.T, s *scriptedServer, session string, a *idleAgent) {
		for range 3 {
			s.answered(s.prompt(session, "hello", time.Hour), "well")
			time.Sleep(10*time.Minute + time.Millisecond)
			synctest.Wait()
		}
		if n := a.ended(); n != 3 {
			t.Errorf("it was ended %d times", n)
		}
	})
}

// Without the setting a process is never ended.
func TestAnIdleProcessStays(t *testing.T) {
	idleKeeper(t, 0, func(t *testing.T, s *scriptedServer, session string, a *idleAgent) {
		s.answered(s.prompt(session, "hello", time.Hour), "well")
		time.Sleep(240 * time.Hour)
		synctest.Wait()
		if n := a.ended(); n != 0 {
			t.Errorf("it was ended %d times", n)
		}
	})
}
