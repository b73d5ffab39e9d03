package doctor

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/go-json-experiment/json"

	"github.com/picket-dev/picket"
)

// loggedAgent is what the event log alone says about an agent.
type loggedAgent struct {
	status      picket.AgentStatus
	incarnation int64
	seq         int64 // of the last event about it
}

// applyAgent notes a transition; each event tells all that is compared, so it
// does not matter how far the log reaches back.
func (r *LogReplay) applyAgent(e picket.Event) error {
	var data struct {
		Incarnation int64 `json:"incarnation"`
	}
	if err := json.Unmarshal(e.Data, &data); err != nil {
		return unreadableEvent(e, err)
	}
	r.agents[e.AgentID] = loggedAgent{status: e.NewStatus, incarnation: data.Incarnation, seq: e.Seq}
	return nil
}

// violation says where an agent is not as the log says, nil when it is.
func (t loggedAgent) violation(id string, is picket.Agent, gone bool) *picket.Violation {
	differs := ""
	switch {
	case gone && t.status.Gone():
		return nil // deleted in the meantime
	case gone:
		return &picket.Violation{
			Kind:    "agent_lost",
			Subject: id,
			Detail:  "it does not exist, the log says it is " + string(t.status),
		}
	case t.status != is.Status:
		differs = fmt.Sprintf("it is %s, the log says %s", is.Status, t.status)
	case t.incarnation != is.Incarnation:
		differs = fmt.Sprintf("its incarnation is %d, the log says %d", is.Incarnation, t.incarnation)
	default:
		return nil
	}
	return &picket.Violation{Kind: "log_differs", Subject: id, Detail: fmt.Sprintf("%s (event %d)", differs, t.seq)}
}

// compareAgents holds every agent that the log knows against its record.
func (r *LogReplay) compareAgents(ctx context.Context, v *InvariantReport, say func(string, ...any)) error {
	for _, id := range slices.Sorted(maps.Keys(r.agents)) {
		found, err := r.readStable(ctx, func() int64 { return r.agents[id].seq }, func() (*picket.Violation, error) {
			told := r.agents[id]
			is, err := r.s.Agents.Get(ctx, id)
			gone := errors.Is(err, picket.CodeNotFound)
			if err != nil && !gone {
				return nil, err
			}
			return told.violation(id, is, gone), nil
		})
		if err != nil {
			return err
		}
		if found != nil {
			v.addViolations(*found)
		}
		v.agents++
		say("%d agents compared with the log", v.agents)
	}
	return nil
}

// readStable reads a record and then the log again, until that has nothing new
// about it: then the two had to be the same at the moment of reading. What never
// stands still is not a standing violation.
func (r *LogReplay) readStable(ctx context.Context, seq func() int64,
	read func() (*picket.Violation, error)) (*picket.Violation, error) {
	quiet := func(string, ...any) {}
	for range 100 {
		before := seq()
		found, err := read()
		if err != nil || found == nil {
			return nil, err
		}
		if err := r.Follow(ctx, quiet); err != nil {
			return nil, err
		}
		if seq() == before {
			return found, nil
		}
	}
	return nil, nil
}
