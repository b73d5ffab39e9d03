package web

// MaxBuckets is the bound of the buckets of [Rates].
const MaxBuckets = maxBuckets

// Buckets counts those that are kept.
func (r *Rates) Buckets() int { return r.used.Len() }
