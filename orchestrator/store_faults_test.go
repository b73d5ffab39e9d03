package orchestrator_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/internal/rig"
	"github.com/picket-dev/picket/orchestrator"
)

// allowedWhenFull are the scripts that a full store must let through: what ends a
// lease, stops something or frees memory. The readers are let through, too.
var allowedWhenFull = []string{"renew", "release", "fail", "expire", "expire_due", "complete", "request_help", "cancel",
	"undeliver", "run_exit",
	"get_task", "watch", "session", "session_close", "tick", "overdue", "chore", "pause", "resume", "key_revoke",
	"run_key_renew", "retain", "inspect", "measure", "adopt", "reclaim", "refused", "unwait",
	"heartbeat", "judge", "drain", "deregister", "settle", "reap_hold", "usage", "await",
	"webhook_claim", "webhook_advance", "webhook_delete", "webhook_revive"}

// faultyStore is a node with what undisturbed runs of each case ended with.
type faultyStore struct {
	*rig.Node
	calm map[string]string
}

// Every verb meets every trouble that a store can have without losing anything.
// What is refused has changed nothing, what got no answer has happened as a
// whole or not at all, and the same request, made again when the trouble is
// over, has its effect once.
func TestStoreFaultsReal(t *testing.T) {
	random, rounds := rig.Random(t), rig.Rounds(len(rig.Outages), 200)
	const workers = 24
	var stores []*faultyStore
	for range workers {
		stores = append(stores, &faultyStore{rig.StartOutageNode(t), map[string]string{}})
	}
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	began, calls, order := time.Now(), 0, []rig.Outage(nil)
	for round := range rounds {
		if len(order) == 0 {
			order = slices.Clone(rig.Outages)
			random.Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
		}
		trouble := order[0]
		order = order[1:]
		cases := replyCases()
		random.Shuffle(len(cases), func(i, j int) { cases[i], cases[j] = cases[j], cases[i] })
		if !rig.Soaking() {
			cases = cases[:len(cases)*2/5]
		}
		t.Run(fmt.Sprintf("%d %s", round, trouble.Name), func(t *testing.T) { runOnStores(t, stores, cases, trouble) })
		calls += len(cases)
	}
	t.Logf("store trouble: %d rounds of %d troubles, %d calls of %d scripts in %.1f s", rounds, len(rig.Outages),
		calls, len(writers()), time.Since(began).Seconds())
}

// runOnStores spreads the cases over the stores. Where requests get no answer
// most of the time is waiting; else more than a few would only be in each
// other's way.
func runOnStores(t *testing.T, stores []*faultyStore, cases []replyCase, trouble rig.Outage) {
	if !trouble.NoAnswer {
		stores = stores[:6]
	}
	next := make(chan replyCase, len(cases))
	for _, c := range cases {
		next <- c
	}
	close(next)
	var group sync.WaitGroup
	for _, s := range stores {
		group.Go(func() {
			for c := range next {
				t.Run(c.name, func(t *testing.T) { s.runInFault(t, c, trouble) })
			}
		})
	}
	group.Wait()
}

// runInFault calls one verb in one trouble and again after it.
func (s *faultyStore) runInFault(t *testing.T, c replyCase, trouble rig.Outage) {
	if trouble.MemoryFull && c.severalCalls != "" {
		t.Skip("two verbs, of which a full store lets only one through")
	}
	if trouble.MemoryFull && c.otherWhenFull != "" {
		t.Skip(c.otherWhenFull)
	}
	p := replySetup{t: t, store: s.Store()}
	p.store.Redis.Dialer = func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "tcp", s.Addr)
	}
	want := s.undisturbed(p, c)
	w := p.newEnv()
	defer w.close()
	c.setup(w)
	before := w.dumpWithoutTime()
	end := sync.OnceFunc(trouble.Begin(t, s.Node))
	defer end()
	if trouble.MemoryFull {
		w.faults.Cut() // new connections have to be made, too
		w.faults.Heal()
	}
	answer, err := c.call(w, w.via)
	refused, passes := false, trouble.MemoryFull && (c.passesWhenFull || slices.Contains(allowedWhenFull, c.script()))
	switch {
	case passes || c.neverRepeated != "":
		ok(t, err)
	case trouble.NoAnswer:
		if picket.CodeOf(err) != picket.CodeUnavailable || !errors.Is(err, picket.ErrUnknown) {
			t.Errorf("a call without an answer got %v (%s)", err, picket.CodeOf(err))
		}
	default:
		expectRefusal(t, trouble, err)
		refused = true
	}
	if trouble.NeedsAdoption { // it will be another one, but still answers
		w.unchanged(before)
	}
	end()
	// anyone who connects again adopts
	if refused && !trouble.NeedsAdoption && !(trouble.ClosesConnections && c.script() == "adopt") {
		w.unchanged(before)
	}
	if !passes && c.neverRepeated == "" {
		answer = w.callAgain(c)
	}
	if !trouble.NeedsAdoption {
		w.expectEnd(c, answer, want)
	}
	w.expectWorks()
}

// undisturbed is how a case may end: its effect once. A call that is an act of
// its own each time may have had it twice, one that nobody repeats not at all.
func (s *faultyStore) undisturbed(p replySetup, c replyCase) (ends []string) {
	stories := []string{"c"}
	if c.neverRepeated != "" {
		stories = append(stories, "")
	} else if c.repeatCounts != "" {
		stories = append(stories, "cc")
	}
	for _, story := range stories {
		key := c.name + " " + story
		if s.calm[key] == "" {
			s.calm[key] = anyServer(p.baseline(c, story))
		}
		ends = append(ends, s.calm[key])
	}
	return ends
}

// anyServer leaves out which server the namespace was adopted on.
func anyServer(text string) string { return withoutLines(text, meta+" identity ") }

// expectEnd waits until the store is as after an undisturbed call: a request
// that nobody repeats may be served only now.
func (w *replyEnv) expectEnd(c replyCase, answer any, want []string) {
	w.t.Helper()
	for deadline := time.Now().Add(10 * time.Second); ; {
		text, err := dump(w.ctx, w.raw, answer)
		if c.answerVaries != "" {
			text = withoutLines(text, "answer ")
		}
		got := anyServer(text)
		if err == nil && slices.Contains(want, got) {
			return
		}
		if c.neverRepeated == "" || time.Now().After(deadline) {
			w.t.Errorf("in the end the store is not as after an undisturbed call: %v\n%s", err,
				diffLines(got, want[0]))
			return
		}
	}
}

func expectRefusal(t *testing.T, trouble rig.Outage, err error) {
	t.Helper()
	want := picket.CodeUnavailable
	if trouble.MemoryFull {
		want = picket.CodeStoreFull
	}
	var refusal *picket.Error
	if !errors.As(err, &refusal) || refusal.Code != want || refusal.Remedy == "" || refusal.Code.Status() != 503 {
		t.Errorf("got %v (%s), want %s with a remedy", err, picket.CodeOf(err), want)
	}
	if errors.Is(err, picket.ErrUnknown) && !trouble.ClosesConnections {
		t.Errorf("refused as if nobody knew what became of it: %v", err)
	}
}

// unchanged checks that a refused call has left no trace.
func (w *replyEnv) unchanged(before string) {
	w.t.Helper()
	if after := w.dumpWithoutTime(); after != before {
		w.t.Errorf("a refused call left traces:\n%s", diffLines(after, before))
	}
}

// dumpWithoutTime is all that the namespace holds except for what says only what time it is.
func (w *replyEnv) dumpWithoutTime() string {
	w.t.Helper()
	text, err := dump(w.ctx, w.raw, nil)
	ok(w.t, err)
	return withoutLines(text, meta+" now ", meta+" raw ")
}

// callAgain makes the request again until it is let through, as its caller
// would: connections that broke are noticed one by one.
func (w *replyEnv) callAgain(c replyCase) any {
	w.t.Helper()
	for deadline := time.Now().Add(30 * time.Second); ; {
		answer, err := c.call(w, w.via)
		if err == nil {
			return answer
		}
		if picket.CodeOf(err) != picket.CodeUnavailable || time.Now().After(deadline) {
			w.t.Fatalf("after the trouble: %v (%s)", err, picket.CodeOf(err))
		}
	}
}

// expectWorks checks that the engine goes on automatically: a life from beginning
// to end, a woken long poll, and nothing that breaks an invariant.
func (w *replyEnv) expectWorks() {
	w.t.Helper()
	leased := make(chan error, 1)
	go func() {
		leases, err := w.via.Acquire(w.ctx, operator,
			picket.AcquireRequest{AgentID: "later", Role: "later", WaitSeconds: ptr(30)})
		if err == nil && len(leases) != 1 {
			err = fmt.Errorf("acquired %d leases", len(leases))
		}
		if err == nil {
			var held picket.LeaseCredential
			held, err = rig.Sealer().OpenLeaseToken(leases[0].LeaseToken.Reveal())
			if err == nil {
				_, err = w.via.Complete(w.ctx, held, picket.Completion{Output: picket.RawJSON(`1`)})
			}
		}
		leased <- err
	}()
	if _, err := w.direct.Resume(w.ctx, operator, ""); err != nil { // in case the case was a pause
		w.t.Error(err)
	}
	_, err := w.direct.Submit(w.ctx, operator, picket.TaskSpec{Title: "later", Role: "later"})
	ok(w.t, err)
	ok(w.t, <-leased)
	for cursor := ""; ; {
		part, err := w.direct.Inspect(w.ctx, operator, picket.InspectRequest{Cursor: cursor})
		ok(w.t, err)
		for _, v := range part.Violations {
			w.t.Errorf("violated: %+v", v)
		}
		if cursor = part.Next; cursor == "" {
			return
		}
	}
}

// A full store lets everything through that ends, stops or frees something, and
// everything that only reads; and it refuses the rest.
func TestVerbsThatAFullStoreAllows(t *testing.T) {
	for name, source := range orchestrator.AllSources() {
		head, _, _ := strings.Cut(source, "\n")
		must := slices.Contains(allowedWhenFull, name) || slices.Contains(readers, name)
		if has := strings.Contains(head, "allow-oom"); has != must {
			t.Errorf("%s.lua runs on a full store: %v, want %v", name, has, must)
		}
	}
}
