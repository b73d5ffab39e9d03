package picket

import (
	"fmt"
	"time"
)

// Instant is a point in time in milliseconds since the Unix epoch, the
// resolution of the store. It is written as RFC 3339 UTC with exactly three
// decimals; the zero Instant means "not set" and is written as null.
type Instant int64

// InstantOf rounds t down to milliseconds.
func InstantOf(t time.Time) Instant { return Instant(t.UnixMilli()) }

// Time returns the instant in UTC; the zero Instant gives the zero time.
func (i Instant) Time() time.Time {
	if i == 0 {
		return time.Time{}
	}
	return time.UnixMilli(int64(i)).UTC()
}

// IsZero reports whether the instant is not set.
func (i Instant) IsZero() bool { return i == 0 }

// String is the wire form, or "-" when not set.
func (i Instant) String() string {
	if i == 0 {
		return "-"
	}
	return string(i.append(nil))
}

// MarshalJSON writes an RFC 3339 string, or null when not set.
func (i Instant) MarshalJSON() ([]byte, error) {
	if i == 0 {
		return []byte("null"), nil
	}
	return i.appendJSON(make([]byte, 0, len(`"2006-01-02T15:04:05.000Z"`))), nil
}

// appendJSON appends what MarshalJSON returns to b.
func (i Instant) appendJSON(b []byte) []byte {
	if i == 0 {
		return append(b, "null"...)
	}
	return append(i.append(append(b, '"')), '"')
}

// append appends the wire form of an instant that is set to b. RFC 3339 is the layout that package time writes fastest,
// so the decimals are added here.
func (i Instant) append(b []byte) []byte {
	t := i.Time()
	b = t.AppendFormat(b, time.RFC3339)
	ms := t.Nanosecond() / 1_000_000
	return append(b[:len(b)-1], '.', byte('0'+ms/100), byte('0'+ms/10%10), byte('0'+ms%10), 'Z')
}

// WireForm says how a time is written, to those who wrote it otherwise.
func (i Instant) WireForm() string {
	return `Write a time of the years 1970 to 9999 as RFC 3339 says, such as "2026-04-11T10:42:17Z".`
}

// UnmarshalJSON reads an RFC 3339 string with any number of decimals and any
// offset, or null.
func (i *Instant) UnmarshalJSON(b []byte) error {
	if string(b) == "null" {
		*i = 0
		return nil
	}
	if len(b) < 2 || b[0] != '"' || b[len(b)-1] != '"' {
		return fmt.Errorf("a time is an RFC 3339 string such as %q", "2026-04-11T10:42:17Z")
	}
	t, err := time.Parse(time.RFC3339Nano, string(b[1:len(b)-1]))
	if err != nil {
		return fmt.Errorf("a time is an RFC 3339 string such as %q", "2026-04-11T10:42:17Z")
	}
	if y := t.Year(); y < 1970 || y > 9999 {
		return fmt.Errorf("year %d is outside 1970 to 9999", y)
	}
	*i = InstantOf(t)
	return nil
}
