package toolproxy

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/internal/web"
)

// maxDetail bounds the detail of an exit, in bytes.
const maxDetail = 16 << 10

// stateResponse holds the state that the task has now.
type stateResponse struct {
	State picket.TaskState `json:"state"`
}

func handleRenew(c echo.Context, leases leaser, held picket.LeaseCredential, _ struct{}) (any, error) {
	return leases.Renew(c.Request().Context(), held)
}

func handleReclaim(c echo.Context, leases leaser, held picket.LeaseCredential, _ struct{}) (any, error) {
	return leases.Reclaim(c.Request().Context(), held)
}

// releaseRequest gives a lease back. Without an exit it is a voluntary return,
// which counts no failure.
type releaseRequest struct {
	Exit   *picket.Exit `json:"exit"`
	Detail string       `json:"detail"` // last lines of output or a reason
	// LastEventID is the id of the run's last event, "" if it has sent none.
	LastEventID *string `json:"lastEventId"`
}

func handleRelease(c echo.Context, leases leaser, held picket.LeaseCredential, body releaseRequest) (any, error) {
	exit := picket.Exit{Class: picket.ExitReleased}
	if body.Exit != nil {
		exit = *body.Exit
	}
	exit.Detail = cmp.Or(body.Detail, exit.Detail)
	exit.LastEvent = body.LastEventID
	if err := checkExit("/exit", exit, picket.ReleaseClasses); err != nil {
		return nil, err
	}
	state, err := leases.Release(c.Request().Context(), held, exit)
	return stateResponse{state}, err
}

// checkExit refuses what no process can have ended with.
func checkExit(at string, exit picket.Exit, allowed []picket.ExitClass) error {
	switch {
	case !slices.Contains(allowed, exit.Class):
		return picket.Invalid(at+"/class", "Send one of: "+commaList(allowed)+".",
			"%q is not a class that a run can end with here", exit.Class)
	case exit.Code != nil && (*exit.Code < -1 || *exit.Code > 1<<32-1):
		return picket.Invalid(at+"/code", "Send the process's exit code, or null.", "code %d is not an exit code",
			*exit.Code)
	case exit.Signal != nil && !signalPattern().MatchString(*exit.Signal):
		return picket.Invalid(at+"/signal", "Send a name such as SIGKILL, or null.",
			"signal is not the name of a signal")
	case exit.DurationMs != nil && (*exit.DurationMs < 0 || *exit.DurationMs > picket.MaxNumber):
		return picket.Invalid(at+"/durationMs", "Send milliseconds, or null.", "durationMs %d is out of range",
			*exit.DurationMs)
	case exit.LastEvent != nil && !validEventID(*exit.LastEvent):
		return picket.Invalid("/lastEventId", "Send the id of the last event of the run, or leave it out.",
			"lastEventId is not up to 64 printable characters")
	case len(exit.Detail) > maxDetail:
		return picket.Refuse(picket.CodeTooLarge, "Send the last lines only; the log takes the rest.",
			"detail has %d bytes, at most %d are allowed", len(exit.Detail), maxDetail).With("limit", maxDetail)
	}
	return nil
}

// watch answers as soon as the lease has changed, and with nothing when the wait ran
// out or a newer watch of the same run took its place.
func (w *leaseWatches) watch(c echo.Context, leases leaser, held picket.LeaseCredential) (any, error) {
	longest := int64(maxWait / time.Second)
	seconds, err := queryNumber(c.QueryParams(), "waitSeconds", longest, longest)
	if err != nil {
		return nil, err
	}
	known, err := knownExecs(c)
	if err != nil {
		return nil, err
	}
	ctx, stopWaiting := web.WaitContext(c)
	defer stopWaiting()
	ctx, leave := w.open.Begin(ctx, runKey{held.Namespace, held.TaskID, held.RunID})
	defer leave()
	seen, changed, err := leases.Watch(ctx, held, time.Duration(seconds)*time.Second, known...)
	switch {
	case err == nil && changed:
		return seen, nil
	case web.Displaced(ctx):
		return nil, nil
	case ctx.Err() != nil && web.Stopping(c):
		return nil, web.StoppingError()
	}
	return nil, err
}

// maxKnown bounds the list of known calls of exec, in bytes.
const maxKnown = 4096

// knownExecs are the calls of exec that the adapter has received.
func knownExecs(c echo.Context) ([]string, error) {
	list := c.QueryParam("exec")
	if list == "" {
		return nil, nil
	}
	if len(list) > maxKnown || !callIDListPattern().MatchString(list) {
		return nil, web.BadParameter("exec", "Send the callIds of exec commands, with commas between them.",
			"exec is not a list of call ids")
	}
	return strings.Split(list, ","), nil
}

// leaseWatches keeps one open watch of each run. The zero value is ready.
type leaseWatches struct{ open web.NewestWaits[runKey] }

// runKey names a run. It includes the task, because the MAC does not cover the task: an
// edited lease token must not displace the watch of the real one.
type runKey struct {
	namespace string
	task      string
	run       string
}
