//go:build linux

package e2e

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/internal/rig"
)

// expiryRace is a holder that goes silent and writes all the while its agent is made
// dead, beside a worker that waits for the task.
type expiryRace struct {
	*rawAgent
	lease      picket.Lease
	began      time.Duration // after the last heartbeat: the writing
	beats      time.Duration // the one heartbeat that may come just in time; 0 for no heartbeat
	completes  time.Duration // mark_complete; 0 is never
	admitted   int           // reports
	completed  bool          // by the first holder
	resumed    bool          // the heartbeat came in time
	refusals   map[picket.Code]int
	refused    int   // in all
	takenAgain int64 // the token under which the next worker completed
}

// A holder writes without a pause while its agent goes unhealthy and dead, and
// somebody waits for the task: after the event of its death nothing it sends is
// let in, every write that was answered with success is in the log and no other
// is, and the task is completed once.
func TestWriteRacesExpiry(t *testing.T) {
	w := newTestEnv(t)
	w.store()
	w.up("--redis", w.storeURL(), "--log-level", "warn")
	random := rig.Random(t)
	var races []*expiryRace
	for i := range soakTimes(t, "writes against death", 25, 40) {
		races = append(races, planRace(w, fmt.Sprintf("racer%d", i), random))
	}
	var running sync.WaitGroup
	const abreast = 25 // a quarter of them writes at a time
	turns := make(chan struct{}, abreast)
	for _, r := range races {
		running.Go(func() {
			turns <- struct{}{}
			defer func() { <-turns }()
			r.run()
		})
	}
	running.Wait()
	if t.Failed() {
		return
	}
	r := raceTally{t: t, events: w.allEvents()}
	for _, race := range races {
		r.judge(race)
	}
	t.Logf("writes that race the death of their agent: %d rounds, %d reports admitted and %d refused %v; completed by the holder %d, by the next one %d, %d resumed by a late heartbeat",
		len(races), r.admitted, r.refused, r.codes, r.first, r.second, r.resumed)
}

// planRace draws what one round does. The death comes 4 s after the last
// heartbeat, and up to half a second later by the sweep.
func planRace(w *testEnv, id string, random *rand.Rand) *expiryRace {
	around := func(mid, spread time.Duration) time.Duration {
		return mid - spread/2 + time.Duration(random.Int64N(int64(spread)))
	}
	dead := time.Duration(briskThresholds.DeadAfterSeconds) * time.Second
	r := &expiryRace{
		rawAgent: &rawAgent{testEnv: w, id: id},
		refusals: map[picket.Code]int{},
		began:    around(dead-400*time.Millisecond, 200*time.Millisecond),
	}
	switch random.IntN(4) {
	case 0, 1:
		r.completes = around(dead+100*time.Millisecond, 800*time.Millisecond)
	case 2:
		r.beats = around(dead, 800*time.Millisecond)
	}
	return r
}

// run is one round, from the registration until the task is completed.
func (r *expiryRace) run() {
	if err := r.prepare(); err != nil {
		r.t.Errorf("%s: %v", r.id, err)
		return
	}
	silent := time.Now()
	over := make(chan struct{})
	var running sync.WaitGroup
	running.Go(func() { r.succeed(over) })
	defer running.Wait()
	defer close(over)
	time.Sleep(time.Until(silent.Add(r.began))) // the instant is what is random
	for n := 0; ; n++ {
		if r.beats > 0 && time.Since(silent) > r.beats && !r.beatLate() {
			time.Sleep(r.began) // it starts again
		}
		tool, body := "report_progress", map[string]any{"summary": fmt.Sprint(n)}
		if r.completes > 0 && time.Since(silent) > r.completes {
			tool, body = "mark_complete", map[string]any{"output": "by the first"}
		}
		if r.write(tool, body) {
			return
		}
	}
}

// prepare registers, submits the round's task, takes it, and sends the last
// heartbeat.
func (r *expiryRace) prepare() error {
	if err := r.enter(); err != nil {
		return err
	}
	s := spec("race of "+r.id, 60)
	s.Role, s.Review = r.id, picket.ReviewByNone
	backoff := 0
	s.Retry = &picket.Retry{BackoffSeconds: &backoff}
	r.submit(s)
	leases, got, err := r.acquire(r.id, 0)
	if err != nil || len(leases) != 1 {
		return fmt.Errorf("%d leases: %d %s %w", len(leases), got.status, got.body, err)
	}
	r.lease = leases[0]
	got, err = try(r.lease.LeaseToken.Reveal(), http.MethodPost, r.lease.ProxyURL+"/v1/lease/renew", struct{}{})
	if err != nil || got.status != http.StatusOK {
		return fmt.Errorf("renew: %d %s %w", got.status, got.body, err)
	}
	if got, err = r.beat(); err != nil || got.status != http.StatusOK {
		return fmt.Errorf("heartbeat: %d %s %w", got.status, got.body, err)
	}
	return nil
}

// beatLate sends the one heartbeat and reports whether it came too late.
func (r *expiryRace) beatLate() bool {
	r.beats = 0
	got, err := r.beat()
	if err == nil && got.status == http.StatusOK {
		r.resumed = true
		return false
	}
	if err != nil || got.code() != picket.CodeAgentGone || got.status != http.StatusGone {
		r.t.Errorf("%s: a late heartbeat: %d %v %s", r.id, got.status, err, got.body)
	}
	return true
}

// write sends one write and reports whether the race is over: the task is done,
// or enough was refused to know that nothing more comes through.
func (r *expiryRace) write(tool string, body any) (over bool) {
	got, err := try(r.lease.LeaseToken.Reveal(), http.MethodPost, r.lease.ProxyURL+"/v1/tools/"+tool, body)
	switch {
	case err != nil:
		r.t.Errorf("%s: %s: %v", r.id, tool, err)
		return true
	case got.status == http.StatusOK && tool == "mark_complete":
		r.completed = true
		return true
	case got.status == http.StatusOK:
		r.admitted++
		return false
	}
	r.refusals[got.code()]++
	r.refused++
	if got.status != http.StatusPreconditionFailed {
		r.t.Errorf("%s: %s: %d %s", r.id, tool, got.status, got.body)
		return true
	}
	// A lease that ends sends 20 calls at once, and more are refused for their rate.
	return r.refused >= 20
}

// succeed is the worker that waits for the task, without a record, and completes
// it when it comes.
func (r *expiryRace) succeed(over <-chan struct{}) {
	next := &rawAgent{testEnv: r.testEnv, id: r.id + "-next"}
	for {
		leases, got, err := next.acquire(r.id, 1)
		if err != nil || got.status != http.StatusOK {
			r.t.Errorf("%s: the next worker: %d %v %s", r.id, got.status, err, got.body)
			return
		}
		for _, l := range leases {
			got, err := try(l.LeaseToken.Reveal(), http.MethodPost, l.ProxyURL+"/v1/tools/mark_complete",
				map[string]any{"output": "by the second"})
			if err != nil || got.status != http.StatusOK {
				r.t.Errorf("%s: the next worker: %d %v %s", r.id, got.status, err, got.body)
			}
			r.takenAgain = l.FencingToken
			return
		}
		select {
		case <-over:
			if r.completed {
				return
			}
		default:
		}
	}
}

// raceTally holds rounds against the log and counts.
type raceTally struct {
	t        *testing.T
	events   []picket.Event
	admitted int
	refused  int
	first    int
	second   int
	resumed  int
	codes    map[picket.Code]int
}

func (c *raceTally) judge(r *expiryRace) {
	var dead int64 // the event of the death
	var unhealthy, ended, completed, written int
	for _, ev := range c.events {
		switch {
		case ev.Type == picket.EventAgentLifecycle && ev.LifecycleAgentID == r.id &&
			ev.NewStatus == picket.AgentUnhealthy:
			unhealthy++
		case ev.Type == picket.EventAgentLifecycle && ev.LifecycleAgentID == r.id && ev.NewStatus == picket.AgentDead:
			if dead != 0 || unhealthy == 0 {
				c.t.Errorf("%s: event %d makes it dead; it was before in %d, and unhealthy %d times", r.id, ev.Seq,
					dead, unhealthy)
			}
			dead = ev.Seq
		case ev.TaskID != r.lease.TaskID:
		case ev.Type == picket.EventLeaseExpired && ev.FencingToken == r.lease.FencingToken:
			ended++
			if dead == 0 || ev.Reason != string(picket.ExitAgentDead) {
				c.t.Errorf("%s: event %d ends the lease for %q, the death is %d", r.id, ev.Seq, ev.Reason, dead)
			}
		case ev.Type == picket.EventTaskCompleted:
			completed++
		case ev.Type == picket.EventTaskProgress:
			written++
		}
		if dead != 0 && ev.Seq > dead && ev.TaskID == r.lease.TaskID && ev.FencingToken == r.lease.FencingToken &&
			(ev.Type == picket.EventTaskProgress || ev.Type == picket.EventTaskCompleted) {
			c.t.Errorf("%s: event %d %s under token %d was let in after its agent's death, event %d", r.id, ev.Seq,
				ev.Type, ev.FencingToken, dead)
		}
	}
	byNext := 0
	if !r.completed {
		byNext = 1
	}
	if completed != 1 || written != r.admitted || ended != byNext ||
		(r.takenAgain > r.lease.FencingToken) == r.completed {
		c.t.Errorf("%s: %d times completed, %d reports in the log of %d admitted, the lease ended %d times, completed by the holder: %t, taken again under %d",
			r.id, completed, written, r.admitted, ended, r.completed, r.takenAgain)
	}
	c.count(r)
}

func (c *raceTally) count(r *expiryRace) {
	if c.codes == nil {
		c.codes = map[picket.Code]int{}
	}
	for code, n := range r.refusals {
		c.codes[code] += n
		c.refused += n
	}
	c.admitted += r.admitted
	if r.completed {
		c.first++
	} else {
		c.second++
	}
	if r.resumed {
		c.resumed++
	}
}
