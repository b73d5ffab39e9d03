package orchestrator

import (
	"fmt"

	"github.com/go-json-experiment/json"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/internal/text"
)

// describeCall describes a tool call, for the person who has to judge a loop.
func describeCall(tool, arguments string) string {
	return tool + " " + text.Shorten(arguments, 200)
}

// endedByLoop reports whether a tool call was the one that ended its run.
func (r *reply) endedByLoop() bool { return r.Err == nil && len(r.List(r.Value)) == 0 }

// loopRefusal refuses the call that ended its run, as every later one is refused.
func loopRefusal(tool string) error {
	return picket.Refuse(picket.CodeLeaseReleased, "Stop and exit: the task was taken away from this run.",
		"the same call of %s came too often in a row", tool).With("cause", string(picket.ExitStalled))
}

// nudge reads one from a run's record, nil for "".
func (r *reply) nudge(text string) *picket.Nudge {
	if text == "" {
		return nil
	}
	var n struct {
		Number int64  `json:"number"`
		Cause  string `json:"cause"`
		Reason string `json:"reason"`
		AtMs   int64  `json:"atMs"`
	}
	if err := json.Unmarshal([]byte(text), &n); err != nil {
		r.Err = fmt.Errorf("read nudge: %w", err)
		return nil
	}
	return &picket.Nudge{Number: n.Number, Cause: n.Cause, Reason: n.Reason, At: picket.Instant(n.AtMs)}
}

// nudgeCommand is a nudge as the adapter gets it.
func (r *reply) nudgeCommand(text string) []picket.Command {
	n := r.nudge(text)
	if n == nil {
		return nil
	}
	return []picket.Command{{Command: "nudge", Number: n.Number, Cause: n.Cause, Reason: n.Reason}}
}
