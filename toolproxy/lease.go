package toolproxy

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/internal/web"
)

// leaser keeps, gives back and observes a lease.
type leaser interface {
	// Renew moves the deadline to now + window; it never revives.
	Renew(ctx context.Context, held picket.LeaseCredential) (picket.Renewal, error)
	// Reclaim gives a lease from before an adoption of the store a higher token;
	// any other it leaves as it is.
	Reclaim(ctx context.Context, held picket.LeaseCredential) (picket.Renewal, error)
	// Release ends the lease; exit.Class is one of picket.ReleaseClasses.
	Release(ctx context.Context, held picket.LeaseCredential, exit picket.Exit) (picket.TaskState, error)
	// Watch waits until the lease changes; changed is false when the wait ran
	// out. An ended lease answers at once with its state. Processes to start are
	// told until they are among known, the call ids that the adapter has heard of.
	Watch(ctx context.Context, held picket.LeaseCredential, wait time.Duration,
		known ...string) (w picket.Watch, changed bool, err error)
}

// Limits of the small bodies, in bytes.
const (
	smallBody = 64 << 10
	maxDetail = 16 << 10
)

// MaxWait is the longest a watch waits; clients of tools give up at a minute.
const MaxWait = 50 * time.Second

// stateResponse says what has become of the task.
type stateResponse struct {
	State picket.TaskState `json:"state"`
}

func handleRenew(_ *Proxy, c echo.Context, door Backend, held picket.LeaseCredential) error {
	return extendLease(c, held, door.Renew)
}

func handleReclaim(_ *Proxy, c echo.Context, door Backend, held picket.LeaseCredential) error {
	return extendLease(c, held, door.Reclaim)
}

func extendLease(c echo.Context, held picket.LeaseCredential,
	extend func(context.Context, picket.LeaseCredential) (picket.Renewal, error)) error {
	if _, _, err := web.Decode[struct{}](c, smallBody); err != nil {
		return err
	}
	renewal, err := extend(c.Request().Context(), held)
	if err != nil {
		return err
	}
	return web.JSON(c, http.StatusOK, renewal)
}

// releaseRequest gives a lease back. Without an exit it is a voluntary return,
// which counts no failure.
type releaseRequest struct {
	Exit   *picket.Exit `json:"exit"`
	Detail string       `json:"detail"` // last lines of output or a reason
	// LastEventID is the id of the run's last event, "" if it has sent none.
	LastEventID *string `json:"lastEventId"`
}

func handleRelease(_ *Proxy, c echo.Context, door Backend, held picket.LeaseCredential) error {
	exit, err := decodeRelease(c)
	if err != nil {
		return err
	}
	state, err := leaser(door).Release(c.Request().Context(), held, exit)
	if err != nil {
		return err
	}
	return web.JSON(c, http.StatusOK, stateResponse{state})
}

func decodeRelease(c echo.Context) (picket.Exit, error) {
	body, _, err := web.Decode[releaseRequest](c, smallBody)
	if err != nil {
		return picket.Exit{}, err
	}
	exit := picket.Exit{Class: picket.ExitReleased}
	if body.Exit != nil {
		exit = *body.Exit
	}
	if body.Detail != "" {
		exit.Detail = body.Detail
	}
	exit.LastEvent = body.LastEventID
	return exit, checkExit("/exit", exit, picket.ReleaseClasses)
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
	case exit.Signal != nil && !signalPattern.MatchString(*exit.Signal):
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

// handleWatch answers as soon as something became of the lease, 204 when the wait
// ran out or a newer watch of the same run took its place.
func handleWatch(p *Proxy, c echo.Context, door Backend, held picket.LeaseCredential) error {
	seconds, err := watchSeconds(c)
	if err != nil {
		return err
	}
	known, err := knownExecs(c)
	if err != nil {
		return err
	}
	ctx, stopWaiting := web.WaitContext(c)
	defer stopWaiting()
	ctx, leave := p.leaseWatches.add(ctx, held)
	defer leave()
	w, changed, err := leaser(door).Watch(ctx, held, time.Duration(seconds)*time.Second, known...)
	switch {
	case err == nil && changed:
		return web.JSON(c, http.StatusOK, w)
	case displaced(ctx):
		return c.NoContent(http.StatusNoContent)
	case ctx.Err() != nil && web.Stopping(c):
		return web.StoppingError()
	case err != nil:
		return err
	}
	return c.NoContent(http.StatusNoContent)
}

func watchSeconds(c echo.Context) (int64, error) {
	longest := int64(MaxWait / time.Second)
	return queryNumber(c.QueryParams(), "waitSeconds", longest, longest)
}

// maxKnown bounds the list of them, in bytes.
const maxKnown = 4096

// knownExecs are the calls of exec that the adapter has heard of.
func knownExecs(c echo.Context) ([]string, error) {
	list := c.QueryParam("exec")
	if list == "" {
		return nil, nil
	}
	if len(list) > maxKnown || !callIDListPattern.MatchString(list) {
		return nil, web.BadParameter("exec", "Send the callIds of exec commands, with commas between them.",
			"exec is not a list of call ids")
	}
	return strings.Split(list, ","), nil
}
