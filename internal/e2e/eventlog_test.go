//go:build linux

package e2e

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/picket-dev/picket"
)

// eventLog follows a world's event stream from its first event on and connects
// again where it was whenever the server was away.
type eventLog struct {
	w       *testEnv
	mu      sync.Mutex
	events  []picket.Event
	changed chan struct{}
	stop    context.CancelFunc
}

func followEvents(w *testEnv) *eventLog {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	j := &eventLog{w: w, changed: make(chan struct{})}
	j.stop = func() { cancel(); <-ended }
	url, key := w.url, w.key
	go func() {
		defer close(ended)
		for ctx.Err() == nil {
			j.read(ctx, url, key)
			select {
			case <-ctx.Done():
			case <-time.After(20 * time.Millisecond): // between attempts to connect
			}
		}
	}()
	return j
}

// read is one connection.
func (j *eventLog) read(ctx context.Context, url, key string) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/api/v1/events", nil)
	if err != nil {
		return
	}
	req.Header.Set("Authorization", "Bearer "+key)
	req.Header.Set("Accept", "text/event-stream")
	req.Header.Set("Last-Event-ID", strconv.FormatInt(j.last(), 10))
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return
	}
	defer res.Body.Close()
	lines := bufio.NewScanner(res.Body)
	lines.Buffer(nil, 4<<20)
	for lines.Scan() {
		data, ok := strings.CutPrefix(lines.Text(), "data: ")
		var ev picket.Event
		if ok && json.Unmarshal([]byte(data), &ev) == nil && ev.Seq > 0 {
			j.add(ev)
		}
	}
}

func (j *eventLog) add(ev picket.Event) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.events = append(j.events, ev)
	close(j.changed)
	j.changed = make(chan struct{})
}

func (j *eventLog) all() []picket.Event {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.events[:len(j.events):len(j.events)]
}

func (j *eventLog) last() int64 {
	all := j.all()
	if len(all) == 0 {
		return 0
	}
	return all[len(all)-1].Seq
}

// event waits for the first event that is as wanted.
func (w *testEnv) event(what string, as func(picket.Event) bool) picket.Event {
	w.t.Helper()
	return w.eventWithin(waitLimit, what, as)
}

func (w *testEnv) eventWithin(limit time.Duration, what string, as func(picket.Event) bool) picket.Event {
	w.t.Helper()
	late := time.After(limit)
	for seen := 0; ; {
		w.events.mu.Lock()
		all, changed := w.events.events, w.events.changed
		w.events.mu.Unlock()
		for ; seen < len(all); seen++ {
			if as(all[seen]) {
				return all[seen]
			}
		}
		select {
		case <-changed:
		case <-late:
			w.t.Fatalf("no event: %s; the log has:\n%s", what, w.events)
		}
	}
}

// of waits for the first event of a type about a task.
func (w *testEnv) of(task, kind string) picket.Event {
	w.t.Helper()
	return w.event(kind+" of "+task, func(ev picket.Event) bool { return ev.Type == kind && ev.TaskID == task })
}

// leasedAgain waits until a task was granted under a token above the floor of
// an adoption.
func (w *testEnv) leasedAgain(task string) picket.Event {
	w.t.Helper()
	return w.event("second lease of "+task, func(ev picket.Event) bool {
		return ev.Type == picket.EventTaskLeased && ev.TaskID == task && ev.FencingToken > 1<<21
	})
}

// leased waits until a task was granted under a token.
func (w *testEnv) leased(task string, token int64) picket.Event {
	w.t.Helper()
	return w.event(fmt.Sprintf("lease %d of %s", token, task), func(ev picket.Event) bool {
		return ev.Type == picket.EventTaskLeased && ev.TaskID == task && ev.FencingToken == token
	})
}

// exited waits until the exit of the run under a token is known. It is part of the
// review: a decision before it would be refused, because the review has changed.
func (w *testEnv) exited(task string, token int64) {
	w.t.Helper()
	w.event(fmt.Sprintf("exit of run %d of %s", token, task), func(ev picket.Event) bool {
		return ev.Type == picket.EventRunExited && ev.TaskID == task && ev.FencingToken == token
	})
}

// String is the log for a person, without its payloads.
func (j *eventLog) String() string {
	var b strings.Builder
	for _, ev := range j.all() {
		fmt.Fprintf(&b, "%d %s %s %s fence %d %s %s\n", ev.Seq, ev.At, ev.Type, ev.TaskID, ev.FencingToken, ev.AgentID,
			ev.Data)
	}
	return b.String()
}

// taskHistory is what the log alone says about a task.
type taskHistory struct {
	state    picket.TaskState
	token    int64
	attempts int
	failures int
}

// stateChange is the part of an event's data that a replay needs.
type stateChange struct {
	State     picket.TaskState `json:"state"`
	Failures  *int             `json:"failures"`
	NewTaskID string           `json:"newTaskId"`
}

// replay follows the log and reports every promise that it breaks: a gap, a
// second holder, a token that does not rise, a write from below the floor of an
// adoption, a closed task that moves.
func replay(events []picket.Event) (tasks map[string]*taskHistory, broken []string) {
	tasks = map[string]*taskHistory{}
	var last, floor int64
	for _, ev := range events {
		complain := func(format string, args ...any) {
			broken = append(broken, fmt.Sprintf("event %d %s of %s: ", ev.Seq, ev.Type, ev.TaskID)+
				fmt.Sprintf(format, args...))
		}
		switch {
		case ev.Type == picket.EventStoreAdopted && ev.Seq > last: // the one that leaps
			floor = ev.Seq - 1
		case ev.Seq != last+1:
			complain("it comes after %d", last)
		}
		last = ev.Seq
		var d stateChange
		if err := json.Unmarshal(ev.Data, &d); err != nil {
			complain("%v", err)
		}
		if ev.TaskID == "" || d.State == "" || d.NewTaskID != "" {
			continue
		}
		t := tasks[ev.TaskID]
		if t == nil {
			t = &taskHistory{}
			tasks[ev.TaskID] = t
		}
		if t.state.Terminal() && d.State != t.state {
			complain("a task that is %s becomes %s", t.state, d.State)
		}
		if ev.Type == picket.EventTaskLeased && t.state != picket.TaskQueued ||
			ev.Type == picket.EventLeaseReclaimed && t.state != picket.TaskLeased {
			complain("while %s", t.state)
		}
		if ev.Type == picket.EventTaskLeased || ev.Type == picket.EventLeaseReclaimed {
			if ev.FencingToken <= t.token {
				complain("token %d after %d", ev.FencingToken, t.token)
			}
			t.token = ev.FencingToken
		}
		if ev.Type == picket.EventTaskLeased {
			t.attempts++
		}
		if ev.Type == picket.EventTaskProgress &&
			(t.state != picket.TaskLeased || ev.FencingToken != t.token || t.token <= floor) {
			complain("a write under %d was let in; the task is %s under %d", ev.FencingToken, t.state, t.token)
		}
		t.state = d.State
		if d.Failures != nil {
			t.failures = *d.Failures
		}
	}
	return tasks, broken
}

// check replays the log up to what the server has now and compares the result
// with what the server says about each task.
func (j *eventLog) check() {
	t := j.w.t
	t.Helper()
	if t.Failed() {
		return
	}
	events := j.w.allEvents()
	tasks, broken := replay(events)
	for _, b := range broken {
		t.Error(b)
	}
	for id, is := range tasks {
		got := j.w.task(id)
		if got.State != is.state || got.FencingToken != is.token || got.Attempts != is.attempts ||
			got.Failures != is.failures {
			t.Errorf("%s is %s under %d after %d attempts and %d failures; the log says %+v",
				id, got.State, got.FencingToken, got.Attempts, got.Failures, *is)
		}
	}
}

// allEvents reads the whole log page by page.
func (w *testEnv) allEvents() (all []picket.Event) {
	w.t.Helper()
	for after := "0"; ; {
		var page picket.EventPage
		w.into(&page, http.MethodGet, "/events?limit=1000&after="+after, nil)
		all = append(all, page.Events...)
		if len(page.Events) < 1000 {
			return all
		}
		after = page.Next
	}
}
