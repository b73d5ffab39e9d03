package web

// MaxBuckets is the bound of the buckets of [Rates].
const MaxBuckets = maxBuckets

// Buckets counts those that are kept.
func (r *Rates) Buckets() int { return r.recent.Len() }

// AtWork tells how many connections of a guard have a request under way.
func AtWork(g *Guard) int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.unknown.atWork.Len() + g.known.atWork.Len()
}
