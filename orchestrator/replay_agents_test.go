package orchestrator_test

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/picket-dev/picket"
)

// toldAgent is what the event log alone says about an agent.
type toldAgent struct {
	Status      picket.AgentStatus
	Incarnation int64
	Version     int64
}

// tenure is one registration of an agent, as the log tells it.
type tenure struct {
	agent       string
	incarnation int64
}

// crew is the part of the replay that follows agents. It knows who holds what
// by the order of the events alone: so it sees a lease that ends before the
// death that ends it, and a drain that is over before its last lease is.
type crew struct {
	agents  map[string]*toldAgent
	leases  map[string]tenure // by task: whose lease it is, 0 for one that was not registered
	gone    map[tenure]picket.LifecycleReason
	overdue map[string]bool // drains whose deadline was told to have passed
	latest  int64           // the highest incarnation that was ever given
	moves   map[string]int  // by "from reason", so a test can tell that something happened
}

func newCrew() *crew {
	return &crew{
		agents:  map[string]*toldAgent{},
		leases:  map[string]tenure{},
		gone:    map[tenure]picket.LifecycleReason{},
		overdue: map[string]bool{},
		moves:   map[string]int{},
	}
}

// lifecycle applies an agent.lifecycle event; an error is a broken promise.
func (c *crew) lifecycle(ev picket.Event, d eventData) error {
	f := ev.LifecycleFields
	a := c.agents[ev.AgentID]
	if ev.AgentID == "" || f.LifecycleAgentID != ev.AgentID || f.Timestamp != ev.At {
		return fmt.Errorf("agent %q, but agent_id %q, of %v and timestamp %v", ev.AgentID, f.LifecycleAgentID, ev.At,
			f.Timestamp)
	}
	reason := picket.LifecycleReason(ev.Reason)
	from := picket.AgentRegistering
	if a != nil {
		from = a.Status
	}
	if f.PreviousStatus != from {
		return fmt.Errorf("it says the agent was %s, the log says %+v", f.PreviousStatus, a)
	}
	if to := picket.AgentMove(from, reason); to == "" || to != f.NewStatus {
		return fmt.Errorf("%s may not take an agent from %s to %s", reason, from, f.NewStatus)
	}
	if d.Reason != ev.Reason || ev.Actor == "" {
		return fmt.Errorf("reason %q, in data %q; actor %q", ev.Reason, d.Reason, ev.Actor)
	}
	c.moves[string(from)+" "+ev.Reason]++
	now := toldAgent{Status: f.NewStatus, Incarnation: d.Incarnation, Version: d.Version}
	if reason == picket.ReasonRegistered || reason == picket.ReasonReRegistered {
		if now.Incarnation <= c.latest || now.Version != 1 {
			return fmt.Errorf("registered as %+v, incarnation %d was given before", now, c.latest)
		}
		c.latest = now.Incarnation
		c.agents[ev.AgentID] = &now
		return nil
	}
	if now.Incarnation != a.Incarnation || now.Version != a.Version+1 {
		return fmt.Errorf("it becomes %+v, the log says %+v", now, a)
	}
	*a = now
	return c.leaves(ev.AgentID, a, reason)
}

// leaves checks what has to be true of the leases of an agent that is gone.
func (c *crew) leaves(id string, a *toldAgent, reason picket.LifecycleReason) error {
	if !a.Status.Gone() {
		return nil
	}
	it := tenure{id, a.Incarnation}
	c.gone[it] = reason
	held := c.held(it)
	switch {
	case reason == picket.ReasonDrainCompleted && held > 0:
		return fmt.Errorf("the drain of %s is complete with %d leases", id, held)
	case reason == picket.ReasonDrainTimeout && (held == 0 || !c.overdue[id]):
		return fmt.Errorf("the drain of %s timed out with %d leases; told before: %v", id, held, c.overdue[id])
	}
	delete(c.overdue, id)
	return nil
}

func (c *crew) held(it tenure) (n int) {
	for _, other := range c.leases {
		if other == it {
			n++
		}
	}
	return n
}

// drainOverdue notes that a drain came to its deadline.
func (c *crew) drainOverdue(ev picket.Event) error {
	a := c.agents[ev.AgentID]
	if a == nil || a.Status != picket.AgentDraining || c.overdue[ev.AgentID] {
		return fmt.Errorf("its drain is overdue, the log says %+v", a)
	}
	c.overdue[ev.AgentID] = true
	return nil
}

// granted notes whose lease a task has; only who takes part may get one.
func (c *crew) granted(ev picket.Event) error {
	it := tenure{agent: ev.AgentID}
	if a := c.agents[ev.AgentID]; a != nil {
		if a.Status != picket.AgentActive && a.Status != picket.AgentUnhealthy {
			return fmt.Errorf("%s was granted a lease as %s", ev.AgentID, a.Status)
		}
		it.incarnation = a.Incarnation
	}
	c.leases[ev.TaskID] = it
	return nil
}

// ended notes the end of a lease. Death and deregistration are told before the
// ends that they cause, and cause no other.
func (c *crew) ended(ev picket.Event, d eventData) error {
	it, held := c.leases[ev.TaskID]
	if !held {
		return nil
	}
	delete(c.leases, ev.TaskID)
	if ev.AgentID != "" && ev.AgentID != it.agent {
		return fmt.Errorf("the lease of %s ended, the log says it is of %q", ev.AgentID, it.agent)
	}
	why := map[string]picket.LifecycleReason{
		"agent_dead":         picket.ReasonHeartbeatTimeout,
		"drain_timeout":      picket.ReasonDrainTimeout,
		"agent_deregistered": picket.ReasonDeregistered,
	}[ev.Reason]
	if ev.Type != picket.EventLeaseExpired || why == "" {
		return nil
	}
	if it.incarnation == 0 || c.gone[it] != why {
		return fmt.Errorf("a lease of %+v ended by %s, but the agent is gone by %q", it, ev.Reason, c.gone[it])
	}
	class := map[string]string{"agent_dead": "agent_dead"}[ev.Reason]
	if d.Class != cmp.Or(class, "released") {
		return fmt.Errorf("reason %s, but class %s", ev.Reason, d.Class)
	}
	return nil
}

// differsFrom compares the replay with the agents of a store.
func (c *crew) differsFrom(agents map[string]toldAgent) string {
	var out []string
	for _, id := range slices.Sorted(maps.Keys(agents)) {
		if got := c.agents[id]; got == nil || *got != agents[id] {
			out = append(out, fmt.Sprintf("agent %s is %+v, the log says %+v", id, agents[id], got))
		}
	}
	if len(c.agents) != len(agents) {
		out = append(out, fmt.Sprintf("%d agents in the store, %d in the log", len(agents), len(c.agents)))
	}
	return strings.Join(out, "\n")
}

// lifecycles counts the transitions of agents over all checks of the model.
var lifecycles = census{n: map[string]int{}}

type census struct {
	mu sync.Mutex
	n  map[string]int
}

func (c *crew) count() {
	lifecycles.mu.Lock()
	defer lifecycles.mu.Unlock()
	for move, n := range c.moves {
		lifecycles.n[move] += n
	}
}

// log tells how often each legal transition happened.
func (c *census) log(t *testing.T) {
	var out []string
	picket.AgentMoves(func(from picket.AgentStatus, reason picket.LifecycleReason, _ picket.AgentStatus) {
		move := string(from) + " " + string(reason)
		out = append(out, fmt.Sprint(move, ": ", c.n[move]))
	})
	slices.Sort(out)
	t.Logf("transitions of agents: %s", strings.Join(out, ", "))
}
