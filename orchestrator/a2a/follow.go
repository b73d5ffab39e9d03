package a2a

import (
	"context"
	"errors"
	"math"
	"strconv"
	"sync"
	"time"

	protocol "github.com/a2aproject/a2a-go/v2/a2a"
	"golang.org/x/sync/errgroup"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/internal/web"
	"github.com/picket-dev/picket/orchestrator"
)

// follower reads the event log of one namespace while anybody follows one of its tasks. Each task is read again once
// for all who follow it, when an event says that it has changed.
type follower struct {
	engine *orchestrator.Engine

	mu    sync.Mutex
	tasks map[string]*followed // by task id; a task without readers is not in it
	stop  context.CancelFunc   // of the reader of the log; nil: it does not run
}

// followed is a task that somebody follows.
type followed struct {
	id      string
	readers int // guarded by follower.mu

	mu   sync.Mutex // held while the task is read
	task picket.Task
	last *update // where the next updates are put; nil before the task was read
}

// update is what happened next to a task. Readers wait at the newest one, and each goes on at its own pace; what all of
// them have passed is garbage.
type update struct {
	ready chan struct{}  // closed when the other members are set
	event protocol.Event // nil: nothing that a client sees
	run   string         // the run that holds the task, or ""
	// reply is the message with which the agent has answered the client, and completed the task.
	reply *protocol.Message
	next  *update // nil: the task has ended
	err   error   // the task can be followed no more
}

func newUpdate() *update { return &update{ready: make(chan struct{})} }

// logWorkers is how many tasks are read at once after a page of events.
const logWorkers = 8

// logNap is how long the reader waits for an event before it looks whether the store was restored.
const logNap = 15 * time.Second

// readRetry is the pause after the store could not be read. It doubles up to readRetryMost.
const (
	readRetry     = 100 * time.Millisecond
	readRetryMost = 5 * time.Second
)

// follower finds the follower of an engine.
func (s *Server) follower(e *orchestrator.Engine) *follower {
	s.mu.Lock()
	defer s.mu.Unlock()
	f := s.followers[e]
	if f == nil {
		f = &follower{engine: e, tasks: map[string]*followed{}}
		s.followers[e] = f
	}
	return f
}

// join begins to follow a task. It returns the task, which is not older than seen, and where the updates after it will
// be. leave must be called.
func (f *follower) join(ctx context.Context, seen picket.Task) (t picket.Task, next *update, leave func(), err error) {
	f.mu.Lock()
	task := f.tasks[seen.TaskID]
	if task == nil {
		task = &followed{id: seen.TaskID}
		f.tasks[seen.TaskID] = task
	}
	task.readers++
	if f.stop == nil {
		f.start()
	}
	f.mu.Unlock()
	leave = sync.OnceFunc(func() { f.leave(task) })
	task.mu.Lock()
	defer task.mu.Unlock()
	if task.last == nil {
		if task.task, err = f.engine.Task(ctx, task.id); err == nil {
			task.last = newUpdate()
		}
	} else {
		err = task.readAgain(ctx, f.engine, seen.AsOf) // the reader of the log may be behind
	}
	if err != nil {
		leave()
		return t, nil, nil, err
	}
	return task.task, task.last, leave, nil
}

func (f *follower) leave(task *followed) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if task.readers--; task.readers > 0 {
		return
	}
	if f.tasks[task.id] == task {
		delete(f.tasks, task.id)
	}
	if len(f.tasks) == 0 && f.stop != nil {
		f.stop()
		f.stop = nil
	}
}

// start begins to read the log. It is called with mu held, before the first task is read: the events that the reader
// skips are older than that.
func (f *follower) start() {
	ctx, stop := context.WithCancel(context.Background())
	f.stop = stop
	go f.read(ctx)
}

// read reads the log until ctx ends.
func (f *follower) read(ctx context.Context) {
	after, pause := int64(-1), readRetry
	for ctx.Err() == nil {
		next, err := f.readPage(ctx, after)
		if err == nil {
			after, pause = next, readRetry
			continue
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause):
			pause = min(2*pause, readRetryMost)
		}
	}
}

// readPage waits for events after a place in the log, and reads the tasks again that they are about. It returns the
// place up to which all is read. Before the first place, and after a gap in the log, all tasks are read again.
func (f *follower) readPage(ctx context.Context, after int64) (int64, error) {
	last, err := f.engine.LastSeq(ctx)
	if err != nil {
		return after, err
	}
	if after < 0 || last < after { // at the beginning, or in the log of a restored store
		return last, f.refresh(ctx, f.all())
	}
	if last == after {
		return after, f.awaitEvent(ctx, after)
	}
	page, err := f.engine.Events(ctx, picket.EventQuery{After: after, Limit: 1000})
	if errors.Is(err, picket.CodeCursorExpired) {
		return -1, nil
	}
	if err != nil {
		return after, err
	}
	next, err := strconv.ParseInt(page.Next, 10, 64)
	if err != nil {
		return after, err
	}
	return next, f.refresh(ctx, f.changed(page.Events))
}

// awaitEvent waits for an event, and looks from time to time whether the log is still the same one.
func (f *follower) awaitEvent(ctx context.Context, after int64) error {
	nap, cancel := context.WithTimeout(ctx, logNap)
	defer cancel()
	err := f.engine.Tail(nap, after)
	if nap.Err() != nil {
		return ctx.Err()
	}
	return err
}

// afterRestore is later than any event: a task is read again as a whole.
const afterRestore = math.MaxInt64

// all are the followed tasks, to be read whatever was read before.
func (f *follower) all() map[*followed]int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	list := map[*followed]int64{}
	for _, t := range f.tasks {
		list[t] = afterRestore
	}
	return list
}

// changed are the followed tasks that events are about, with the last event of each.
func (f *follower) changed(events []picket.Event) map[*followed]int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	list := map[*followed]int64{}
	for _, ev := range events {
		if t := f.tasks[ev.TaskID]; t != nil {
			list[t] = ev.Seq
		}
	}
	return list
}

// refresh reads tasks again which were last read before an event.
func (f *follower) refresh(ctx context.Context, list map[*followed]int64) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(logWorkers)
	for t, seq := range list {
		group.Go(func() error { return t.refresh(ctx, f.engine, seq) })
	}
	return group.Wait()
}

// refresh reads the task again if it was last read before the event seq, and tells the readers what has changed.
func (t *followed) refresh(ctx context.Context, engine *orchestrator.Engine, seq int64) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	err := t.readAgain(ctx, engine, seq)
	if errors.Is(err, picket.CodeNotFound) {
		return nil // the readers know
	}
	return err
}

// readAgain is refresh for a caller that holds mu. A task that is not there any more is an error.
func (t *followed) readAgain(ctx context.Context, engine *orchestrator.Engine, seq int64) error {
	if t.last == nil || seq <= t.task.AsOf {
		return nil
	}
	known := t.task.Emitted
	if seq == afterRestore {
		known = nil // the store can have lost some of it
	}
	now, err := engine.FollowTask(ctx, t.id, len(known))
	if errors.Is(err, picket.CodeNotFound) { // retention has deleted it
		t.last.err = err
		close(t.last.ready)
		t.last = newUpdate()
	}
	if err != nil {
		return err
	}
	now.Emitted = append(known, now.Emitted...) // a reader of the task as it was does not see what follows
	events := changes(t.task, now)
	for _, ev := range events {
		t.add(ev, now)
	}
	if len(events) == 0 && runOf(now) != runOf(t.task) {
		t.add(nil, now)
	}
	if now.State.Terminal() && !t.task.State.Terminal() {
		close(t.last.ready)
		t.last = newUpdate() // nobody reads it
	}
	t.task = now
	return nil
}

// runOf is the run that holds a task, or "".
func runOf(t picket.Task) string {
	if t.CurrentRun == nil {
		return ""
	}
	return t.CurrentRun.RunID
}

func (t *followed) add(ev protocol.Event, now picket.Task) {
	u, next := t.last, newUpdate()
	u.event, u.run, u.next = ev, runOf(now), next
	if now.Reply && now.State == picket.TaskCompleted {
		u.reply = replyOf(now)
	}
	t.last = next
	close(u.ready)
}

// changes are the events that turn the view of a task into the next one: what was emitted, then the result, then the
// status. A task that works now has come to work before it emitted.
func changes(from, to picket.Task) []protocol.Event {
	emitted := to.Emitted[min(len(from.Emitted), len(to.Emitted)):]
	from.Emitted, to.Emitted = nil, nil // the views are compared without
	before, after := viewOf(from), viewOf(to)
	var events, status []protocol.Event
	if before.Status.State != after.Status.State || messageID(before) != messageID(after) {
		status = []protocol.Event{&protocol.TaskStatusUpdateEvent{TaskID: after.ID, ContextID: after.ContextID,
			Status: after.Status, Metadata: after.Metadata}}
	}
	if to.State == picket.TaskLeased {
		events, status = status, nil
	}
	for _, e := range emitted {
		events = append(events, emissionEvent(to, e))
	}
	for _, a := range after.Artifacts[min(len(before.Artifacts), len(after.Artifacts)):] {
		events = append(events, &protocol.TaskArtifactUpdateEvent{TaskID: after.ID, ContextID: after.ContextID,
			Artifact: a, LastChunk: true})
	}
	return append(events, status...)
}

func messageID(t *protocol.Task) string {
	if t.Status.Message == nil {
		return ""
	}
	return t.Status.Message.ID
}

// view is how much a stream shows of a task.
type view struct {
	history *int // as many messages of its history; nil: all that are shown
	reply   bool // the message with which the agent replies, instead of the task
}

// follow streams a task: what it is now, and what happens to it until it ends.
func (x *exchange) follow(ctx context.Context, t picket.Task, as view, leave func()) (*stream, error) {
	ctx, unwatch, err := x.whileHeld(ctx)
	if err != nil {
		return nil, err
	}
	now, next, unfollow, err := x.server.follower(x.engine).join(ctx, t)
	if err != nil {
		unwatch()
		return nil, err
	}
	first, err := x.withHistory(ctx, now, as.history)
	if err != nil {
		unfollow()
		unwatch()
		return nil, err
	}
	web.ForgetBody(x.Context)
	ended, awaits := now.State.Terminal(), as.reply && awaitsReply(now)
	var replied *protocol.Message
	if as.reply && now.Reply {
		replied = replyOf(now)
	}
	events := func(yield func(protocol.Event, error) bool) {
		shown, u := first, next
		first, next = nil, nil // a stream does not hold what it has passed
		if awaits {
			replied = unseen(ctx, u)
		}
		if replied != nil {
			yield(replied, nil)
			return
		}
		if awaits && ctx.Err() != nil || !yield(shown, nil) || ended {
			return
		}
		for ; u != nil; u = u.next {
			select {
			case <-u.ready:
			case <-ctx.Done():
				return
			}
			if u.err != nil {
				yield(nil, u.err)
				return
			}
			if u.event != nil && !yield(u.event, nil) {
				return
			}
		}
	}
	return &stream{events: events, close: func() { unfollow(); unwatch(); leave() }}, nil
}

// whileHeld is a context that ends with the run of a peer; of any other caller, it is ctx.
func (x *exchange) whileHeld(ctx context.Context) (context.Context, func(), error) {
	if !x.isPeer() {
		return ctx, func() {}, nil
	}
	return x.watchLease(ctx)
}

// awaitClient waits until the task has ended, or waits for its client or a person.
func (x *exchange) awaitClient(ctx context.Context, t picket.Task) (picket.Task, error) {
	if done := t.State.Terminal() || interrupted(stateOf(t)); done {
		return t, nil
	}
	ctx, unwatch, err := x.whileHeld(ctx)
	if err != nil {
		return t, err
	}
	defer unwatch()
	now, next, unfollow, err := x.server.follower(x.engine).join(ctx, t)
	if err != nil {
		return t, err
	}
	defer unfollow()
	if now.State.Terminal() || interrupted(stateOf(now)) {
		return now, nil
	}
	web.ForgetBody(x.Context)
	id := t.TaskID
	t, now = picket.Task{}, picket.Task{} // a request that waits does not hold them
	for u := next; u != nil; u = u.next {
		select {
		case <-u.ready:
		case <-ctx.Done():
			return t, picket.Refuse(picket.CodeUnavailable, "Read the task: its id is "+id+".",
				"the request was given up while the task went on").WithCause(ctx.Err())
		}
		if u.err != nil {
			return t, u.err
		}
		if s, ok := u.event.(*protocol.TaskStatusUpdateEvent); ok && interrupted(s.Status.State) {
			break
		}
	}
	return x.engine.Task(ctx, id)
}
