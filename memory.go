package picket

// MemoryStats tells how much memory the Redis server of a namespace uses, and
// about how much of it the keys of the namespace take.
type MemoryStats struct {
	// Bytes is an estimate: a pass over the keys adds up what each takes, large
	// ones by samples. MeasuredAt is when the last whole pass ended; both are zero
	// until the first has.
	Bytes      int64   `json:"bytes"`
	MeasuredAt Instant `json:"measuredAt"`
	// StoreUsed and StoreMax are the server's own used_memory and maxmemory, of
	// all its namespaces. StoreMax is 0 if it has no bound; both are 0 for a store
	// in the memory of this process.
	StoreUsed int64 `json:"storeUsed"`
	StoreMax  int64 `json:"storeMax"`
}

// MemoryHeadroom is how much memory below a bound of most bytes stays free, so that
// leases end, people decide and servers start on a full store.
func MemoryHeadroom(most int64) int64 { return min(32<<20, most/3) }
