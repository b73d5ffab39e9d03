package storefaults

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/internal/rig"
	"github.com/picket-dev/picket/orchestrator/proof/calls"
	"github.com/picket-dev/picket/orchestrator/proof/kit"
)

// allowedWhenFull are the scripts that a full store must let through: what ends a
// lease, stops something or frees memory. The readers are let through, too.
var allowedWhenFull = []string{"renew", "release", "fail", "expire", "expire_due", "complete", "request_help", "cancel",
	"undeliver", "run_exit",
	"get_task", "find_agents", "deliver",
	"watch", "session", "session_close", "tick", "overdue", "chore", "pause", "resume", "key_revoke",
	"run_key_renew", "retain", "inspect", "measure", "count", "count_spending", "remind", "trace_advance", "mark_stop",
	"take_mark", "migrate",
	"adopt", "reclaim", "refused", "unwait",
	"heartbeat", "judge", "drain", "deregister", "settle", "reap_hold", "usage", "await",
	"webhook_claim", "webhook_advance", "webhook_delete", "webhook_revive",
	"push_claim", "push_advance", "push_delete",
	"bundle_commit"} // it deletes the bundle before, and its pieces are stored already

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
	random, rounds := rig.Random(t), rig.SoakRounds(t, "store trouble", len(rig.Outages), 200)
	const workers = 24
	var stores []*faultyStore
	for range workers {
		stores = append(stores, &faultyStore{rig.StartOutageNode(t), map[string]string{}})
	}
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	began, called, order := time.Now(), 0, []rig.Outage(nil)
	for round := range rounds {
		if len(order) == 0 {
			order = slices.Clone(rig.Outages)
			random.Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
		}
		trouble := order[0]
		order = order[1:]
		cases := calls.All()
		random.Shuffle(len(cases), func(i, j int) { cases[i], cases[j] = cases[j], cases[i] })
		if !rig.Soaking() {
			cases = cases[:len(cases)*2/5]
		}
		t.Run(fmt.Sprintf("%d %s", round, trouble.Name), func(t *testing.T) { runOnStores(t, stores, cases, trouble) })
		called += len(cases)
	}
	t.Logf("store trouble: %d rounds of %d troubles, %d calls of %d scripts in %.1f s", rounds, len(rig.Outages),
		called, len(calls.Writers()), time.Since(began).Seconds())
}

// runOnStores spreads the cases over the stores. Where requests get no answer
// most of the time is waiting; else more than a few would only be in each
// other's way.
func runOnStores(t *testing.T, stores []*faultyStore, cases []calls.Case, trouble rig.Outage) {
	if !trouble.NoAnswer {
		stores = stores[:6]
	}
	next := make(chan calls.Case, len(cases))
	for _, c := range cases {
		next <- c
	}
	close(next)
	var group sync.WaitGroup
	for _, s := range stores {
		group.Go(func() {
			for c := range next {
				t.Run(c.Name, func(t *testing.T) { s.runInFault(t, c, trouble) })
			}
		})
	}
	group.Wait()
}

// runInFault calls one verb in one trouble and again after it.
func (s *faultyStore) runInFault(t *testing.T, c calls.Case, trouble rig.Outage) {
	if trouble.MemoryFull && c.SeveralCalls != "" {
		t.Skip("two verbs, of which a full store lets only one through")
	}
	if trouble.MemoryFull && c.OtherWhenFull != "" {
		t.Skip(c.OtherWhenFull)
	}
	if trouble.NeedsAdoption && c.OtherWhenMoved != "" {
		t.Skip(c.OtherWhenMoved)
	}
	p := calls.Setup{T: t, Store: s.Store()}
	p.Store.Redis.Dialer = func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "tcp", s.Addr)
	}
	want := s.undisturbed(p, c)
	w := p.NewEnv()
	defer w.Close()
	c.Setup(w)
	before := dumpWithoutTime(w)
	end := sync.OnceFunc(trouble.Begin(t, s.Node))
	defer end()
	if trouble.MemoryFull {
		w.Faults.Cut() // new connections have to be made, too
		w.Faults.Heal()
	}
	answer, err := c.Call(w, w.Via)
	refused, passes := false, trouble.MemoryFull && (c.PassesWhenFull || slices.Contains(allowedWhenFull, c.Script()))
	switch {
	case passes || c.NeverRepeated != "":
		kit.OK(t, err)
	case trouble.NoAnswer:
		if picket.CodeOf(err) != picket.CodeUnavailable || !errors.Is(err, picket.ErrUnknown) {
			t.Errorf("a call without an answer got %v (%s)", err, picket.CodeOf(err))
		}
	default:
		expectRefusal(t, trouble, err)
		refused = true
	}
	if trouble.NeedsAdoption { // it will be another one, but still answers
		unchanged(w, before)
	}
	end()
	// anyone who connects again converts and adopts
	byConnecting := c.Script() == "adopt" || c.Script() == "migrate"
	if refused && !trouble.NeedsAdoption && !(trouble.ClosesConnections && byConnecting) {
		unchanged(w, before)
	}
	if !passes && c.NeverRepeated == "" {
		answer = callAgain(w, c)
	}
	if !trouble.NeedsAdoption {
		expectEnd(w, c, answer, want)
	}
	expectWorks(w)
}

// undisturbed is how a case may end: its effect once. A call that is an act of
// its own each time may have had it twice, one that nobody repeats not at all.
func (s *faultyStore) undisturbed(p calls.Setup, c calls.Case) (ends []string) {
	stories := []string{"c"}
	if c.NeverRepeated != "" {
		stories = append(stories, "")
	} else if c.RepeatCounts != "" {
		stories = append(stories, "cc")
	}
	for _, story := range stories {
		key := c.Name + " " + story
		if s.calm[key] == "" {
			s.calm[key] = anyServer(p.Baseline(c, story))
		}
		ends = append(ends, s.calm[key])
	}
	return ends
}

// anyServer leaves out which server the namespace was adopted on.
func anyServer(text string) string { return kit.WithoutLines(text, kit.Meta+" identity ") }

// expectEnd waits until the store is as after an undisturbed call: a request
// that nobody repeats may be served only now.
func expectEnd(w *calls.Env, c calls.Case, answer any, want []string) {
	w.T.Helper()
	for deadline := time.Now().Add(10 * time.Second); ; {
		text, err := kit.Dump(w.Ctx, w.Raw, answer)
		if c.AnswerVaries != "" {
			text = kit.WithoutLines(text, "answer ")
		}
		got := anyServer(text)
		if err == nil && slices.Contains(want, got) {
			return
		}
		if c.NeverRepeated == "" || time.Now().After(deadline) {
			w.T.Errorf("in the end the store is not as after an undisturbed call: %v\n%s", err,
				kit.DiffLines(got, want[0]))
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
func unchanged(w *calls.Env, before string) {
	w.T.Helper()
	if after := dumpWithoutTime(w); after != before {
		w.T.Errorf("a refused call left traces:\n%s", kit.DiffLines(after, before))
	}
}

// dumpWithoutTime is all that the namespace holds except for what says only what time it is.
func dumpWithoutTime(w *calls.Env) string {
	w.T.Helper()
	text, err := kit.Dump(w.Ctx, w.Raw, nil)
	kit.OK(w.T, err)
	return kit.WithoutLines(text, kit.Meta+" now ", kit.Meta+" raw ")
}

// callAgain makes the request again until it is let through, as its caller
// would: connections that broke are noticed one by one.
func callAgain(w *calls.Env, c calls.Case) any {
	w.T.Helper()
	for deadline := time.Now().Add(30 * time.Second); ; {
		answer, err := c.Call(w, w.Via)
		if err == nil {
			return answer
		}
		if picket.CodeOf(err) != picket.CodeUnavailable || time.Now().After(deadline) {
			w.T.Fatalf("after the trouble: %v (%s)", err, picket.CodeOf(err))
		}
	}
}

// expectWorks checks that the engine goes on automatically: a life from beginning
// to end, a woken long poll, and nothing that breaks an invariant.
func expectWorks(w *calls.Env) {
	w.T.Helper()
	leased := make(chan error, 1)
	go func() {
		leases, err := w.Via.Acquire(w.Ctx, kit.Operator,
			picket.AcquireRequest{AgentID: "later", Role: "later", WaitSeconds: kit.Ptr(30)})
		if err == nil && len(leases) != 1 {
			err = fmt.Errorf("acquired %d leases", len(leases))
		}
		if err == nil {
			var held picket.LeaseCredential
			held, err = rig.Sealer().OpenLeaseToken(leases[0].LeaseToken.Reveal())
			if err == nil {
				_, err = w.Via.Complete(w.Ctx, held, picket.Completion{Output: picket.RawJSON(`1`)})
			}
		}
		leased <- err
	}()
	if _, err := w.Direct.Resume(w.Ctx, kit.Operator, ""); err != nil { // in case the case was a pause
		w.T.Error(err)
	}
	_, err := w.Direct.Submit(w.Ctx, kit.Operator, picket.TaskSpec{Title: "later", Role: "later"})
	kit.OK(w.T, err)
	kit.OK(w.T, <-leased)
	for cursor := ""; ; {
		part, err := w.Direct.Inspect(w.Ctx, kit.Operator, picket.InspectRequest{Cursor: cursor})
		kit.OK(w.T, err)
		for _, v := range part.Violations {
			w.T.Errorf("violated: %+v", v)
		}
		if cursor = part.Next; cursor == "" {
			return
		}
	}
}

// A full store lets everything through that ends, stops or frees something, and
// everything that only reads; and it refuses the rest.
func TestVerbsThatAFullStoreAllows(t *testing.T) {
	for name, verb := range kit.Builtin(t).Verbs {
		must := slices.Contains(allowedWhenFull, name) || slices.Contains(calls.Readers, name)
		if has := slices.Contains(verb.Flags, "allow-oom"); has != must {
			t.Errorf("%s.lua runs on a full store: %v, want %v", name, has, must)
		}
	}
}
