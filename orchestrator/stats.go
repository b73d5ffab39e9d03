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

// Stats counts a namespace.
func (e *Engine) Stats(ctx context.Context) (picket.Stats, error) {
	asked := time.Now()
	got, err := e.run(ctx, "stats", append([]any{e.dailyLimitArg()}, countedSets...)...)
	if err != nil {
		return picket.Stats{}, err
	}
	answered := time.Now()
	r := newReply("stats")
	l := r.List(got)
	raw := r.Int(r.At(l, 0))
	s := picket.Stats{
		Namespace:     e.namespace,
		StoreTime:     picket.Instant(r.Int(r.At(l, 1))),
		LastTick:      picket.Instant(r.Int(r.At(l, 2))),
		Lanes:         r.Int(r.At(l, 3)),
		Delayed:       r.Int(r.At(l, 4)),
		Waiters:       r.Int(r.At(l, 5)),
		Handoffs:      r.Int(r.At(l, 6)),
		LastSeq:       r.Int(r.At(l, 7)),
		Pause:         newPauseState(r.Text(r.At(l, 8)), r.Text(r.At(l, 9)), r.Text(r.At(l, 10)), r.Int(r.At(l, 11))),
		StoreID:       r.Text(r.At(l, 12)),
		Floor:         r.Int(r.At(l, 13)),
		AdoptedAt:     picket.Instant(r.Int(r.At(l, 14))),
		ClockOffsetMs: clockOffset(raw, asked, answered),
	}
	s.SinceTickMs = raw - int64(s.LastTick)
	rest := l[min(15, len(l)):]
	s.Tasks, rest = readCounts(r, rest, picket.TaskStates)
	s.Agents, rest = readCounts(r, rest, picket.AgentStatuses)
	s.HandoffKinds, rest = readCounts(r, rest, picket.HandoffKinds)
	s.Reviews = s.Tasks[picket.TaskReview]
	r.statsTail(&s, rest)
	s.Activity = activityOf(r.Hash(r.At(rest, 9)), raw)
	audit := r.List(r.At(rest, 10))
	s.AuditEvents, s.OldestAudit = r.Int(r.At(audit, 0)), picket.Instant(r.Int(r.At(audit, 1)))
	s.Memory = r.memoryStats(r.List(r.At(rest, 11)))
	return s, r.Err
}

// clockOffset is how far the store's clock is ahead, in ms, as if it had been
// read half way between question and answer.
func clockOffset(raw int64, asked, answered time.Time) int64 {
	return raw - asked.Add(answered.Sub(asked)/2).UnixMilli()
}

// readCounts reads a number for each name, and what follows them.
func readCounts[T ~string](r *reply, l []any, of []T) (map[T]int64, []any) {
	n := make(map[T]int64, len(of))
	for i, name := range of {
		n[name] = r.Int(r.At(l, i))
	}
	return n, l[min(len(of), len(l)):]
}

// statsTail reads what stats.lua tells after the sizes of sets.
func (r *reply) statsTail(s *picket.Stats, l []any) {
	s.JudgeLateMs = r.Int(r.At(l, 0))
	s.Leases, s.LeasesDue = r.Int(r.At(l, 1)), r.Int(r.At(l, 2))
	s.OldestHandoff, s.OldestReview = picket.Instant(r.Int(r.At(l, 3))), picket.Instant(r.Int(r.At(l, 5)))
	if h := r.List(r.At(l, 4)); h != nil {
		s.DailyEnvelope = &picket.DailyEnvelope{Limit: r.amount(h), Available: r.amount(h[min(2, len(h)):])}
		if len(h) > 5 && h[5] != nil {
			total := r.amount(h[4:])
			s.DailyEnvelope.SpentInAll = &total
		}
	}
	sums := r.Hash(r.At(l, 6))
	s.Money = picket.MoneyStats{
		Spent:      amountColumn(sums, "spent"),
		Returned:   amountColumn(sums, "returned"),
		Held:       notNegative(amountColumn(sums, "held")),
		Unverified: amountColumn(sums, "unverified"),
	}
	s.Expired = map[picket.ExitClass]int64{}
	for figure, n := range sums {
		if class, ok := strings.CutPrefix(figure, "expired:"); ok {
			s.Expired[picket.ExitClass(class)] = store.ParseInt(n)
		}
	}
	s.Logins = r.Int(r.At(l, 7))
	s.Webhooks = map[picket.WebhookState]int64{}
	for targets := r.List(r.At(l, 8)); len(targets) > 1; targets = targets[2:] {
		state := picket.WebhookState(r.Text(targets[0]))
		s.Webhooks[state]++
		if state == picket.WebhookActive {
			s.WebhookLag = max(s.WebhookLag, r.Int(targets[1]))
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
	pulse := []picket.ActivitySlot{}
	for _, at := range slices.Sorted(maps.Keys(slots)) {
		pulse = append(pulse, *slots[at])
	}
	return pulse
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

// memoryStats reads the memory of the server and the size of the namespace.
func (r *reply) memoryStats(l []any) picket.MemoryStats {
	used, most := store.ParseMemoryInfo(r.Text(r.At(l, 0)))
	m := picket.MemoryStats{StoreUsed: used, StoreMax: most}
	if bytes := r.At(l, 1); bytes != nil {
		m.Bytes, m.MeasuredAt = r.Int(bytes), picket.Instant(r.Int(r.At(l, 2)))
	}
	return m
}

// LeaseMetrics is what this process has done in one namespace since it began.
type LeaseMetrics struct {
	Grants   int64
	Renewals int64
	// PickUp are the seconds from when a task could first run, submitted and its
	// start come, to its first lease.
	PickUp store.Distribution
	// Renew are the seconds that renewals took, LeaseLeft the part of the window
	// that was left when they came, 0 to 1. The first one of a lease is no part of
	// LeaseLeft: it only confirms the grant.
	Renew     store.Distribution
	LeaseLeft store.Distribution
}

type leaseMetrics struct {
	grants    atomic.Int64
	renewals  atomic.Int64
	pickUp    *store.Histogram
	renew     *store.Histogram
	leaseLeft *store.Histogram
}

func newLeaseMetrics() *leaseMetrics {
	return &leaseMetrics{
		pickUp:    store.NewHistogram(.01, .05, .2, 1, 5, 15, 60, 300, 1800, 7200),
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
		Renew:     a.renew.Snapshot(),
		LeaseLeft: a.leaseLeft.Snapshot(),
	}
}

// recordGrant counts a lease that was given now; v is its row in the reply.
func (a *leaseMetrics) recordGrant(r *reply, v any) {
	a.grants.Add(1)
	if waited := r.Text(r.At(r.List(v), 16)); waited != "" {
		a.pickUp.Observe(float64(store.ParseInt(waited)) / 1000)
	}
}

// recordRenewal counts a renewal that was answered.
func (a *leaseMetrics) recordRenewal(got any, out picket.Renewal, took time.Duration) {
	a.renewals.Add(1)
	a.renew.Observe(took.Seconds())
	r := newReply("renew")
	if left := r.Text(r.At(r.List(got), 6)); left != "" && out.LeaseTTLMs > 0 {
		a.leaseLeft.Observe(float64(store.ParseInt(left)) / float64(out.LeaseTTLMs))
	}
}
