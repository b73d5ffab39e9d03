package exit

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/picket-dev/picket"
)

func TestExitCodes(t *testing.T) {
	for err, want := range map[error]int{
		nil:                                0,
		errors.New("anything"):             1,
		picket.CodeForbidden:               1,
		picket.CodeUnauthenticated:         1,
		picket.CodeInternal:                1,
		Usagef("no"):                       2,
		picket.CodeValidation:              2,
		picket.CodeNotAvailable:            2,
		picket.CodeTooLarge:                2,
		errors.New("unknown flag: --x"):    2,
		picket.CodePolicyInvalid:           2,
		picket.CodeNotFound:                3,
		picket.CodeTaskClosed:              4,
		picket.CodeStaleFence:              4,
		picket.CodeLeaseExpired:            4,
		picket.CodeCursorExpired:           4,
		picket.CodeIdempotencyConflict:     4,
		picket.CodeUnavailable:             6,
		picket.CodePaused:                  6,
		Status(Timeout):                    124,
		fmt.Errorf("x: %w", Status(1)):     1,
		picket.CodeBudgetExceeded:          5,
		fmt.Errorf("%w", context.Canceled): 1,
	} {
		if got := Code(err); got != want {
			t.Errorf("%v: exit code %d, want %d", err, got, want)
		}
	}
	if ForHTTP(402) != Budget {
		t.Error("402 is not the budget's exit code")
	}
}
