package eventlog

import (
	stdjson "encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/redis/go-redis/v9"

	"github.com/picket-dev/picket"
)

// Names are the names of the values of an event, in the order in which a packed
// event holds them. The first one is the sequence number. The others are the fields
// of an entry that holds one event.
var Names = []string{"seq", "type", "at", "now", "actor", "data", "task", "run", "agent", "token", "reason", "top"}

// The places of the values in Names.
const (
	seqValue = iota
	typeValue
	atValue
	nowValue
	actorValue
	dataValue
	taskValue
	runValue
	agentValue
	tokenValue
	reasonValue
	topValue
)

// Record is an event as a stream holds it: one value for each of Names.
type Record []string

// Value returns the value of a name. For a name that is not one of Names it is "".
func (r Record) Value(name string) string {
	if i := slices.Index(Names, name); i >= 0 {
		return r[i]
	}
	return ""
}

// Pack returns the event as a field of an entry holds it: the length and the bytes of
// each value.
func (r Record) Pack() string {
	var b strings.Builder
	for _, v := range r {
		b.WriteString(strconv.Itoa(len(v)))
		b.WriteByte(':')
		b.WriteString(v)
	}
	return b.String()
}

// Records returns the events of an entry in their order.
func Records(entry redis.XMessage) ([]Record, error) {
	last, _, _ := strings.Cut(entry.ID, "-")
	if _, packed := entry.Values["1"]; !packed {
		return []Record{single(last, entry.Values)}, nil
	}
	end, err := strconv.ParseInt(last, 10, 64)
	if err != nil {
		return nil, fmt.Errorf("entry %s of the event log: the id is not a sequence number", entry.ID)
	}
	n := len(entry.Values)
	records := make([]Record, n)
	for i := range records {
		packed, _ := entry.Values[strconv.Itoa(i+1)].(string)
		if records[i], err = unpack(packed); err != nil {
			return nil, fmt.Errorf("entry %s of the event log: event %d of %d: %w", entry.ID, i+1, n, err)
		}
		if seq := strconv.FormatInt(end-int64(n-1-i), 10); records[i][seqValue] != seq {
			return nil, fmt.Errorf("entry %s of the event log: event %d of %d does not have the number %s", entry.ID, i+1, n,
				seq)
		}
	}
	return records, nil
}

// single is the event of an entry that has a field for each value.
func single(seq string, fields map[string]any) Record {
	r := make(Record, len(Names))
	for i, name := range Names {
		r[i], _ = fields[name].(string)
	}
	r[seqValue] = seq
	return r
}

var errPacked = errors.New("the values are not packed as lengths and bytes")

func unpack(packed string) (Record, error) {
	r := make(Record, len(Names))
	for i := range r {
		length, rest, ok := strings.Cut(packed, ":")
		n, err := strconv.ParseUint(length, 10, 31)
		if !ok || err != nil || int(n) > len(rest) {
			return nil, errPacked
		}
		r[i], packed = rest[:n], rest[n:]
	}
	if packed != "" {
		return nil, errPacked
	}
	return r, nil
}

// Event decodes the event.
func (r Record) Event() (picket.Event, error) {
	ev := picket.Event{
		ID:           r[seqValue],
		Seq:          integer(r[seqValue]),
		Type:         r[typeValue],
		At:           picket.Instant(integer(r[atValue])),
		TaskID:       r[taskValue],
		RunID:        r[runValue],
		AgentID:      r[agentValue],
		FencingToken: integer(r[tokenValue]),
		Actor:        r[actorValue],
		Reason:       r[reasonValue],
		Data:         stdjson.RawMessage(r[dataValue]),
	}
	top := r[topValue]
	if top == "" {
		return ev, nil
	}
	var fields any = &ev.LauncherFields
	if ev.Type == picket.EventAgentLifecycle {
		fields = &ev.LifecycleFields
		ev.Timestamp = ev.At
	}
	if err := json.Unmarshal([]byte(top), fields); err != nil {
		return ev, fmt.Errorf("decode event %s: %w", ev.ID, err)
	}
	return ev, nil
}

// integer is 0 for what is not an integer.
func integer(s string) int64 {
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		return 0
	}
	return n
}
