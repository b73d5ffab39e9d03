package picket

import (
	"cmp"

	"github.com/picket-dev/picket/budget"
)

// MaxReportNote is how many bytes of a report's summary lists show.
const MaxReportNote = 200

// RunWarnAt is the part of its timeout, or of its envelope, from which on a run is shown as one
// that needs a look.
const RunWarnAt = 0.8

// TimeoutShare is the part of its timeout that a run has used, 1 when all of it. ok is false when
// the run has no timeout.
func (l LiveLease) TimeoutShare() (share float64, ok bool) {
	if l.TimeoutSeconds == nil {
		return 0, false
	}
	return float64(l.ElapsedMs) / float64(*l.TimeoutSeconds*1000), true
}

// Used is what the task has spent, holds, or gave to its children.
func (l LiveLease) Used() budget.Envelope { return l.Spent.Add(l.Held).Add(l.Carved) }

// SpentShare is the part of its envelope that the task has used, in the dimension of which more
// is used.
func (l LiveLease) SpentShare() float64 {
	usd, tokens := l.usedParts()
	return max(usd, tokens)
}

// MostlyTokens reports whether a larger part of the tokens is used than of the dollars.
func (l LiveLease) MostlyTokens() bool {
	usd, tokens := l.usedParts()
	return tokens > usd
}

func (l LiveLease) usedParts() (usd, tokens float64) {
	part := func(used, granted int64) float64 { return float64(used) / float64(max(granted, 1)) }
	used := l.Used()
	return part(int64(used.USD), int64(l.Granted.USD)), part(used.Tokens, l.Granted.Tokens)
}

// Nudged reports whether the run was told that it seems to be stuck, and has made no report since.
func (l LiveLease) Nudged() bool {
	return l.Nudge != nil && (l.LastReport == nil || l.LastReport.At <= l.Nudge.At)
}

// NeedsALook reports whether a person may want to look at the run: it was nudged, or it has used
// most of its timeout or of its envelope.
func (l LiveLease) NeedsALook() bool { return l.Nudged() || l.usedShare() >= RunWarnAt }

func (l LiveLease) usedShare() float64 {
	share, _ := l.TimeoutShare()
	return max(share, l.SpentShare())
}

// silentMs is for how long the agent has called no tool.
func (l LiveLease) silentMs() int64 { return *cmp.Or(l.IdleMs, &l.ElapsedMs) }

// CompareRunning orders runs by what needs a look: first those that were nudged, then those that
// have used more of their timeout or envelope, then those whose agent has been silent for longer.
func CompareRunning(a, b LiveLease) int {
	switch {
	case a.Nudged() && !b.Nudged():
		return -1
	case b.Nudged() && !a.Nudged():
		return 1
	}
	return cmp.Or(cmp.Compare(b.usedShare(), a.usedShare()), cmp.Compare(b.silentMs(), a.silentMs()),
		cmp.Compare(a.StartedAt, b.StartedAt), cmp.Compare(a.RunID, b.RunID))
}
