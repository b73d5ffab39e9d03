package eventlog

import (
	"context"
	"slices"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/picket-dev/picket"
)

// Log is a stream of events.
type Log struct {
	Key string
	// Sparse is set for the audit log: it has one event in each entry, and only some of
	// the sequence numbers. Those of the event log are dense, so a range of numbers
	// bounds how much is read, however many events an entry holds.
	Sparse bool
}

// Part is a part of a log as it was read. Events decodes it.
type Part struct {
	entries      []redis.XMessage // in the order of the events
	after, below uint64           // the events with numbers between them are wanted
	limit        int
	newestFirst  bool
	more         bool // there are entries beyond the part
}

const end = ^uint64(0) // above every sequence number

// After reads up to limit events with numbers above seq.
func (l Log) After(ctx context.Context, client redis.UniversalClient, seq int64, limit int) (Part, error) {
	p := Part{after: uint64(seq), below: end, limit: limit}
	if l.Sparse {
		return p.read(client.XRangeN(ctx, l.Key, id(p.after+1), "+", int64(limit)))
	}
	// What follows the range is read first. If there is something, then the range is
	// complete, because numbers rise. It can begin within the range.
	last := p.after + uint64(limit)
	var next, within *redis.XMessageSliceCmd
	_, err := client.Pipelined(ctx, func(pipe redis.Pipeliner) error {
		next = pipe.XRangeN(ctx, l.Key, id(last+1), "+", 1)
		within = pipe.XRangeN(ctx, l.Key, id(p.after+1), id(last), int64(limit))
		return nil
	})
	p.entries, p.more = slices.Concat(within.Val(), next.Val()), len(next.Val()) > 0
	return p, err
}

// Before reads up to limit events with numbers below seq, the newest first. With 0, it
// begins at the end of the log.
func (l Log) Before(ctx context.Context, client redis.UniversalClient, seq int64, limit int) (Part, error) {
	p := Part{below: uint64(seq), limit: limit, newestFirst: true}
	if l.Sparse {
		from := "+"
		if seq > 0 {
			from = id(p.below - 1)
		}
		return p.read(client.XRevRangeN(ctx, l.Key, from, "-", int64(limit)))
	}
	if seq == 0 {
		newest, err := client.XRevRangeN(ctx, l.Key, "+", "-", 1).Result()
		if err != nil || len(newest) == 0 {
			return p, err
		}
		p.below = lastSeq(newest[0]) + 1
	}
	first := uint64(1)
	if p.below > uint64(limit) {
		first = p.below - uint64(limit)
	}
	// The entry that ends at or above the number can hold events below it. It is read
	// first, and what precedes the range last: new entries and deleted ones then leave
	// no gap in the part.
	var around, within, next *redis.XMessageSliceCmd
	_, err := client.Pipelined(ctx, func(pipe redis.Pipeliner) error {
		around = pipe.XRangeN(ctx, l.Key, id(p.below), "+", 1)
		within = pipe.XRevRangeN(ctx, l.Key, id(p.below-1), id(first), int64(limit))
		next = pipe.XRevRangeN(ctx, l.Key, id(first-1), "-", 1)
		return nil
	})
	p.entries = slices.Concat(next.Val(), reversed(within.Val()), around.Val())
	p.more = len(next.Val()) > 0
	return p, err
}

// read takes the answer of a sparse log.
func (p Part) read(got *redis.XMessageSliceCmd) (Part, error) {
	p.entries, p.more = got.Val(), len(got.Val()) == p.limit
	if p.newestFirst {
		p.entries = reversed(p.entries)
	}
	if p.below == 0 {
		p.below = end
	}
	return p, got.Err()
}

// Events decodes the events of the part, at most its limit. It also reports whether the
// log may have more of them.
func (p Part) Events() (events []picket.Event, more bool, err error) {
	for _, entry := range p.entries {
		records, err := Records(entry)
		if err != nil {
			return nil, false, err
		}
		for _, r := range records {
			ev, err := r.Event()
			if err != nil {
				return nil, false, err
			}
			if seq := uint64(ev.Seq); seq > p.after && seq < p.below {
				events = append(events, ev)
			}
		}
	}
	if p.newestFirst {
		slices.Reverse(events)
	}
	if len(events) > p.limit {
		return events[:p.limit], true, nil
	}
	return events, p.more, nil
}

func reversed(entries []redis.XMessage) []redis.XMessage {
	slices.Reverse(entries)
	return entries
}

// id is the id of the stream from which, or up to which, entries are read.
func id(seq uint64) string { return strconv.FormatUint(seq, 10) }

// lastSeq is the sequence number of the last event of an entry.
func lastSeq(entry redis.XMessage) uint64 {
	seq, _, _ := strings.Cut(entry.ID, "-")
	n, err := strconv.ParseUint(seq, 10, 63)
	if err != nil {
		return 0 // Redis has no such id
	}
	return n
}
