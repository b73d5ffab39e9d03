package orchestrator

import (
	"context"
	"strconv"

	"github.com/redis/go-redis/v9"

	"github.com/picket-dev/picket"
)

// eventsBackward reads a page of the log from its end, or from where the page
// before stopped, towards its beginning. What retention deletes meanwhile is no
// gap: it is at the far end.
func (e *Engine) eventsBackward(ctx context.Context, q picket.EventQuery) (picket.EventPage, error) {
	page := picket.EventPage{Events: []picket.Event{}}
	below, err := e.backwardStart(ctx, q)
	if err != nil {
		return page, err
	}
	open := isUnfiltered(q)
	for looked := 0; looked < maxEventScan && len(page.Events) < q.Limit; {
		batch := min(500, maxEventScan-looked)
		if open {
			batch = q.Limit - len(page.Events)
		}
		got, err := readLog(ctx, e, func() ([]redis.XMessage, error) {
			return e.store.logClient.XRevRangeN(ctx, e.logKey(q), below, "-", int64(batch)).Result()
		})
		if err != nil {
			return picket.EventPage{}, err
		}
		for _, m := range got {
			if len(page.Events) == q.Limit {
				return page, nil
			}
			ev, err := decodeEvent(m)
			if err != nil {
				return picket.EventPage{}, err
			}
			looked++
			page.Next, below = ev.ID, streamIDBelow(ev.Seq)
			if matches(q, ev) {
				page.Events = append(page.Events, ev)
			}
		}
		if len(got) < batch {
			page.Next = ""
			break
		}
	}
	return page, nil
}

// streamIDBelow is the highest id of a stream below that of a sequence number.
func streamIDBelow(seq int64) string { return strconv.FormatInt(max(seq-1, 0), 10) + "-99" }

// backwardStart is the highest id that a page read backwards may begin with.
func (e *Engine) backwardStart(ctx context.Context, q picket.EventQuery) (string, error) {
	if q.After > 0 {
		return streamIDBelow(q.After), nil
	}
	if q.Until == 0 {
		return "+", nil
	}
	seq, err := e.firstAfter(ctx, q)
	return streamIDBelow(seq), err
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
		got, err := readLog(ctx, e, func() ([]redis.XMessage, error) {
			return e.store.logClient.XRangeN(ctx, e.logKey(q), strconv.FormatInt(middle, 10), "+", 1).Result()
		})
		if err != nil {
			return 0, err
		}
		if len(got) == 0 {
			high = middle
			continue
		}
		ev, err := decodeEvent(got[0])
		if err != nil {
			return 0, err
		}
		if ev.At > q.Until {
			high = middle
		} else {
			low = ev.Seq + 1
		}
	}
	return high, nil
}
