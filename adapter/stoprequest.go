package adapter

import "github.com/picket-dev/picket"

// stopRequest asks the supervisor to end the process of a run, and says how and what
// to report.
type stopRequest struct {
	mode        stopMode
	ending      Ending           // how the lease ended already; empty: it has to be released
	class       picket.ExitClass // of the exit to report; empty: by the process's own end
	reason      string           // for people
	ownDeadline bool             // for a deadline of the adapter's own: the lease may still hold
	inReport    bool             // the reason goes into the report
}

type stopMode int

const (
	stopTerm         stopMode = iota + 1 // SIGTERM; whether SIGKILL follows is for others to say
	stopAfterLinger                      // nothing for Linger, then stopTermThenKill
	stopTermThenKill                     // SIGTERM, and SIGKILL after Grace
	stopKill                             // SIGKILL
	stopRevoked                          // takes a warning back: the lease was renewed after all
)

// merge keeps the first verdict, except that the end of the lease overrules it: a
// lease that the server has ended is not released any more. A mere warning gives way
// to everything.
func (v stopRequest) merge(o stopRequest) stopRequest {
	switch {
	case o.class == "" && o.ending == "":
		return v
	case v.class == "" && v.ending == "", v.mode == stopTerm, v.ending == "" && o.ending != "":
		return o
	}
	return v
}
