package adapter

import "time"

var started = time.Now()

// monotonic is the time since the program started; it may stand still while
// the machine is suspended.
func monotonic() time.Duration { return time.Since(started) }
