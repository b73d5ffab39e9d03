package web

import (
	"container/list"
	"maps"
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
func (r *Rates) Take(kind Kind, who string) error { return r.take(bucketID{kind: kind, who: who}) }

// TakeKey counts a request of an API key, as [Rates.Take] does. A client key with a rate of
// its own has that rate in place of the general one, also if the general one is 0.
func (r *Rates) TakeKey(who picket.Principal) error {
	if r == nil || who.Client == nil || who.Client.RatePerMinute <= 0 {
		return r.Take(KindKey, who.KeyID)
	}
	perMinute := who.Client.RatePerMinute
	rate := float64(perMinute) / 60
	if r.taken(bucketID{kind: KindKey, who: who.KeyID}, rate, max(1, burstSeconds*rate)) {
		return nil
	}
	refusal := picket.Refuse(picket.CodeRateLimited, "Wait as long as Retry-After says, then repeat the request.",
		"this key sends more than %d requests a minute to this server", perMinute)
	refusal.RetryAfter = max(time.Second, time.Minute/time.Duration(perMinute))
	return refusal.With("perMinute", perMinute)
}

// TakeEnding counts a request with which a lease ends. It does not depend on the
// rate of the lease, except that a rate of 0 means no limit here as well.
func (r *Rates) TakeEnding(who string) error { return r.take(bucketID{KindLease, forEnding, who}) }

// TakeBody counts the body of a request before it is read. The requests of a lease
// that become messages give the token back with GiveBodyBack, because each message
// is counted with [Rates.Take] or [Rates.TakeEnding].
func (r *Rates) TakeBody(who string) error { return r.take(bucketID{KindLease, forBodies, who}) }

// GiveBodyBack undoes one TakeBody.
func (r *Rates) GiveBodyBack(who string) {
	id := bucketID{KindLease, forBodies, who}
	rate, most := r.bounds(id)
	if rate <= 0 {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	b := r.bucket(id, rate, most)
	b.tokens = min(most, b.tokens+1)
}

// bounds are how many tokens a bucket gains a second, 0 if nothing is limited, and how
// many it holds.
func (r *Rates) bounds(id bucketID) (rate, most float64) {
	switch {
	case r == nil || r.perSecond[id.kind] <= 0:
		return 0, 0
	case id.purpose == forEnding:
		return endingPerSecond, endingBurst
	}
	return r.perSecond[id.kind], burstSeconds * r.perSecond[id.kind]
}

// take takes a token from a bucket.
func (r *Rates) take(id bucketID) error {
	rate, most := r.bounds(id)
	if rate <= 0 || r.taken(id, rate, most) {
		return nil
	}
	what := "requests"
	if id.purpose == forEnding {
		what = "requests that end it"
	}
	refusal := picket.Refuse(picket.CodeRateLimited, "Wait as long as Retry-After says, then repeat the request.",
		"this %s sends more than %.0f %s a second to this server", id.kind, rate, what)
	refusal.RetryAfter = time.Second
	return refusal.With("perSecond", int(rate))
}

// taken reports whether there was a token in a bucket, and takes it.
func (r *Rates) taken(id bucketID, rate, most float64) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if b := r.bucket(id, rate, most); b.tokens >= 1 {
		b.tokens--
		return true
	}
	r.refused[id.kind]++
	return false
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
	if r != nil {
		r.mu.Lock()
		defer r.mu.Unlock()
		maps.Copy(counts, r.refused)
	}
	return counts
}
