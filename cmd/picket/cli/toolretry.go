package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/cmd/picket/cli/exit"
	"github.com/picket-dev/picket/cmd/picket/cli/term"
)

// ToolPatience is how long a tool call is begun again: longer than a store takes
// to be started and adopted, shorter than what holds an agent up.
const ToolPatience = 10 * time.Second

// RetryUnanswered repeats a call that nobody answered, until patience runs out. The
// call must be harmless to repeat.
func RetryUnanswered(ctx context.Context, patience time.Duration, w io.Writer, call func() error) error {
	said := false
	for began, wait := time.Now(), 100*time.Millisecond; ; wait = min(2*wait, 2*time.Second) {
		err := call()
		if !isUnanswered(err) {
			return err
		}
		pause := max(wait, retryDelay(err))
		if time.Since(began)+pause > patience {
			return err
		}
		if !said {
			said = true
			fmt.Fprintf(w, "picket: %s; trying again for %s\n", term.OneLine(exit.Text(err)), patience)
		}
		if Sleep(ctx, pause) != nil {
			return err
		}
	}
}

// isUnanswered reports whether the call may work unchanged in a moment.
func isUnanswered(err error) bool {
	return errors.Is(err, picket.CodeUnavailable) || errors.Is(err, picket.CodeRateLimited) ||
		errors.Is(err, picket.ErrUnknown)
}

func retryDelay(err error) time.Duration {
	var e *picket.Error
	if errors.As(err, &e) {
		return e.RetryAfter
	}
	return 0
}
