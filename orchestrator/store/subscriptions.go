package store

import (
	"slices"
	"strings"
	"sync/atomic"
)

type subscriptionSet map[*Subscription]struct{}

// sets are subscriptions by what wakes them.
type sets[K comparable] map[K]subscriptionSet

func (m sets[K]) add(key K, s *Subscription) {
	if m[key] == nil {
		m[key] = subscriptionSet{}
	}
	m[key][s] = struct{}{}
}

func (m sets[K]) remove(key K, s *Subscription) {
	delete(m[key], s)
	if len(m[key]) == 0 {
		delete(m, key)
	}
}

// subscriptionIndex finds the subscriptions that a message wakes without a look at all others. Waiters that cover the
// same lanes are one class, so a message about a lane looks at each class once.
type subscriptionIndex struct {
	all        subscriptionSet
	everything subscriptionSet
	topics     sets[Topic]
	agents     sets[string]                 // waiters by their agent
	classes    sets[string]                 // waiters by what they cover
	covers     map[string]func(string) bool // by the name of a class
}

func newSubscriptionIndex() subscriptionIndex {
	return subscriptionIndex{
		all:        subscriptionSet{},
		everything: subscriptionSet{},
		topics:     sets[Topic]{},
		agents:     sets[string]{},
		classes:    sets[string]{},
		covers:     map[string]func(string) bool{},
	}
}

func (x *subscriptionIndex) add(s *Subscription) {
	x.all[s] = struct{}{}
	if s.everything {
		x.everything[s] = struct{}{}
	}
	for _, t := range s.topics {
		x.topics.add(t, s)
	}
	if s.waiter.Agent != "" {
		x.agents.add(s.waiter.Agent, s)
	}
	if s.waiter.Covers != nil {
		x.classes.add(s.waiter.Class, s)
		x.covers[s.waiter.Class] = s.waiter.Covers
	}
}

func (x *subscriptionIndex) remove(s *Subscription) {
	delete(x.all, s)
	delete(x.everything, s)
	for _, t := range s.topics {
		x.topics.remove(t, s)
	}
	x.agents.remove(s.waiter.Agent, s)
	x.classes.remove(s.waiter.Class, s)
	if x.classes[s.waiter.Class] == nil {
		delete(x.covers, s.waiter.Class)
	}
}

// notify wakes every subscription of a message that shares it, and one of those that do not. It reports whether
// there was one of these.
func (x *subscriptionIndex) notify(message string) bool {
	for s := range x.everything {
		s.wake(message)
	}
	one := false
	for s := range x.topics[Topic(message)] {
		if s.shared || !one {
			one = s.wake(message) && !s.shared || one
		}
	}
	lane, ok := strings.CutPrefix(message, lanePrefix)
	return one || ok && x.wakeWaiter(lane, message)
}

// wakeWaiter wakes a waiter that takes tasks of a lane. It reports whether there is one.
func (x *subscriptionIndex) wakeWaiter(lane, message string) bool {
	if agent := LaneAgent(lane); agent != "" && x.agents[agent].wakeOne(message) {
		return true
	}
	for class, waiters := range x.classes {
		if x.covers[class](lane) && waiters.wakeOne(message) {
			return true
		}
	}
	return false
}

func (set subscriptionSet) wakeOne(message string) bool {
	for s := range set {
		if s.wake(message) {
			return true
		}
	}
	return false
}

// receives reports whether a message is for the subscription.
func (s *Subscription) receives(message string) bool {
	if s.everything || slices.Contains(s.topics, Topic(message)) {
		return true
	}
	lane, ok := strings.CutPrefix(message, lanePrefix)
	if !ok {
		return false
	}
	agent := LaneAgent(lane)
	return agent != "" && agent == s.waiter.Agent || s.waiter.Covers != nil && s.waiter.Covers(lane)
}

// keptMissed is how many missed messages are kept. While a request asks for a lease, hundreds may come on a busy
// server.
const keptMissed = 512

// missedMessages are the last messages that no waiter has received. A waiter that begins to wait, because its
// first ask found nothing, looks among them for one that came since it asked.
type missedMessages struct {
	next atomic.Uint64 // number of the next message
	kept [keptMissed]missedMessage
}

// missedMessage is one of them. Its text is "" if it is for everybody.
type missedMessage struct {
	text  string
	taken bool // a waiter has received it after all
}

// number returns the number of the next message. It may be called without the lock of the notifier.
func (m *missedMessages) number() uint64 { return m.next.Load() }

func (m *missedMessages) add(message string) {
	n := m.next.Load()
	m.kept[n%keptMissed] = missedMessage{text: message}
	m.next.Store(n + 1)
}

// take takes the first message that is for a subscription and came since it was made. If messages since then are not
// kept any more, it returns "", as after a reconnect.
func (m *missedMessages) take(s *Subscription) (message string, ok bool) {
	next := m.next.Load()
	if next-s.since > keptMissed {
		return "", true
	}
	for n := s.since; n < next; n++ {
		missed := &m.kept[n%keptMissed]
		if missed.text == "" {
			return "", true
		}
		if !missed.taken && s.receives(missed.text) {
			missed.taken = true
			return missed.text, true
		}
	}
	return "", false
}
