package store

import (
	"math"
	"sync/atomic"
)

// Distribution is what a process has observed of one quantity.
type Distribution struct {
	Count uint64
	Sum   float64
	Below map[float64]uint64 // how many were at most each bound
}

// Histogram counts observations by bounds; the zero value has none. It may be
// used from any number of goroutines.
type Histogram struct {
	bounds []float64 // rising
	counts []atomic.Uint64
	sum    atomic.Uint64 // the bits of a float64
}

// NewHistogram makes a histogram with bounds in rising order.
func NewHistogram(bounds ...float64) *Histogram {
	return &Histogram{bounds: bounds, counts: make([]atomic.Uint64, len(bounds)+1)}
}

// Observe counts one observation, in the unit of the bounds.
func (h *Histogram) Observe(v float64) {
	i := 0
	for i < len(h.bounds) && v > h.bounds[i] {
		i++
	}
	h.counts[i].Add(1)
	for {
		old := h.sum.Load()
		if h.sum.CompareAndSwap(old, math.Float64bits(math.Float64frombits(old)+v)) {
			return
		}
	}
}

// Snapshot adds up what was counted, so that its parts fit together whatever is
// observed meanwhile.
func (h *Histogram) Snapshot() Distribution {
	d := Distribution{Below: make(map[float64]uint64, len(h.bounds)), Sum: math.Float64frombits(h.sum.Load())}
	for i := range h.counts {
		d.Count += h.counts[i].Load()
		if i < len(h.bounds) {
			d.Below[h.bounds[i]] = d.Count
		}
	}
	return d
}
