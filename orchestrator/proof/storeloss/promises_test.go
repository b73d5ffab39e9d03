package storeloss

import (
	"fmt"
	"strings"
	"sync"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/orchestrator/proof/kit"
)

// promiseChecker is what the clients of a store know, whatever the store forgets:
// every token that was ever given to anybody, per task. A store that breaks a
// promise is found out by it.
type promiseChecker struct {
	mu      sync.Mutex
	stamp   int64
	tokens  map[string][]seenToken
	granted int
	raised  int // by reclaim
	broken  map[string]int
	// split says that an old primary may still be giving tokens, which then have
	// to be at or below the floor of the new one: late, by task.
	split bool
	late  map[string][]int64
	first []string // the first few broken promises, for a person
}

// seenToken is a token and when its receiver knew it.
type seenToken struct {
	token int64
	stamp int64
}

func newPromiseChecker() *promiseChecker {
	return &promiseChecker{tokens: map[string][]seenToken{}, broken: map[string]int{}, late: map[string][]int64{}}
}

// nextStamp is a moment: what was seen before it is smaller.
func (m *promiseChecker) nextStamp() int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.stamp++
	return m.stamp
}

// recordBroken records a broken promise under its name.
func (m *promiseChecker) recordBroken(promise, format string, args ...any) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.recordBrokenLocked(promise, format, args...)
}

func (m *promiseChecker) recordBrokenLocked(promise, format string, args ...any) {
	m.broken[promise]++
	if m.broken[promise] <= 5 {
		m.first = append(m.first, promise+": "+fmt.Sprintf(format, args...))
	}
}

// recordToken notes a token that was made for a task after the moment since. It has to
// be above all that anybody knew by then, and no token is ever given twice.
func (m *promiseChecker) recordToken(task string, token, since int64, how string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if how == "grant" {
		m.granted++
	} else {
		m.raised++
	}
	for _, was := range m.tokens[task] {
		if m.split && was.token > token {
			m.late[task] = append(m.late[task], token)
			break
		}
		if was.token == token || was.stamp < since && was.token > token {
			m.recordBrokenLocked("tokens rise", "%s: %s gave %d, and %d had been given before", task, how, token,
				was.token)
			break
		}
	}
	m.stamp++
	m.tokens[task] = append(m.tokens[task], seenToken{token, m.stamp})
}

// recordFall notes that a renewal reported a lower token than the run has. During a split an old primary
// that does not know the newer token may do that. Its token has to be at or below the floor of the new one.
func (m *promiseChecker) recordFall(h *clientLease, token int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.split {
		m.late[h.TaskID] = append(m.late[h.TaskID], token)
		return
	}
	m.recordBrokenLocked(promiseTokenNeverFalls, "%s: run %s had token %d, then %d", h.TaskID, h.RunID, h.token, token)
}

// keepHighest is called when no call is on its way: one token now stands for all.
func (m *promiseChecker) keepHighest() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for task, list := range m.tokens {
		top := list[0]
		for _, s := range list {
			if s.token > top.token {
				top = s
			}
		}
		m.tokens[task] = append(list[:0], top)
	}
}

// endSplit ends a split: whatever the old primary gave is below the floor.
func (m *promiseChecker) endSplit(floor int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for task, list := range m.late {
		for _, token := range list {
			if token > floor {
				m.recordBrokenLocked("tokens rise", "%s: %d came after a higher one, and it is above the floor %d",
					task,
					token, floor)
			}
		}
	}
	clear(m.late)
	m.split = false
}

// highest is the highest token known of a task, 0 when none is.
func (m *promiseChecker) highest(task string) int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	top := int64(0)
	for _, s := range m.tokens[task] {
		top = max(top, s.token)
	}
	return top
}

// example is one case of a broken promise.
func (m *promiseChecker) example(promise string) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, text := range m.first {
		if strings.HasPrefix(text, promise+": ") {
			return text
		}
	}
	return promise
}

// grantedCount is how many tokens were granted.
func (m *promiseChecker) grantedCount() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.granted
}

// brokenCount is how often a promise was broken.
func (m *promiseChecker) brokenCount(promise string) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.broken[promise]
}

// lossReader reads the event log through every loss, as a consumer does that
// remembers nothing but its cursor, and a few things more to find out cheats.
type lossReader struct {
	m      *promiseChecker
	last   int64
	floor  int64
	tokens map[string]int64 // the highest token of each task in the log
	seen   map[int64]string // what stood under the latest sequence numbers
	leaps  int
	events int
}

func newLossReader(m *promiseChecker) *lossReader {
	return &lossReader{m: m, tokens: map[string]int64{}, seen: map[int64]string{}}
}

func (r *lossReader) read(ev picket.Event) {
	switch {
	case ev.Seq <= r.last:
		r.m.recordBroken("the cursor never falls", "event %d %s came after %d", ev.Seq, ev.Type, r.last)
	case ev.Seq > r.last+1 && ev.Type != picket.EventStoreAdopted:
		r.m.recordBroken("store.adopted comes first", "after event %d came %d %s", r.last, ev.Seq, ev.Type)
	case ev.Seq > r.last+1:
		r.leaps++
	}
	r.last = ev.Seq
	r.events++
	r.seen[ev.Seq] = outline(ev)
	delete(r.seen, ev.Seq-5000)
	if ev.Type == picket.EventStoreAdopted {
		floor := floorOf(ev)
		if floor <= r.floor {
			r.m.recordBroken("floors rise", "event %d adopts with floor %d after %d", ev.Seq, floor, r.floor)
		}
		r.floor = floor
	}
	if ev.Type == picket.EventTaskLeased || ev.Type == picket.EventLeaseReclaimed {
		if ev.FencingToken <= r.tokens[ev.TaskID] {
			r.m.recordBroken("tokens rise", "event %d %s of %s has token %d after %d", ev.Seq, ev.Type, ev.TaskID,
				ev.FencingToken, r.tokens[ev.TaskID])
		}
		r.tokens[ev.TaskID] = ev.FencingToken
	}
	if kit.FencedEvents[ev.Type] && ev.FencingToken <= r.floor {
		r.m.recordBroken("no write under a void token", "event %d %s has token %d, the floor is %d", ev.Seq, ev.Type,
			ev.FencingToken, r.floor)
	}
}

// readAgain compares an event that is read a second time, past the engine, with
// what it was.
func (r *lossReader) readAgain(seq int64, fields map[string]any) {
	is := fmt.Sprint(fields["type"], " ", number(fields["at"]), " ", fields["actor"])
	if was, ok := r.seen[seq]; ok && was != is {
		r.m.recordBroken("no sequence number is used twice", "event %d was %s, now it is %s", seq, was, is)
	}
}

func outline(ev picket.Event) string { return fmt.Sprint(ev.Type, " ", int64(ev.At), " ", ev.Actor) }
