package store

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/redis/go-redis/v9"
)

func newTestNotifier() *notifier {
	return newNotifier(redis.NewClient(&redis.Options{}), "test", nil, nil)
}

// waiterFor waits for the open lanes that begin with a role, and for those of an agent.
func waiterFor(agent, role string, topics ...Topic) func() Waiter {
	return func() Waiter {
		return Waiter{
			Agent:  agent,
			Class:  role,
			Covers: func(lane string) bool { _, open := SplitLane(lane); return strings.HasPrefix(open, role+"|") },
			Topics: topics,
		}
	}
}

// joinedWaiter is a waiter whose first ask was answered with nothing.
func joinedWaiter(h *notifier, agent, role string, topics ...Topic) *Subscription {
	s := h.subscribeOne(waiterFor(agent, role, topics...))
	s.join()
	return s
}

// received returns the message that waits for a subscription, "none" without one.
func received(s *Subscription) string {
	select {
	case s.taken = <-s.wakeup:
		return s.taken
	default:
		return "none"
	}
}

func wantReceived(t *testing.T, what string, s *Subscription, want string) {
	t.Helper()
	if got := received(s); got != want {
		t.Errorf("%s: received %q, want %q", what, got, want)
	}
}

// A message wakes one of the waiters that it is for, and nobody else. A shared subscription always receives it.
func TestAMessageWakesOneWaiterThatItIsFor(t *testing.T) {
	for message, want := range map[string][]string{
		"lane coder|":          {"coder", "coder 2", "a1"},
		"lane coder|go,linux":  {"coder", "coder 2", "a1"},
		"lane writer|":         {"writer"},
		"lane other|":          nil,
		"lane agent:a1":        {"a1"},
		"lane agent:a2":        nil,
		"lane for:a1|writer|":  {"a1"},
		"lane for:a2|writer|":  {"writer"},
		"lane for:a2|nobody|x": nil,
		"agent a1":             {"a1"},
		"revoked key_1":        {"coder", "writer"},
		"task task_1":          nil,
	} {
		h := newTestNotifier()
		waiters := map[string]*Subscription{
			"coder":   joinedWaiter(h, "", "coder", "revoked key_1"),
			"coder 2": joinedWaiter(h, "", "coder"),
			"writer":  joinedWaiter(h, "", "writer", "revoked key_1"),
			"a1":      joinedWaiter(h, "a1", "coder", "agent a1"),
		}
		shared := []*Subscription{h.subscribe(Topic(message)), h.subscribe("push", Topic(message)), h.subscribeAll()}
		other := h.subscribe("another topic")
		for _, s := range shared {
			defer s.end()
		}
		h.notify(message)
		for _, s := range shared {
			wantReceived(t, message+": shared", s, message)
		}
		wantReceived(t, message+": another topic", other, "none")
		var woken []string
		for name, s := range waiters {
			if received(s) == message {
				woken = append(woken, name)
			}
		}
		if len(woken) > 1 || len(woken) == 1 != (len(want) > 0) || len(woken) == 1 && !slices.Contains(want, woken[0]) {
			t.Errorf("%s: woke %q, want one of %q", message, woken, want)
		}
	}
}

// As many messages wake as many waiters of one class, because one that was woken and has not looked yet is passed over.
func TestEachMessageWakesAnotherWaiter(t *testing.T) {
	h := newTestNotifier()
	waiters := make([]*Subscription, 20)
	for i := range waiters {
		waiters[i] = joinedWaiter(h, fmt.Sprint("a", i), "coder")
	}
	for range waiters {
		h.notify("lane coder|")
	}
	for i, s := range waiters {
		wantReceived(t, fmt.Sprint("waiter ", i), s, "lane coder|")
	}
}

// A message that comes after a waiter was made and before it joins reaches it, unless another waiter has received it.
func TestNoMessageIsMissedBeforeJoin(t *testing.T) {
	h := newTestNotifier()
	h.notify("lane coder|") // before the waiters are made: their first ask sees the task
	first, second := h.subscribeOne(waiterFor("", "coder")), h.subscribeOne(waiterFor("a1", "writer", "agent a1"))
	third := h.subscribeOne(waiterFor("", "coder"))
	for _, message := range []string{"lane writer|x", "task task_1", "lane coder|"} {
		h.notify(message)
	}
	first.join()
	wantReceived(t, "first", first, "lane coder|")
	third.join()
	wantReceived(t, "third, after the first has received the message", third, "none")
	second.join()
	wantReceived(t, "second", second, "lane writer|x")

	first.end() // it hands on what it has received last, as its ask may have found nothing again
	wantReceived(t, "third, after the first has ended", third, "lane coder|")
	fourth := h.subscribeOne(waiterFor("", "coder"))
	third.end()
	fourth.join()
	wantReceived(t, "fourth, after all others have ended", fourth, "lane coder|")
}

// A waiter looks again if everybody was woken before it joined, or if more messages have come than are kept.
func TestAWaiterLooksAgainIfMessagesMayBeMissing(t *testing.T) {
	h := newTestNotifier()
	for what, come := range map[string]func(){
		"after a reconnect":         h.notifyAll,
		"after a wake-up of all":    func() { h.notify(wakeAllMessage) },
		"after too many messages":   func() { notifyTimes(h, keptMissed+1) },
		"after two such reconnects": func() { h.notifyAll(); notifyTimes(h, 3); h.notifyAll() },
	} {
		s, other := h.subscribeOne(waiterFor("", "coder")), h.subscribeOne(waiterFor("", "coder"))
		come()
		s.join()
		wantReceived(t, what, s, "")
		other.join()
		wantReceived(t, what+", another one", other, "")
		later := h.subscribeOne(waiterFor("", "coder"))
		later.join()
		wantReceived(t, what+", a later one", later, "none")
		for _, s := range []*Subscription{s, other, later} {
			s.end()
		}
	}
	s := h.subscribeOne(waiterFor("", "coder"))
	h.notify("lane coder|1")
	notifyTimes(h, keptMissed-1)
	s.join()
	wantReceived(t, "as many messages as are kept", s, "lane coder|1")
}

func notifyTimes(h *notifier, n int) {
	for range n {
		h.notify("lane other|")
	}
}

// Nothing stays in the index of what has ended.
func TestEndedSubscriptionsLeaveNothing(t *testing.T) {
	h := newTestNotifier()
	var group sync.WaitGroup
	for i := range 50 {
		group.Go(func() {
			role, agent := fmt.Sprint("role", i%5), fmt.Sprint("a", i%7)
			never := h.subscribeOne(waiterFor(agent, role))
			for _, s := range []*Subscription{joinedWaiter(h, agent, role, Topic("agent "+agent)), h.subscribeAll(),
				h.subscribe("push", Topic("task "+role)), never} {
				h.notify("lane " + role + "|")
				s.end()
			}
		})
	}
	group.Wait()
	x := h.subscriptions
	if n := len(x.all) + len(x.everything) + len(x.topics) + len(x.agents) + len(x.classes) + len(x.covers); n != 0 {
		t.Errorf("%d entries are left: %+v", n, x)
	}
}

// BenchmarkNotify wakes a waiter that looks at once. Others wait for another lane meanwhile.
func BenchmarkNotify(b *testing.B) {
	for _, others := range []int{0, 100, 10_000} {
		b.Run(fmt.Sprintf("others=%d", others), func(b *testing.B) {
			h := newTestNotifier()
			for i := range others {
				joinedWaiter(h, fmt.Sprint("other", i), fmt.Sprint("role", i%10))
			}
			s := joinedWaiter(h, "a1", "coder")
			for b.Loop() {
				h.notify("lane coder|go")
				<-s.wakeup
			}
		})
	}
}

// BenchmarkFirstAsk is the part of a wait in which the first ask finds a lease.
func BenchmarkFirstAsk(b *testing.B) {
	h := newTestNotifier()
	b.ReportAllocs()
	for b.Loop() {
		h.subscribeOne(waiterFor("a1", "coder", "agent a1")).end()
	}
}
