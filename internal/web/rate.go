package web

import (
	"container/list"
	"sync"
	"time"

	"github.com/picket-dev/picket"
)

// maxBuckets bounds the memory of [Rates]. Beyond it the least recently used
// bucket is deleted.
const maxBuckets = 1 << 16

// burstSeconds is how many seconds of its rate a credential may use at once.
const burstSeconds = 5

// Rates limits how many requests each key and each lease sends to this process.
// Each of them has a token bucket: a request takes one token, and tokens come
// back at the credential's rate.
type Rates struct {
	perSecond map[Kind]float64

	mu      sync.Mutex
	buckets map[bucketID]*list.Element // of *bucket
	used    list.List                  // the bucket that was used last stands in front
	refused map[Kind]int64
}

type bucketID struct {
	kind Kind
	who  string
}

type bucket struct {
	id     bucketID
	tokens float64
	at     time.Time
}

// NewRates returns Rates with these requests a second for each key and for each
// lease. A rate of 0 means no limit.
func NewRates(perKey, perLease int) *Rates {
	return &Rates{
		perSecond: map[Kind]float64{KindKey: float64(perKey), KindLease: float64(perLease)},
		buckets:   map[bucketID]*list.Element{}, refused: map[Kind]int64{},
	}
}

// Take counts a request of a credential. It refuses with rate_limited when the
// credential's bucket is empty. A nil Rates refuses nothing.
func (r *Rates) Take(kind Kind, who string) error {
	if r == nil || r.perSecond[kind] <= 0 {
		return nil
	}
	rate := r.perSecond[kind]
	r.mu.Lock()
	defer r.mu.Unlock()
	if b := r.bucket(bucketID{kind, who}, rate); b.tokens >= 1 {
		b.tokens--
		return nil
	}
	r.refused[kind]++
	refusal := picket.Refuse(picket.CodeRateLimited, "Wait as long as Retry-After says, then repeat the request.",
		"this %s sends more than %.0f requests a second to this server", kind, rate)
	refusal.RetryAfter = time.Second
	return refusal.With("perSecond", int(rate))
}

// bucket finds or makes a bucket and fills it up to now.
func (r *Rates) bucket(id bucketID, rate float64) *bucket {
	now, most := time.Now(), burstSeconds*rate
	if e := r.buckets[id]; e != nil {
		r.used.MoveToFront(e)
		b := e.Value.(*bucket)
		b.tokens = min(most, b.tokens+now.Sub(b.at).Seconds()*rate)
		b.at = now
		return b
	}
	if r.used.Len() >= maxBuckets {
		delete(r.buckets, r.used.Remove(r.used.Back()).(*bucket).id)
	}
	b := &bucket{id: id, tokens: most, at: now}
	r.buckets[id] = r.used.PushFront(b)
	return b
}

// Refused counts the requests that were refused so far, by kind of credential.
func (r *Rates) Refused() map[Kind]int64 {
	counts := map[Kind]int64{KindKey: 0, KindLease: 0}
	if r == nil {
		return counts
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for kind, n := range r.refused {
		counts[kind] = n
	}
	return counts
}
