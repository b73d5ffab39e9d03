package orchestrator

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/budget"
	"github.com/picket-dev/picket/orchestrator/store"
)

// countedSets are the sets whose sizes stats.lua is asked for, in order.
var countedSets = func() (sets []any) {
	for _, s := range picket.TaskStates {
		sets = append(sets, "by-state:"+string(s))
	}
	for _, s := range picket.AgentStatuses {
		sets = append(sets, "roster:"+string(s))
	}
	for _, k := range picket.HandoffKinds {
		sets = append(sets, "open-by-kind:"+string(k))
	}
	return sets
}()

// Stats counts a namespace. It reads only, so an error has changed nothing. The counts beside an error are zero or
// incomplete.
func (e *Engine) Stats(ctx context.Context) (picket.Stats, error) {
	asked := time.Now()
	r := e.run(ctx, "stats", append([]any{e.dailyLimitArg()}, countedSets...)...)
	answered := time.Now()
	var v statsReply
	r.Decode(&v)
	s := v.Stats
	s.Namespace = e.namespace
	s.SinceTickMs = v.Raw - int64(v.LastTick)
	s.Pause = v.Stop.state()
	s.ClockOffsetMs = clockOffset(v.Raw, asked, answered)
	s.Activity = activityOf(v.Slots, v.Raw)
	s.Memory = picket.MemoryStats{Bytes: v.Bytes, MeasuredAt: picket.Instant(v.MeasuredAt)}
	s.Memory.StoreUsed, s.Memory.StoreMax = store.ParseMemoryInfo(v.MemoryInfo)
	rest := v.Counts
	s.Tasks, rest = readCounts(rest, picket.TaskStates)
	s.Agents, rest = readCounts(rest, picket.AgentStatuses)
	s.HandoffKinds, _ = readCounts(rest, picket.HandoffKinds)
	s.Reviews = s.Tasks[picket.TaskReview]
	s.DailyEnvelope = v.Day
	countSums(&s, v.Sums)
	s.Webhooks = map[picket.WebhookState]int64{}
	for targets := v.Targets; len(targets) > 1; targets = targets[2:] {
		state := picket.WebhookState(targets[0])
		s.Webhooks[state]++
		if state == picket.WebhookActive {
			s.WebhookLag = max(s.WebhookLag, store.ParseInt(targets[1]))
		}
	}
	return s, r.Err
}

// statsReply is what the script stats answers: figures of the namespace under their
// own names, and what the others are made of. Times are ms.
type statsReply struct {
	picket.Stats
	Raw        int64                 `reply:"raw"` // the server's own clock
	Stop       pauseView             `reply:"stop"`
	Counts     []int64               `reply:"counts"` // of countedSets
	Day        *picket.DailyEnvelope `reply:"day"`
	Sums       map[string]string     `reply:"sums"`        // figures over the life of the namespace
	Targets    []string              `reply:"targets"`     // state and events behind of each webhook
	Slots      map[string]string     `reply:"slots"`       // counts by "slot figure"
	MemoryInfo string                `reply:"memory_info"` // what the server says of its own
	Bytes      int64                 `reply:"bytes"`       // of the namespace
	MeasuredAt int64                 `reply:"measured_at"`
}

// clockOffset is how far the store's clock is ahead, in ms, as if it had been
// read half way between question and answer.
func clockOffset(raw int64, asked, answered time.Time) int64 {
	return raw - asked.Add(answered.Sub(asked)/2).UnixMilli()
}

// readCounts reads a number for each name, and returns what follows them.
func readCounts[T ~string](counts []int64, of []T) (map[T]int64, []int64) {
	n := make(map[T]int64, len(of))
	for i, name := range of {
		if i < len(counts) {
			n[name] = counts[i]
		}
	}
	return n, counts[min(len(of), len(counts)):]
}

// countSums reads the figures that are counted over the life of a namespace.
func countSums(s *picket.Stats, sums map[string]string) {
	s.Money = picket.MoneyStats{
		Spent:      amountColumn(sums, "spent"),
		Returned:   amountColumn(sums, "returned"),
		Held:       notNegative(amountColumn(sums, "held")),
		Unverified: amountColumn(sums, "unverified"),
	}
	s.Expired, s.Wakes = map[picket.ExitClass]int64{}, map[picket.WakeReason]int64{}
	for figure, n := range sums {
		if class, ok := strings.CutPrefix(figure, "expired:"); ok {
			s.Expired[picket.ExitClass(class)] = store.ParseInt(n)
		}
		if reason, ok := strings.CutPrefix(figure, "wakes:"); ok {
			s.Wakes[picket.WakeReason(reason)] = store.ParseInt(n)
		}
	}
}

// activityOf reads the slots of the hour up to now, the server's own clock in ms.
// What a clock that has stepped left beyond either end is not of it.
func activityOf(counts map[string]string, now int64) []picket.ActivitySlot {
	slots := map[int64]*picket.ActivitySlot{}
	for field, n := range counts {
		slot, figure, _ := strings.Cut(field, " ")
		at := store.ParseInt(slot)
		if behind := now/picket.ActivitySlotMs - at; behind < 0 || behind >= picket.ActivitySlots {
			continue
		}
		if slots[at] == nil {
			slots[at] = &picket.ActivitySlot{
				At:      picket.Instant(at * picket.ActivitySlotMs),
				Refused: map[picket.Code]int64{},
			}
		}
		addActivity(slots[at], figure, store.ParseInt(n))
	}
	activity := []picket.ActivitySlot{}
	for _, at := range slices.Sorted(maps.Keys(slots)) {
		activity = append(activity, *slots[at])
	}
	return activity
}

func addActivity(s *picket.ActivitySlot, figure string, n int64) {
	switch code, refused := strings.CutPrefix(figure, "refused:"); {
	case refused:
		s.Refused[picket.Code(code)] = n
	case figure == "ended":
		s.Ended = n
	case figure == "failed":
		s.Failed = n
	case figure == "asked":
		s.Asked = n
	}
}

// notNegative is for what calls from before the count began take out of it.
func notNegative(e budget.Envelope) budget.Envelope {
	return budget.Envelope{Tokens: max(0, e.Tokens), USD: max(0, e.USD)}
}

// measurePause is the time between two passes of [Engine.Measure] over the keys
// of a namespace.
const measurePause = 30 * time.Second

// MeasureMemory adds up the memory of the next keys of the namespace, among about
// limit keys of the store, and returns how many it measured. Where it goes on is
// kept in the store, so all processes make one pass together.
func (e *Engine) MeasureMemory(ctx context.Context, limit int) (int, error) {
	return e.runCount(ctx, "measure", limit, measurePause.Milliseconds())
}

// LeaseMetrics is what this process has done in one namespace since it began.
type LeaseMetrics struct {
	Grants   int64
	Renewals int64
	// PickUp are the seconds from when a task could first run, submitted and its
	// start come, to its first lease.
	PickUp store.Distribution
	// QueueWait is the same by the role of the task.
	QueueWait map[string]store.Distribution
	// Renew are the seconds that renewals took, LeaseLeft the part of the window
	// that was left when they came, 0 to 1. The first one of a lease is not part of
	// LeaseLeft: it only confirms the grant.
	Renew     store.Distribution
	LeaseLeft store.Distribution
}

type leaseMetrics struct {
	grants    atomic.Int64
	renewals  atomic.Int64
	pickUp    *store.Histogram
	queueWait *roleHistograms
	renew     *store.Histogram
	leaseLeft *store.Histogram
}

func newLeaseMetrics() *leaseMetrics {
	return &leaseMetrics{
		pickUp:    store.NewHistogram(waitSecondsBounds...),
		queueWait: newRoleHistograms(waitSecondsBounds),
		renew:     store.NewHistogram(.001, .002, .005, .02, .1, .5, 2),
		leaseLeft: store.NewHistogram(.05, .1, .2, .3, .4, .5, .7, .9),
	}
}

// LeaseMetrics shows the counters of this process.
func (e *Engine) LeaseMetrics() LeaseMetrics {
	a := e.metrics
	return LeaseMetrics{
		Grants:    a.grants.Load(),
		Renewals:  a.renewals.Load(),
		PickUp:    a.pickUp.Snapshot(),
		QueueWait: a.queueWait.snapshot(),
		Renew:     a.renew.Snapshot(),
		LeaseLeft: a.leaseLeft.Snapshot(),
	}
}

// recordGrant counts a lease that was given now to a task of role. waited is how many ms
// the task waited for it, "" if it is not the first one.
func (a *leaseMetrics) recordGrant(role, waited string) {
	a.grants.Add(1)
	if waited != "" {
		seconds := float64(store.ParseInt(waited)) / 1000
		a.pickUp.Observe(seconds)
		a.queueWait.of(role).Observe(seconds)
	}
}

// recordRenewal counts a renewal that was answered. left is as [reply.renewal] returns it.
func (a *leaseMetrics) recordRenewal(out picket.Renewal, left string, took time.Duration) {
	a.renewals.Add(1)
	a.renew.Observe(took.Seconds())
	if left != "" && out.LeaseTTLMs > 0 {
		a.leaseLeft.Observe(float64(store.ParseInt(left)) / float64(out.LeaseTTLMs))
	}
}
