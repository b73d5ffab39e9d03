package toolproxy

import (
	"context"
	"net/http"
	"slices"
	"strings"

	"github.com/labstack/echo/v4"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/internal/web"
)

// evidenceRecorder takes evidence about a run: it never changes the task's state and
// is accepted until 15 minutes after the lease ended.
type evidenceRecorder interface {
	RunExit(ctx context.Context, held picket.LeaseCredential, exit picket.Exit, containment string) error
	// RunLog appends data at offset and answers the new end. Bytes below the
	// known end are ignored; an offset beyond it is offset_conflict.
	RunLog(ctx context.Context, held picket.LeaseCredential, piece picket.LogWrite) (next int64, err error)
	RunEvents(ctx context.Context, held picket.LeaseCredential, events []picket.RunEvent) error
}

// exitRequest reports how the process ended.
type exitRequest struct {
	picket.Exit
	Containment string  `json:"containment"`
	LastEventID *string `json:"lastEventId"`
}

func handleExit(_ *Proxy, c echo.Context, door Backend, held picket.LeaseCredential) error {
	body, err := decodeExit(c)
	if err != nil {
		return err
	}
	if err := evidenceRecorder(door).RunExit(c.Request().Context(), held, body.Exit, body.Containment); err != nil {
		return err
	}
	return web.JSON(c, http.StatusOK, struct{}{})
}

func decodeExit(c echo.Context) (exitRequest, error) {
	body, _, err := web.Decode[exitRequest](c, smallBody)
	if err != nil {
		return body, err
	}
	body.LastEvent = body.LastEventID
	if err := checkExit("", body.Exit, picket.EvidenceClasses); err != nil {
		return body, err
	}
	return body, checkContainment("/containment", body.Containment)
}

func checkContainment(field, containment string) error {
	if containment == "" || slices.Contains(picket.Containments, containment) {
		return nil
	}
	return picket.Invalid(field, "Send "+strings.Join(picket.Containments, ", ")+", or leave it out.",
		"%s is not a way to hold a process tree", field)
}
