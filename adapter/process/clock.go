package process

import "time"

var processStart = time.Now()

// sinceStart is the time since the program started; it may stand still while
// the machine is suspended.
func sinceStart() time.Duration { return time.Since(processStart) }
