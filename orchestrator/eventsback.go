package orchestrator

import (
	"context"
	"strconv"

	"github.com/redis/go-redis/v9"

	"github.com/picket-dev/picket"
)

// eventsBack reads a page of the log from its end, or from where the page
// before stopped, towards its beginning. What retention deletes meanwhile is no
// gap: it is at the far end.
func (e *Engine) eventsBack(ctx context.Context, q picket.EventQuery) (picket.EventPage, error) {
	page := picket.EventPage{Events: []picket.Event{}}
	below, err := e.backFrom(ctx, q)
	if err != nil {
		return page, err
	}
	open := everything(q)
	for looked := 0; looked < eventScan && len(page.Events) < q.Limit; {
		batch := min(500, eventScan-looked)
		if open {
			batch = q.Limit - len(page.Events)
		}
		got, err := reading(ctx, e, func() ([]redis.XMessage, error) {
			return e.store.plain.XRevRangeN(ctx, e.logKey(q), below, "-", int64(batch)).Result()
		})
		if err != nil {
			return picket.EventPage{}, err
		}
		for _, m := range got {
			if len(page.Events) == q.Limit {
				return page, nil
			}
			ev, err := eventOf(m)
			if err != nil {
				return picket.EventPage{}, err
			}
			looked++
			page.Next, below = ev.ID, idBelow(ev.Seq)
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

// idBelow is the highest id of a stream below that of a sequence number.
func idBelow(seq int64) string { return strconv.FormatInt(max(seq-1, 0), 10) + "-99" }

// backFrom is the highest id that a page read backwards may begin with.
func (e *Engine) backFrom(ctx context.Context, q picket.EventQuery) (string, error) {
	if q.After > 0 {
		return idBelow(q.After), nil
	}
	if q.Until == 0 {
		return "+", nil
	}
	seq, err := e.firstAfter(ctx, q)
	return idBelow(seq), err
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
		got, err := reading(ctx, e, func() ([]redis.XMessage, error) {
			return e.store.plain.XRangeN(ctx, e.logKey(q), strconv.FormatInt(middle, 10), "+", 1).Result()
		})
		if err != nil {
			return 0, err
		}
		if len(got) == 0 {
			high = middle
			continue
		}
		ev, err := eventOf(got[0])
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
