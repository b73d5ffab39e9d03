package toolproxy

import (
	"context"
	"regexp"

	"github.com/labstack/echo/v4"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/internal/web"
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

var (
	usageSourcePattern  = regexp.MustCompile(`^[A-Za-z0-9_.-]{1,64}$`)
	usageSessionPattern = regexp.MustCompile(`^[!-~]{0,128}$`)
)

// handleUsage takes what an agent's own output says it has used.
func handleUsage(c echo.Context, envelope envelopeAccount, held picket.LeaseCredential,
	u picket.UsageReport) (any, error) {
	switch {
	case !usageSourcePattern.MatchString(u.Source):
		return nil, picket.Invalid("/source", "Send the agent's name, such as claude.",
			"source is not a name of 1 to 64 characters")
	case !usageSessionPattern.MatchString(u.Session):
		return nil, picket.Invalid("/session", "Send the id that the agent gave its session.",
			"session is not an id of up to 128 characters")
	case u.Scope != "" && u.Scope != "run" && u.Scope != "session":
		return nil, picket.Invalid("/scope", "Send run or session, or leave it out.", "scope is %q",
			web.Shortened(u.Scope))
	case u.Tokens < 0 || u.Tokens > picket.MaxNumber:
		return nil, picket.Invalid("/tokens", "Send how many were used in all.", "tokens are %d", u.Tokens)
	case u.USD < 0:
		return nil, picket.Invalid("/usd", "Send what it cost in all.", "usd is below zero")
	}
	return envelope.ReportUsage(c.Request().Context(), held, u)
}
