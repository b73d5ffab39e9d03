package kit

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/internal/rig/moves"
)

// ReplayedAgent is what the event log alone says about an agent.
type ReplayedAgent struct {
	Status      picket.AgentStatus
	Incarnation int64
	Version     int64
}

// RegistrationKey is one registration of an agent, as the log tells it.
type RegistrationKey struct {
	Agent       string
	Incarnation int64
}

// AgentReplay is the part of the replay that follows agents. It knows who holds what
// by the order of the events alone: so it sees a lease that ends before the
// death that ends it, and a drain that is over before its last lease is.
type AgentReplay struct {
	Agents  map[string]*ReplayedAgent
	leases  map[string]RegistrationKey // by task: whose lease it is, 0 for one that was not registered
	gone    map[RegistrationKey]picket.LifecycleReason
	overdue map[string]bool // drains whose deadline was told to have passed
	latest  int64           // the highest incarnation that was ever given
	Moves   map[string]int  // by "from reason", so a test can tell that something happened
}

func newAgentReplay() *AgentReplay {
	return &AgentReplay{
		Agents:  map[string]*ReplayedAgent{},
		leases:  map[string]RegistrationKey{},
		gone:    map[RegistrationKey]picket.LifecycleReason{},
		overdue: map[string]bool{},
		Moves:   map[string]int{},
	}
}

// lifecycle applies an agent.lifecycle event; an error is a broken promise.
func (c *AgentReplay) lifecycle(ev picket.Event, d EventData) error {
	f := ev.LifecycleFields
	a := c.Agents[ev.AgentID]
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
	if to := moves.NextAgentStatus(from, reason); to == "" || to != f.NewStatus {
		return fmt.Errorf("%s may not take an agent from %s to %s", reason, from, f.NewStatus)
	}
	if d.Reason != ev.Reason || ev.Actor == "" {
		return fmt.Errorf("reason %q, in data %q; actor %q", ev.Reason, d.Reason, ev.Actor)
	}
	c.Moves[string(from)+" "+ev.Reason]++
	now := ReplayedAgent{Status: f.NewStatus, Incarnation: d.Incarnation, Version: d.Version}
	if reason == picket.ReasonRegistered || reason == picket.ReasonReRegistered {
		if now.Incarnation <= c.latest || now.Version != 1 {
			return fmt.Errorf("registered as %+v, incarnation %d was given before", now, c.latest)
		}
		c.latest = now.Incarnation
		c.Agents[ev.AgentID] = &now
		return nil
	}
	if now.Incarnation != a.Incarnation || now.Version != a.Version+1 {
		return fmt.Errorf("it becomes %+v, the log says %+v", now, a)
	}
	*a = now
	return c.checkGoneAgent(ev.AgentID, a, reason)
}

// checkGoneAgent checks what has to be true of the leases of an agent that is gone.
func (c *AgentReplay) checkGoneAgent(id string, a *ReplayedAgent, reason picket.LifecycleReason) error {
	if !a.Status.Gone() {
		return nil
	}
	it := RegistrationKey{id, a.Incarnation}
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

func (c *AgentReplay) held(it RegistrationKey) (n int) {
	for _, other := range c.leases {
		if other == it {
			n++
		}
	}
	return n
}

// drainOverdue notes that a drain came to its deadline.
func (c *AgentReplay) drainOverdue(ev picket.Event) error {
	a := c.Agents[ev.AgentID]
	if a == nil || a.Status != picket.AgentDraining || c.overdue[ev.AgentID] {
		return fmt.Errorf("its drain is overdue, the log says %+v", a)
	}
	c.overdue[ev.AgentID] = true
	return nil
}

// granted notes whose lease a task has; only who takes part may get one.
func (c *AgentReplay) granted(ev picket.Event) error {
	it := RegistrationKey{Agent: ev.AgentID}
	if a := c.Agents[ev.AgentID]; a != nil {
		if a.Status != picket.AgentActive && a.Status != picket.AgentUnhealthy {
			return fmt.Errorf("%s was granted a lease as %s", ev.AgentID, a.Status)
		}
		it.Incarnation = a.Incarnation
	}
	c.leases[ev.TaskID] = it
	return nil
}

// ended notes the end of a lease. Death and deregistration are told before the
// ends that they cause, and cause no other.
func (c *AgentReplay) ended(ev picket.Event, d EventData) error {
	it, held := c.leases[ev.TaskID]
	if !held {
		return nil
	}
	delete(c.leases, ev.TaskID)
	if ev.AgentID != "" && ev.AgentID != it.Agent {
		return fmt.Errorf("the lease of %s ended, the log says it is of %q", ev.AgentID, it.Agent)
	}
	why := map[string]picket.LifecycleReason{
		"agent_dead":         picket.ReasonHeartbeatTimeout,
		"drain_timeout":      picket.ReasonDrainTimeout,
		"agent_deregistered": picket.ReasonDeregistered,
	}[ev.Reason]
	if ev.Type != picket.EventLeaseExpired || why == "" {
		return nil
	}
	if it.Incarnation == 0 || c.gone[it] != why {
		return fmt.Errorf("a lease of %+v ended by %s, but the agent is gone by %q", it, ev.Reason, c.gone[it])
	}
	class := map[string]string{"agent_dead": "agent_dead"}[ev.Reason]
	if d.Class != cmp.Or(class, "released") {
		return fmt.Errorf("reason %s, but class %s", ev.Reason, d.Class)
	}
	return nil
}

// DiffersFrom compares the replay with the agents of a store.
func (c *AgentReplay) DiffersFrom(agents map[string]ReplayedAgent) string {
	var out []string
	for _, id := range slices.Sorted(maps.Keys(agents)) {
		if got := c.Agents[id]; got == nil || *got != agents[id] {
			out = append(out, fmt.Sprintf("agent %s is %+v, the log says %+v", id, agents[id], got))
		}
	}
	if len(c.Agents) != len(agents) {
		out = append(out, fmt.Sprintf("%d agents in the store, %d in the log", len(agents), len(c.Agents)))
	}
	return strings.Join(out, "\n")
}

// LifecycleTotals counts the transitions of agents over all checks of the model.
var LifecycleTotals = lifecycleCounts{n: map[string]int{}}

type lifecycleCounts struct {
	mu sync.Mutex
	n  map[string]int
}

func (c *AgentReplay) Count() {
	LifecycleTotals.mu.Lock()
	defer LifecycleTotals.mu.Unlock()
	for move, n := range c.Moves {
		LifecycleTotals.n[move] += n
	}
}

// Log tells how often each legal transition happened.
func (c *lifecycleCounts) Log(t *testing.T) {
	var out []string
	moves.AgentTransitions(func(from picket.AgentStatus, reason picket.LifecycleReason, _ picket.AgentStatus) {
		move := string(from) + " " + string(reason)
		out = append(out, fmt.Sprint(move, ": ", c.n[move]))
	})
	slices.Sort(out)
	t.Logf("transitions of agents: %s", strings.Join(out, ", "))
}
