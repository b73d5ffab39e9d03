package toolproxy

import (
	"context"
	"regexp"
	"time"

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

func awaitTopUp(ctx context.Context, envelope envelopeAccount, c Call) (any, error) {
	req, err := DecodeArgs[awaitTopUpRequest](c.Args)
	if err != nil {
		return nil, err
	}
	wait := MaxWait
	if req.WaitSeconds != nil {
		wait = time.Duration(*req.WaitSeconds) * time.Second
	}
	if wait < 0 || wait > MaxWait {
		return nil, picket.Invalid("/waitSeconds", "Send a number from 0 to 50, and call again when the wait ran out.",
			"waitSeconds is %d, allowed are 0 to 50", *req.WaitSeconds)
	}
	return envelope.AwaitTopUp(ctx, c.Held, wait)
}

var (
	usageSourcePattern  = regexp.MustCompile(`^[A-Za-z0-9_.-]{1,64}$`)
	usageSessionPattern = regexp.MustCompile(`^[!-~]{0,128}$`)
)

// handleUsage takes what an agent's own output says it has used.
func handleUsage(c echo.Context, envelope envelopeAccount, held picket.LeaseCredential) (any, error) {
	u, _, err := web.Decode[picket.UsageReport](c, smallBody)
	if err != nil {
		return nil, err
	}
	switch {
	case !usageSourcePattern.MatchString(u.Source):
		err = picket.Invalid("/source", "Send the agent's name, such as claude.",
			"source is not a name of 1 to 64 characters")
	case !usageSessionPattern.MatchString(u.Session):
		err = picket.Invalid("/session", "Send the id that the agent gave its session.",
			"session is not an id of up to 128 characters")
	case u.Scope != "" && u.Scope != "run" && u.Scope != "session":
		err = picket.Invalid("/scope", "Send run or session, or leave it out.", "scope is %q", web.Shortened(u.Scope))
	case u.Tokens < 0 || u.Tokens > picket.MaxNumber:
		err = picket.Invalid("/tokens", "Send how many were used in all.", "tokens are %d", u.Tokens)
	case u.USD < 0:
		err = picket.Invalid("/usd", "Send what it cost in all.", "usd is below zero")
	}
	if err != nil {
		return nil, err
	}
	return envelope.ReportUsage(c.Request().Context(), held, u)
}
