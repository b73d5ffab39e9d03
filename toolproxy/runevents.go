package toolproxy

import (
	"math"
	"strconv"

	"github.com/labstack/echo/v4"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/internal/web"
)

// maxRunEvents bounds the entries of one /v1/run/events.
const maxRunEvents = 100

type eventsRequest struct {
	Events []picket.RunEvent `json:"events"`
}

func handleEvents(c echo.Context, runs evidenceRecorder, held picket.LeaseCredential, body eventsRequest) (any, error) {
	if n := len(body.Events); n == 0 || n > maxRunEvents {
		return nil, picket.Invalid("/events", "Send 1 to "+strconv.Itoa(maxRunEvents)+" events.",
			"there are %d events", n)
	}
	for i, e := range body.Events {
		if err := checkRunEvent("/events/"+strconv.Itoa(i), e, held); err != nil {
			return nil, err
		}
	}
	return struct{}{}, runs.RunEvents(c.Request().Context(), held, body.Events)
}

// checkRunEvent admits the launcher's events, with the members that their
// document makes required, and the adapter's announcement of its process.
func checkRunEvent(at string, e picket.RunEvent, held picket.LeaseCredential) error {
	if e.TaskID != "" && e.TaskID != held.TaskID {
		return picket.Invalid(at+"/taskId", "Leave it out: the lease names the task.",
			"the event is about another task than the lease")
	}
	if !validEventID(e.ID) {
		return picket.Invalid(at+"/id", "Send up to 64 printable characters, or leave it out.",
			"the id of the event is not 1 to 64 printable characters")
	}
	if e.Type == picket.EventRunStalled {
		return checkStalled(at, e)
	}
	if e.IdleSeconds != nil {
		return picket.Invalid(at+"/idleSeconds", "Leave it out.", "idleSeconds belongs to %s", picket.EventRunStalled)
	}
	if e.Type == picket.EventRunLaunched {
		if e.LauncherFields != (picket.LauncherFields{}) {
			return picket.Invalid(at, "Send type and containment only.", "%s takes no launcher fields", e.Type)
		}
		return checkContainment(at+"/containment", e.Containment)
	}
	if e.Containment != "" {
		return picket.Invalid(at+"/containment", "Leave it out.", "containment belongs to %s", picket.EventRunLaunched)
	}
	if err := checkLauncherType(at, e); err != nil {
		return err
	}
	return checkLauncherFields(at, e.LauncherFields)
}

// checkStalled admits the word that an agent shows no sign of life.
func checkStalled(at string, e picket.RunEvent) error {
	if e.LauncherFields != (picket.LauncherFields{}) || e.Containment != "" || e.WorkspacePath != "" {
		return picket.Invalid(at, "Send type, id and idleSeconds only.", "%s takes nothing else", e.Type)
	}
	if s := e.IdleSeconds; s == nil || *s < 0 || *s > 1e9 || math.IsNaN(*s) {
		return picket.Invalid(at+"/idleSeconds", "Send the seconds since the last sign of life.",
			"%s needs idleSeconds, a number from 0", e.Type)
	}
	return nil
}

func checkLauncherType(at string, e picket.RunEvent) error {
	var required []eventNumber
	switch e.Type {
	case picket.EventAgentHeartbeat:
		required = []eventNumber{{"elapsedSeconds", e.ElapsedSeconds}}
	case picket.EventAgentTimeoutWarning:
		required = []eventNumber{{"elapsedSeconds", e.ElapsedSeconds}, {"timeoutSeconds", e.TimeoutSeconds},
			{"remainingSeconds", e.RemainingSeconds}}
	case picket.EventAgentTimedOut:
		required = []eventNumber{{"timeoutSeconds", e.TimeoutSeconds}}
	default:
		return picket.Invalid(at+"/type",
			"Send one of: run.launched, run.stalled, agent-heartbeat, agent-timeout-warning, agent-timed-out.",
			"%q is not an event of a run", web.Shortened(e.Type))
	}
	for _, m := range required {
		if m.value == nil {
			return picket.Invalid(at+"/"+m.name, "Send it in seconds.", "%s needs %s", e.Type, m.name)
		}
	}
	return nil
}

// eventNumber is a number of an event, nil when absent.
type eventNumber struct {
	name  string
	value *float64
}

func checkLauncherFields(at string, f picket.LauncherFields) error {
	if err := picket.CheckName(at+"/agent", f.Agent); err != nil {
		return err
	}
	if len(f.SessionID) > 256 {
		return picket.Invalid(at+"/sessionId", "Send at most 256 bytes.", "sessionId has %d bytes", len(f.SessionID))
	}
	if f.IssueNumber != nil && (*f.IssueNumber < 0 || *f.IssueNumber > picket.MaxNumber) {
		return picket.Invalid(at+"/issueNumber", "Send a whole number from 0, or leave it out.",
			"issueNumber is out of range")
	}
	for _, m := range []eventNumber{
		{"elapsedSeconds", f.ElapsedSeconds}, {"timeoutSeconds", f.TimeoutSeconds},
		{"timeoutPercentage", f.TimeoutPercentage}, {"remainingSeconds", f.RemainingSeconds},
	} {
		if m.value != nil && (*m.value < 0 || *m.value > 1e9 || math.IsNaN(*m.value)) {
			return picket.Invalid(at+"/"+m.name, "Send a number from 0.", "%s is out of range", m.name)
		}
	}
	return nil
}
