package orchestrator

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/redis/go-redis/v9"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/orchestrator/eventlog"
	"github.com/picket-dev/picket/orchestrator/store"
)

// maxEventScan is how many events one page looks at most, so a filter that
// matches nothing still answers soon; Next says where it stopped.
const maxEventScan = 5000

// Events reads a page of the log after a sequence number. A position that has
// been deleted by retention is CodeCursorExpired with the fact "first".
func (e *Engine) Events(ctx context.Context, q picket.EventQuery) (picket.EventPage, error) {
	var err error
	if q.Limit, err = pageLimit(q.Limit, 100, 1000); err != nil {
		return picket.EventPage{}, err
	}
	if q.After < 0 {
		return picket.EventPage{},
			picket.Invalid("after", "Send the id of the last event read, or 0.", "after is negative")
	}
	if q.NewestFirst {
		return e.eventsBackward(ctx, q)
	}
	if !q.Audit {
		if err := e.checkCursor(ctx, q); err != nil {
			return picket.EventPage{}, err
		}
	}
	page := picket.EventPage{Events: []picket.Event{}}
	at := q.After
	for looked := 0; looked < maxEventScan && len(page.Events) < q.Limit; {
		batch := min(500, maxEventScan-looked)
		if isUnfiltered(q) {
			batch = min(batch, q.Limit-len(page.Events)) // nothing is filtered out: no more than is wanted
		}
		got, more, err := e.eventsAfter(ctx, q, at, batch)
		if err != nil {
			return picket.EventPage{}, err
		}
		if !q.Audit && at == q.After && at > 0 && len(got) > 0 && got[0].Seq > at+1 &&
			got[0].Type != picket.EventStoreAdopted {
			// Numbers are dense: what lies between was deleted just now.
			return picket.EventPage{}, cursorExpired(got[0].Seq - 1)
		}
		for _, ev := range got {
			looked++
			at = ev.Seq
			if matches(q, ev) {
				page.Events = append(page.Events, ev)
				if len(page.Events) == q.Limit {
					break
				}
			}
		}
		if !more {
			break
		}
	}
	page.Next = strconv.FormatInt(at, 10)
	if q.Audit {
		// The audit log is not dense, so only its own mark tells a gap. It is read
		// last, so that it covers what was deleted meanwhile.
		if err := e.checkCursor(ctx, q); err != nil {
			return picket.EventPage{}, err
		}
	}
	return page, nil
}

// logOf is the log that a query means.
func (e *Engine) logOf(q picket.EventQuery) eventlog.Log {
	if q.Audit {
		return eventlog.Log{Key: store.AuditKey(e.namespace), Sparse: true}
	}
	return eventlog.Log{Key: store.EventsKey(e.namespace)}
}

// eventsAfter reads up to limit events with numbers above seq, and reports whether there may
// be more.
func (e *Engine) eventsAfter(ctx context.Context, q picket.EventQuery, seq int64,
	limit int) (events []picket.Event, more bool, err error) {
	part, err := store.ReadLog(ctx, e.records, func(client redis.UniversalClient) (eventlog.Part, error) {
		return e.logOf(q).After(ctx, client, seq, limit)
	})
	if err != nil {
		return nil, false, err
	}
	return part.Events()
}

// eventsBefore is eventsAfter for the numbers below seq, the newest first. 0 is the end of the log.
func (e *Engine) eventsBefore(ctx context.Context, q picket.EventQuery, seq int64,
	limit int) (events []picket.Event, more bool, err error) {
	part, err := store.ReadLog(ctx, e.records, func(client redis.UniversalClient) (eventlog.Part, error) {
		return e.logOf(q).Before(ctx, client, seq, limit)
	})
	if err != nil {
		return nil, false, err
	}
	return part.Events()
}

func (e *Engine) checkCursor(ctx context.Context, q picket.EventQuery) error {
	field := "trimmed"
	if q.Audit {
		field = "audit_trimmed"
	}
	trimmed, err := e.metaNumber(ctx, field)
	if errors.Is(err, redis.Nil) {
		return nil
	}
	if err != nil {
		return err
	}
	// Position 0 means the beginning, whatever is left of it.
	if q.After != 0 && q.After < trimmed {
		return cursorExpired(trimmed)
	}
	return nil
}

func cursorExpired(trimmed int64) error {
	return picket.Refuse(picket.CodeCursorExpired,
		fmt.Sprintf("Read on from %d; what lies between has been deleted by retention.", trimmed),
		"events up to %d are not kept any more", trimmed).With("first", trimmed+1)
}

// streamSeq is the sequence number in a stream id "<seq>-0".
func streamSeq(id string) int64 { return store.ParseInt(strings.TrimSuffix(id, "-0")) }

// isUnfiltered reports whether a query leaves nothing out.
func isUnfiltered(q picket.EventQuery) bool {
	return len(q.Types) == 0 && q.TaskID == "" && q.Agent == "" && !q.NoticesOnly
}

func matches(q picket.EventQuery, ev picket.Event) bool {
	return (!q.NoticesOnly || ev.IsNotice()) && (len(q.Types) == 0 || slices.Contains(q.Types, ev.Type)) &&
		(q.TaskID == "" || q.TaskID == ev.TaskID) && (q.Agent == "" || q.Agent == ev.AgentID)
}

// LastSeq is the sequence number of the newest event, 0 before the first.
func (e *Engine) LastSeq(ctx context.Context) (int64, error) {
	n, err := e.metaNumber(ctx, "seq")
	if errors.Is(err, redis.Nil) {
		return 0, store.Unavailable("the store has lost this namespace", err)
	}
	return n, err
}

func (e *Engine) metaNumber(ctx context.Context, field string) (int64, error) {
	return store.ReadLog(ctx, e.records, func(client redis.UniversalClient) (int64, error) {
		return client.HGet(ctx, store.MetaKey(e.namespace), field).Int64()
	})
}

// Tail waits until there is an event after a sequence number; a negative one
// means "after now". It returns nil when there may be one, and an error when
// ctx ends or the store is away.
func (e *Engine) Tail(ctx context.Context, after int64) error {
	end, err := e.records.WaitUntil(ctx, e.records.SubscribeEvents(), store.NoLimit,
		func() (bool, time.Duration, error) {
			last, err := e.LastSeq(ctx)
			if after < 0 {
				after = last
			}
			return last > after, 0, err
		})
	if err == nil && end == store.WaitStopped {
		err = store.Stopping(context.Canceled)
	}
	return err
}

// eventsBackward reads a page of the log from its end, or from where the last page stopped, towards
// its beginning. Events that retention deletes meanwhile leave no gap, because they are the oldest
// ones.
func (e *Engine) eventsBackward(ctx context.Context, q picket.EventQuery) (picket.EventPage, error) {
	page := picket.EventPage{Events: []picket.Event{}}
	below, err := e.backwardStart(ctx, q)
	if err != nil {
		return page, err
	}
	for looked := 0; looked < maxEventScan && len(page.Events) < q.Limit; {
		batch := min(500, maxEventScan-looked)
		if isUnfiltered(q) {
			batch = min(batch, q.Limit-len(page.Events))
		}
		got, more, err := e.eventsBefore(ctx, q, below, batch)
		if err != nil {
			return picket.EventPage{}, err
		}
		for _, ev := range got {
			if len(page.Events) == q.Limit {
				return page, nil
			}
			looked++
			page.Next, below = ev.ID, ev.Seq
			if matches(q, ev) {
				page.Events = append(page.Events, ev)
			}
		}
		if !more {
			page.Next = ""
			break
		}
	}
	return page, nil
}

// backwardStart is the number below which a page that is read backwards begins. 0 is the end of
// the log.
func (e *Engine) backwardStart(ctx context.Context, q picket.EventQuery) (int64, error) {
	if q.After > 0 || q.Until == 0 {
		return q.After, nil
	}
	return e.firstAfter(ctx, q)
}

// firstAfter finds the first event later than q.Until, by halves; one more
// than the last number when there is none. A clock that was set back can have
// put some of them out of order: then it is one of those near it.
func (e *Engine) firstAfter(ctx context.Context, q picket.EventQuery) (int64, error) {
	last, err := e.LastSeq(ctx)
	if err != nil {
		return 0, err
	}
	low, high := int64(1), last+1 // all before low are not later, high and all after it are
	for low < high {
		middle := low + (high-low)/2
		got, _, err := e.eventsAfter(ctx, q, middle-1, 1)
		if err != nil {
			return 0, err
		}
		if len(got) == 0 || got[0].At > q.Until {
			high = middle
		} else {
			low = got[0].Seq + 1
		}
	}
	return high, nil
}

// runEventTypes are what an adapter may write into the log.
var runEventTypes = []string{picket.EventRunLaunched, picket.EventRunStalled, picket.EventAgentHeartbeat,
	picket.EventAgentTimeoutWarning, picket.EventAgentTimedOut}

// RunEvents writes what an adapter observed: its process was launched, it shows
// no sign of life, or one of the launcher's timed events. An event with an id
// that the run has had is taken and not written again. Events beyond the budget
// of the run, or after its last event, are counted as refused writes instead.
func (e *Engine) RunEvents(ctx context.Context, held picket.LeaseCredential, events []picket.RunEvent) error {
	if len(events) == 0 || len(events) > 100 {
		return picket.Invalid("/events", "Send 1 to 100 events.", "events has %d entries", len(events))
	}
	var args []any
	for i, ev := range events {
		if !slices.Contains(runEventTypes, ev.Type) {
			return picket.Invalid(fmt.Sprintf("/events/%d/type", i),
				"Send run.launched, run.stalled, agent-heartbeat, agent-timeout-warning or agent-timed-out.",
				"%q is not an event an adapter may write", ev.Type)
		}
		top := ""
		if ev.Type != picket.EventRunLaunched && ev.Type != picket.EventRunStalled {
			b, err := json.Marshal(ev.LauncherFields)
			if err != nil {
				return fmt.Errorf("encode event: %w", err)
			}
			top = string(b)
		}
		data, err := json.Marshal(map[string]any{"containment": ev.Containment})
		if err != nil {
			return fmt.Errorf("encode event: %w", err)
		}
		if ev.Containment == "" {
			data = []byte("{}")
		}
		if p := ev.WorkspacePath; p != "" && (p[0] != '/' || len(p) > 1024 || strings.ContainsRune(p, 0)) {
			return picket.Invalid(fmt.Sprintf("/events/%d/workspacePath", i),
				"Send the absolute directory the process works in.",
				"workspacePath is not an absolute path of at most 1024 bytes")
		}
		if len(ev.ID) > picket.MaxEventID {
			return picket.Invalid(fmt.Sprintf("/events/%d/id", i), "Send at most 64 bytes.", "id has %d bytes",
				len(ev.ID))
		}
		said := ev.Containment
		if ev.Type == picket.EventRunStalled {
			said = silenceReason(ev.IdleSeconds)
		}
		exec := ""
		if ev.Exec {
			exec = "1"
		}
		args = append(args, ev.Type, ev.ID, string(data), top, said, ev.WorkspacePath, exec)
	}
	r := e.runHeld(ctx, held, "run_events", args...)
	var v struct {
		Refused int64  `reply:"refused"`
		Code    string `reply:"code"` // of the last one
	}
	r.Decode(&v)
	e.refusedWrites.add(picket.Code(v.Code), v.Refused)
	return r.Err
}
