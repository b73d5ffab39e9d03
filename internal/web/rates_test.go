package web_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/internal/web"
)

// countTaken is how many requests are let through at once.
func countTaken(t *testing.T, r *web.Rates, kind web.Kind, who string) (n int) {
	for ; n < 1000; n++ {
		if err := r.Take(kind, who); err != nil {
			refusal, _ := picket.RefusalOf(err)
			if refusal == nil || refusal.Code != picket.CodeRateLimited || refusal.RetryAfter <= 0 ||
				refusal.Remedy == "" {
				t.Fatalf("refused with %v", err)
			}
			return n
		}
	}
	return n
}

func TestABucketBoundsTheRateOfOneCredential(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := web.NewRates(20, 10)
		if n := countTaken(t, r, web.KindLease, "a"); n != 50 {
			t.Errorf("%d requests at once", n)
		}
		time.Sleep(time.Second)
		if n := countTaken(t, r, web.KindLease, "a"); n != 10 {
			t.Errorf("%d requests after a second", n)
		}
		if n := countTaken(t, r, web.KindLease, "b"); n != 50 {
			t.Errorf("%d requests of another lease", n)
		}
		if n := countTaken(t, r, web.KindKey, "a"); n != 100 {
			t.Errorf("%d requests of a key with the same name", n)
		}
		time.Sleep(time.Hour)
		if n := countTaken(t, r, web.KindLease, "a"); n != 50 {
			t.Errorf("%d requests after an hour", n)
		}
		if got := r.Refused(); got[web.KindLease] != 4 || got[web.KindKey] != 1 {
			t.Errorf("counted as refused: %v", got)
		}
	})
}

// A lease that has used up its rate can still end, and cannot flood with that.
func TestRequestsThatEndALeaseHaveABucketOfTheirOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := web.NewRates(0, 200)
		ending := func(who string) (n int) {
			for ; n < 1000 && r.TakeEnding(who) == nil; n++ {
			}
			return n
		}
		if n := countTaken(t, r, web.KindLease, "a"); n != 1000 {
			t.Errorf("%d requests at once", n)
		}
		if n := ending("a"); n != 20 {
			t.Errorf("%d requests that end the lease, want 20", n)
		}
		time.Sleep(5 * time.Second)
		if n := ending("a"); n != 5 {
			t.Errorf("%d of them after five seconds", n)
		}
		if n := ending("b"); n != 20 {
			t.Errorf("%d of another lease", n)
		}
		if err := web.NewRates(1, 0).TakeEnding("a"); err != nil {
			t.Errorf("without a rate: %v", err)
		}
	})
}

// A body that becomes a message is counted as a message only.
func TestABodyIsCountedUnlessItBecomesAMessage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := web.NewRates(0, 2)
		for range 100 {
			if err := r.TakeBody("a"); err != nil {
				t.Fatal(err)
			}
			r.GiveBodyBack("a")
		}
		for i := range 20 {
			if err := r.TakeBody("a"); (err != nil) != (i >= 10) {
				t.Errorf("body %d: %v", i, err)
			}
		}
		if n := countTaken(t, r, web.KindLease, "a"); n != 10 {
			t.Errorf("%d requests after the bodies", n)
		}
	})
}

func TestARateOfZeroBoundsNothing(t *testing.T) {
	var none *web.Rates
	for _, r := range []*web.Rates{none, web.NewRates(0, 0)} {
		if n := countTaken(t, r, web.KindKey, "a"); n != 1000 {
			t.Errorf("%d requests", n)
		}
	}
}

func TestTheMemoryOfRatesIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := web.NewRates(1, 1)
		for i := range web.MaxBuckets + 10 {
			_ = r.Take(web.KindLease, fmt.Sprint(i))
			if i%1000 == 0 { // one that goes on keeps its bucket
				_ = countTaken(t, r, web.KindKey, "busy")
			}
		}
		if n := r.Buckets(); n != web.MaxBuckets {
			t.Errorf("%d buckets", n)
		}
		if n := countTaken(t, r, web.KindKey, "busy"); n != 0 {
			t.Errorf("a flood of other credentials gave %d requests to one that had none left", n)
		}
	})
}

// A client key with a rate of its own has a bucket of that rate, whatever the general rate is.
func TestAClientKeyCanHaveARateOfItsOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := func(id string, perMinute int) picket.Principal {
			return picket.Principal{KeyID: id, Client: &picket.ClientLimits{RatePerMinute: perMinute}}
		}
		taken := func(r *web.Rates, who picket.Principal) (n int, err error) {
			for ; n < 1000; n++ {
				if err = r.TakeKey(who); err != nil {
					return n, err
				}
			}
			return n, nil
		}
		for _, general := range []int{0, 20} {
			r := web.NewRates(general, 0)
			n, err := taken(r, client("a", 120))
			refusal, _ := picket.RefusalOf(err)
			if n != 10 || refusal == nil || refusal.Code != picket.CodeRateLimited ||
				refusal.RetryAfter != time.Second || refusal.Facts["perMinute"] != 120 || refusal.Remedy == "" {
				t.Errorf("%d requests at once, then %v", n, err)
			}
			time.Sleep(time.Second)
			if n, _ := taken(r, client("a", 120)); n != 2 {
				t.Errorf("%d requests after a second", n)
			}
			n, err = taken(r, client("slow", 2))
			if refusal, _ := picket.RefusalOf(err); n != 1 || refusal.RetryAfter != 30*time.Second {
				t.Errorf("%d requests at once of a slow key, then %v", n, err)
			}
			want := map[int]int{0: 1000, 20: 100}[general]
			for _, who := range []picket.Principal{{KeyID: "b"}, client("c", 0)} {
				if n, _ := taken(r, who); n != want {
					t.Errorf("%d requests of a key without a rate of its own, want %d", n, want)
				}
			}
		}
		var none *web.Rates
		if n, err := taken(none, client("a", 1)); n != 1000 {
			t.Errorf("without rates: %d requests, then %v", n, err)
		}
	})
}
