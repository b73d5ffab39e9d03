package orchestrator

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	jsonv2 "github.com/go-json-experiment/json"
	"github.com/redis/go-redis/v9"

	"github.com/picket-dev/picket"
)

// maxEventScan is how many events one page looks at most, so a filter that
// matches nothing still answers soon; Next says where it stopped.
const maxEventScan = 5000

// Events reads a page of the log after a sequence number. A position that has
// been deleted by retention is CodeCursorExpired with the fact "first".
func (e *Engine) Events(ctx context.Context, q picket.EventQuery) (picket.EventPage, error) {
	if q.Limit == 0 {
		q.Limit = 100
	}
	if q.Limit < 1 || q.Limit > 1000 {
		return picket.EventPage{},
			picket.Invalid("limit", "Send a number from 1 to 1000.", "limit is %d, allowed are 1 to 1000", q.Limit)
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
		got, err := readLog(ctx, e, func() ([]redis.XMessage, error) {
			return e.store.logClient.XRangeN(ctx, e.logKey(q), strconv.FormatInt(at+1, 10), "+", int64(batch)).Result()
		})
		if err != nil {
			return picket.EventPage{}, err
		}
		if !q.Audit && at == q.After && at > 0 && len(got) > 0 && streamSeq(got[0].ID) > at+1 &&
			got[0].Values["type"] != picket.EventStoreAdopted {
			// Numbers are dense: what lies between was deleted just now.
			return picket.EventPage{}, cursorExpired(streamSeq(got[0].ID) - 1)
		}
		for _, m := range got {
			ev, err := decodeEvent(m)
			if err != nil {
				return picket.EventPage{}, err
			}
			looked++
			at = ev.Seq
			if matches(q, ev) {
				page.Events = append(page.Events, ev)
				if len(page.Events) == q.Limit {
					break
				}
			}
		}
		if len(got) < batch {
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

// logKey is the stream that a query reads.
func (e *Engine) logKey(q picket.EventQuery) string {
	if q.Audit {
		return auditKey(e.namespace)
	}
	return eventsKey(e.namespace)
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
func streamSeq(id string) int64 { return parseInt(strings.TrimSuffix(id, "-0")) }

// isUnfiltered reports whether a query leaves nothing out.
func isUnfiltered(q picket.EventQuery) bool {
	return len(q.Types) == 0 && q.TaskID == "" && q.Agent == "" && !q.NoticesOnly
}

func matches(q picket.EventQuery, ev picket.Event) bool {
	return (!q.NoticesOnly || ev.IsNotice()) && (len(q.Types) == 0 || slices.Contains(q.Types, ev.Type)) &&
		(q.TaskID == "" || q.TaskID == ev.TaskID) && (q.Agent == "" || q.Agent == ev.AgentID)
}

func decodeEvent(m redis.XMessage) (picket.Event, error) {
	field := func(name string) string {
		s, _ := m.Values[name].(string)
		return s
	}
	id := strings.TrimSuffix(m.ID, "-0")
	ev := picket.Event{
		ID:           id,
		Seq:          parseInt(id),
		Type:         field("type"),
		At:           picket.Instant(parseInt(field("at"))),
		TaskID:       field("task"),
		RunID:        field("run"),
		AgentID:      field("agent"),
		FencingToken: parseInt(field("token")),
		Actor:        field("actor"),
		Reason:       field("reason"),
		Data:         json.RawMessage(field("data")),
	}
	if top := field("top"); top != "" && ev.Type == picket.EventAgentLifecycle {
		if err := jsonv2.Unmarshal([]byte(top), &ev.LifecycleFields); err != nil {
			return ev, fmt.Errorf("decode event %s: %w", id, err)
		}
		ev.Timestamp = ev.At
	} else if top != "" {
		if err := jsonv2.Unmarshal([]byte(top), &ev.LauncherFields); err != nil {
			return ev, fmt.Errorf("decode event %s: %w", id, err)
		}
	}
	return ev, nil
}

// LastSeq is the sequence number of the newest event, 0 before the first.
func (e *Engine) LastSeq(ctx context.Context) (int64, error) {
	n, err := e.metaNumber(ctx, "seq")
	if errors.Is(err, redis.Nil) {
		return 0, unavailable("the store has lost this namespace", err)
	}
	return n, err
}

func (e *Engine) metaNumber(ctx context.Context, field string) (int64, error) {
	return readLog(ctx, e, func() (int64, error) {
		return e.store.logClient.HGet(ctx, metaKey(e.namespace), field).Int64()
	})
}

// Tail waits until there is an event after a sequence number; a negative one
// means "after now". It returns nil when there may be one, and an error when
// ctx ends or the store is away.
func (e *Engine) Tail(ctx context.Context, after int64) error {
	e.newEvents.start(e.store.ctx)
	everything := e.newEvents.register(true, func(string) bool { return true })
	end, err := e.waitUntil(ctx, everything, noLimit, func() (bool, time.Duration, error) {
		last, err := e.LastSeq(ctx)
		if after < 0 {
			after = last
		}
		return last > after, 0, err
	})
	if err == nil && end == waitStopped {
		err = errStopping(e.store.ctx.Err())
	}
	return err
}
