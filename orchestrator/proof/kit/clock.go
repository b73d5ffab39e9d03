package kit

import (
	"strings"
	"sync/atomic"
	"time"
)

// TestClockScripts are the programs of a world without a bug.
var TestClockScripts RewriteCache

// UseTestClock makes a Lua file read the clock of the test.
func UseTestClock(text string) string {
	return strings.ReplaceAll(text, "redis_call('TIME')", `redis.call('HMGET', 'rig-clock', 's', 'us')`)
}

// FastClock is a time of day that runs ahead, so that no adoption waits for
// the next second.
func FastClock() func() time.Time {
	var n atomic.Int64
	from := time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC)
	return func() time.Time { return from.Add(time.Duration(n.Add(10)) * time.Second) }
}
