package kit

import (
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// TestClockScripts are the scripts of a world without a bug.
var TestClockScripts RewriteCache

// UseTestClock makes a script read the clock of the test.
func UseTestClock(t *testing.T, source string) string {
	const reading = "call('TIME')"
	if n := strings.Count(source, reading); n != 1 {
		t.Fatalf("a script reads the clock %d times:\n%s", n, source)
	}
	source = strings.Replace(source, "redis."+reading, reading, 1)
	return strings.Replace(source, reading, `redis.call('HMGET', 'rig-clock', 's', 'us')`, 1)
}

// FastClock is a time of day that runs ahead, so that no adoption waits for
// the next second.
func FastClock() func() time.Time {
	var n atomic.Int64
	from := time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC)
	return func() time.Time { return from.Add(time.Duration(n.Add(10)) * time.Second) }
}
