package adapter

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/picket-dev/picket/adapter/adaptertest"
	"github.com/picket-dev/picket/adapter/process"
)

// failingLauncher is a launcher whose agents do not start, and fail late.
type failingLauncher struct {
	begun chan struct{}
	fail  chan struct{}
}

func (l failingLauncher) Launch(context.Context, process.Job) (process.Process, error) {
	select {
	case <-l.begun:
	default:
		close(l.begun)
	}
	<-l.fail
	return nil, errors.New("the shim does not answer")
}

// What was never launched holds up no registration, however long it takes to
// report it.
func TestFailedLaunchDoesNotDelayRegistration(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := failingLauncher{make(chan struct{}), make(chan struct{})}
		a, s := newScriptedAdapter(t, nil, func(c *Config) { c.Launcher = l })
		s.Queue(adaptertest.Task{Retries: 9})
		ctx, drain := context.WithCancel(t.Context())
		ended := runAsync(ctx, a)
		<-l.begun
		restore := s.Fail("/v1/lease/", adaptertest.Hang, -1)
		s.Kill(a.AgentID())
		time.Sleep(time.Minute) // it has heard so
		began := time.Now()
		close(l.fail)
		if _, err := s.AwaitAgent(withTimeout(t, 10*time.Minute), "", registered(2)); err != nil {
			t.Error(err)
		}
		if d := time.Since(began); d > time.Second {
			t.Errorf("registered after %v", d)
		}
		restore()
		drain()
		if err := ended(); err != nil {
			t.Log(err)
		}
	})
}
