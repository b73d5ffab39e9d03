package kit

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/picket-dev/picket"
)

// OtherOperator is an operator who has registered nothing.
var OtherOperator = picket.Caller{Actor: "key_operator", Operator: true}

var DrainChange = picket.AgentStatusChange{Status: picket.AgentDraining}

// AgentOwner is the key that registers agents in these tests.
var AgentOwner = picket.Caller{Actor: "key_owner"}

func (f *Fixture) MustRegister(t *testing.T, reg picket.Registration) picket.Agent {
	t.Helper()
	a, err := f.Register(f.Ctx, AgentOwner, reg)
	OK(t, err)
	return a
}

// AcquireAsOwner leases one task to a registered agent, by its own key.
func (f *Fixture) AcquireAsOwner(t *testing.T, id string) picket.Lease {
	t.Helper()
	leases, err := f.Acquire(f.Ctx, AgentOwner, picket.AcquireRequest{AgentID: id})
	OK(t, err)
	if len(leases) != 1 {
		t.Fatalf("acquired %d leases, want 1", len(leases))
	}
	return leases[0]
}

func (f *Fixture) MustHeartbeat(t *testing.T, id string) picket.HeartbeatAnswer {
	t.Helper()
	got, err := f.Heartbeat(f.Ctx, AgentOwner, id, ActiveHeartbeat())
	OK(t, err)
	return got
}

// ActiveHeartbeat is the heartbeat of an agent that is well.
func ActiveHeartbeat() picket.Heartbeat {
	return picket.Heartbeat{Status: picket.AgentActive, ClientTimestamp: picket.InstantOf(time.Now())}
}

// FloodHeartbeats posts n heartbeats with ids of their own.
func (f *Fixture) FloodHeartbeats(t *testing.T, h picket.LeaseCredential, name string, n int) {
	t.Helper()
	for done := 0; done < n; done += 100 {
		var list []picket.RunEvent
		for i := range min(100, n-done) {
			list = append(list, picket.RunEvent{
				Type: picket.EventAgentHeartbeat,
				ID:   fmt.Sprintf("%s%d", name, done+i),
			})
		}
		OK(t, f.RunEvents(f.Ctx, h, list))
	}
}

// EndBudgetMinute ends the minute, so that what was only counted is told.
func (f *Fixture) EndBudgetMinute(t *testing.T) {
	t.Helper()
	f.JumpStoreTime(t, time.Minute)
	OK(t, f.Tick(f.Ctx))
}

// resultTaker takes what became of commands for agent sessions.
type resultTaker interface {
	CommandResult(ctx context.Context, by picket.Caller, agentID, commandID string,
		result picket.CommandResult) (picket.ResultTaken, error)
}

// SendResult sends what became of a prompt, for tests that ask for no task.
func SendResult(ctx context.Context, to resultTaker, by picket.Caller, agentID, commandID string,
	result picket.CommandResult) error {
	_, err := to.CommandResult(ctx, by, agentID, commandID, result)
	return err
}
