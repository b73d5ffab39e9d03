package toolproxy

import (
	"context"

	"github.com/labstack/echo/v4"

	"github.com/picket-dev/picket"
)

// waitingTools are the tools that wait: a server that stops ends them at once, for
// they have no effect that would be lost.
var waitingTools = map[string]bool{"await_subtask": true, "await_top_up": true}

type awaitTopUpRequest struct {
	WaitSeconds *int `json:"waitSeconds"`
}

func awaitTopUp(ctx context.Context, envelope envelopeAccount, c Call, req awaitTopUpRequest) (any, error) {
	wait, err := toolWait(req.WaitSeconds)
	if err != nil {
		return nil, err
	}
	return envelope.AwaitTopUp(ctx, c.Held, wait)
}

// handleUsage takes what an agent's own output says it has used.
func handleUsage(c echo.Context, envelope envelopeAccount, held picket.LeaseCredential,
	u picket.UsageReport) (any, error) {
	if err := u.Check(); err != nil {
		return nil, err
	}
	return envelope.ReportUsage(c.Request().Context(), held, u)
}
