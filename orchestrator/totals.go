package orchestrator

import (
	"context"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/budget"
	"github.com/picket-dev/picket/orchestrator/store"
)

// Bounds of the names by which runs and spending are counted. Agents that delegate choose roles,
// so names beyond the first ones are counted together as OtherName.
const (
	MaxCountedRoles  = 40
	MaxCountedModels = 20
	OtherName        = "other"
)

// runSecondsBounds are the upper bounds of the durations of runs, in seconds.
var runSecondsBounds = []float64{1, 10, 60, 300, 900, 1800, 3600, 7200, 21600}

// waitSecondsBounds are those of the time that tasks wait for their first lease.
var waitSecondsBounds = []float64{.01, .05, .2, 1, 5, 15, 60, 300, 1800, 7200}

// RunEnd is a way in which runs of a role ended.
type RunEnd struct {
	Class picket.ExitClass
	Role  string // "" for tasks without a role
}

// Spender is a role, and the model that it paid for: "" for anything else than a model.
type Spender struct{ Role, Model string }

// Totals are figures of a namespace by role and model, since they were first counted. A role that
// is beyond [MaxCountedRoles], or a model beyond [MaxCountedModels], is named [OtherName].
type Totals struct {
	Roles      []string // those that have a name of their own, sorted
	Ended      map[RunEnd]int64
	RunSeconds map[string]store.Distribution // by role: of "", of OtherName and of all Roles
	Spent      map[Spender]budget.Envelope
	Returned   map[Spender]budget.Envelope // what corrections gave back of it
}

// CountEnded adds the next runs that have ended, and the next charges, to the totals, at most limit
// of each. It returns how many it counted. Each is counted once, however many processes call.
func (e *Engine) CountEnded(ctx context.Context, limit int) (int, error) {
	args := []any{limit, MaxCountedRoles, MaxCountedModels}
	for _, seconds := range runSecondsBounds {
		args = append(args, int64(seconds*1000))
	}
	return e.runCount(ctx, "count", args...)
}

// Totals reads the totals. They are as old as the last round of a reaper.
func (e *Engine) Totals(ctx context.Context) (Totals, error) {
	r := e.run(ctx, "totals")
	return decodeTotals(r.Hash(r.Value)), r.Err
}

// decodeTotals reads the fields of the key totals; those that it does not know are not its own.
func decodeTotals(fields map[string]string) Totals {
	t := Totals{
		Ended:      map[RunEnd]int64{},
		RunSeconds: map[string]store.Distribution{},
		Spent:      map[Spender]budget.Envelope{},
		Returned:   map[Spender]budget.Envelope{},
	}
	counts := map[string]map[float64]uint64{} // of role and bound
	for _, field := range slices.Sorted(maps.Keys(fields)) {
		n := store.ParseInt(fields[field])
		kind, rest, _ := strings.Cut(field, " ")
		first, second, _ := strings.Cut(rest, " ")
		switch kind {
		case "role":
			t.Roles = append(t.Roles, rest)
		case "ended":
			t.Ended[RunEnd{picket.ExitClass(first), second}] = n
		case "took":
			if counts[second] == nil {
				counts[second] = map[float64]uint64{}
			}
			counts[second][boundOf(first)] += uint64(n)
		case "spent_t", "returned_t":
			t.addMoney(kind, Spender{first, second}, budget.Envelope{Tokens: n})
		case "spent_u", "returned_u":
			t.addMoney(kind, Spender{first, second}, budget.Envelope{USD: budget.Money(n)})
		}
	}
	for _, role := range append([]string{"", OtherName}, t.Roles...) {
		t.RunSeconds[role] = distribution(nil, 0)
	}
	for role, count := range counts {
		t.RunSeconds[role] = distribution(count, float64(store.ParseInt(fields["ms "+role]))/1000)
	}
	return t
}

func (t *Totals) addMoney(kind string, by Spender, amount budget.Envelope) {
	of := t.Spent
	if strings.HasPrefix(kind, "returned") {
		of = t.Returned
	}
	of[by] = budget.Envelope{Tokens: of[by].Tokens + amount.Tokens, USD: of[by].USD.Add(amount.USD)}
}

// boundOf reads a bound in ms as seconds; "inf" is above all others.
func boundOf(ms string) float64 {
	if n, err := strconv.ParseInt(ms, 10, 64); err == nil {
		return float64(n) / 1000
	}
	return math.Inf(1)
}

// distribution adds up counts by their upper bound. A bound of another version counts for the next
// one above it.
func distribution(counts map[float64]uint64, sum float64) store.Distribution {
	d := store.Distribution{Sum: sum, Below: make(map[float64]uint64, len(runSecondsBounds))}
	for _, bound := range runSecondsBounds {
		d.Below[bound] = 0
	}
	for at, n := range counts {
		d.Count += n
		for bound := range d.Below {
			if at <= bound {
				d.Below[bound] += n
			}
		}
	}
	return d
}

// roleHistograms are histograms of this process by role, of MaxCountedRoles roles and OtherName.
type roleHistograms struct {
	bounds []float64
	mu     sync.Mutex
	byRole map[string]*store.Histogram
}

func newRoleHistograms(bounds []float64) *roleHistograms {
	return &roleHistograms{bounds: bounds, byRole: map[string]*store.Histogram{"": store.NewHistogram(bounds...)}}
}

// of is the histogram of a role, or that of OtherName when there are too many roles already.
func (h *roleHistograms) of(role string) *store.Histogram {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.byRole[role] == nil && len(h.byRole) > MaxCountedRoles { // "" is one that does not count
		role = OtherName
	}
	if h.byRole[role] == nil {
		h.byRole[role] = store.NewHistogram(h.bounds...)
	}
	return h.byRole[role]
}

func (h *roleHistograms) snapshot() map[string]store.Distribution {
	h.mu.Lock()
	defer h.mu.Unlock()
	all := make(map[string]store.Distribution, len(h.byRole))
	for role, of := range h.byRole {
		all[role] = of.Snapshot()
	}
	return all
}
