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
	recent  list.List                  // the bucket that was used last stands in front
	refused map[Kind]int64
}

// The requests that end a lease have a small bucket of their own for each lease.
// A lease without tokens can still end, and it cannot flood with such requests.
const (
	endingBurst     = 20
	endingPerSecond = 1
)

type bucketID struct {
	kind    Kind
	purpose string // what its requests are for; "" for all without a bucket of their own
	who     string
}

const (
	forEnding = "ending" // of a lease
	forBodies = "bodies" // of requests that have become no message
)

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
	return r.take(bucketID{kind: kind, who: who}, rate, burstSeconds*rate)
}

// TakeEnding counts a request with which a lease ends. It does not depend on the
// rate of the lease, except that a rate of 0 means no limit here as well.
func (r *Rates) TakeEnding(who string) error {
	if r == nil || r.perSecond[KindLease] <= 0 {
		return nil
	}
	return r.take(bucketID{kind: KindLease, purpose: forEnding, who: who}, endingPerSecond, endingBurst)
}

// TakeBody counts the body of a request before it is read. The requests of a lease
// that become messages give the token back with GiveBodyBack, because each message
// is counted with [Rates.Take] or [Rates.TakeEnding].
func (r *Rates) TakeBody(who string) error {
	if r == nil || r.perSecond[KindLease] <= 0 {
		return nil
	}
	rate := r.perSecond[KindLease]
	return r.take(bucketID{KindLease, forBodies, who}, rate, burstSeconds*rate)
}

// GiveBodyBack undoes one TakeBody.
func (r *Rates) GiveBodyBack(who string) {
	if r == nil || r.perSecond[KindLease] <= 0 {
		return
	}
	rate := r.perSecond[KindLease]
	most := burstSeconds * rate
	r.mu.Lock()
	defer r.mu.Unlock()
	b := r.bucket(bucketID{KindLease, forBodies, who}, rate, most)
	b.tokens = min(most, b.tokens+1)
}

// take takes a token from a bucket that holds most tokens and gains rate a second.
func (r *Rates) take(id bucketID, rate, most float64) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if b := r.bucket(id, rate, most); b.tokens >= 1 {
		b.tokens--
		return nil
	}
	r.refused[id.kind]++
	what := "requests"
	if id.purpose == forEnding {
		what = "requests that end it"
	}
	refusal := picket.Refuse(picket.CodeRateLimited, "Wait as long as Retry-After says, then repeat the request.",
		"this %s sends more than %.0f %s a second to this server", id.kind, rate, what)
	refusal.RetryAfter = time.Second
	return refusal.With("perSecond", int(rate))
}

// bucket finds or makes a bucket and fills it up to now.
func (r *Rates) bucket(id bucketID, rate, most float64) *bucket {
	now := time.Now()
	if e := r.buckets[id]; e != nil {
		r.recent.MoveToFront(e)
		b := e.Value.(*bucket)
		b.tokens = min(most, b.tokens+now.Sub(b.at).Seconds()*rate)
		b.at = now
		return b
	}
	if r.recent.Len() >= maxBuckets {
		delete(r.buckets, r.recent.Remove(r.recent.Back()).(*bucket).id)
	}
	b := &bucket{id: id, tokens: most, at: now}
	r.buckets[id] = r.recent.PushFront(b)
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
