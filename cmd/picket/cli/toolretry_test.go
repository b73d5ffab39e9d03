package cli

import (
	"bytes"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/picket-dev/picket"
)

// unansweredFor is a call that nobody answers until the store is back.
func unansweredFor(back time.Duration, err error, calls *int) func() error {
	began := time.Now()
	return func() error {
		*calls++
		if time.Since(began) < back {
			return err
		}
		return nil
	}
}

func TestUnansweredToolCallsAreRetried(t *testing.T) {
	away := &picket.Error{Code: picket.CodeUnavailable, Message: "the store does not answer"}
	asked := &picket.Error{Code: picket.CodeUnavailable, Message: "wait", RetryAfter: 4 * time.Second}
	refused := &picket.Error{Code: picket.CodeStaleFence, Message: "superseded"}
	for _, tt := range []struct {
		name        string
		back        time.Duration
		err         error
		fails       bool
		calls       int
		took        time.Duration
		complaining bool
	}{
		{"at once", 0, away, false, 1, 0, false},
		{"a restart", 2 * time.Second, away, false, 6, 3100 * time.Millisecond, true},
		{"an unknown outcome", time.Second, picket.Refuse(picket.CodeInternal, "", "lost").WithCause(picket.ErrUnknown),
			false, 5, 1500 * time.Millisecond, true},
		{"never back", time.Hour, away, true, 9, 9100 * time.Millisecond, true},
		{"asked to wait", time.Hour, asked, true, 3, 8 * time.Second, true},
		{"refused", time.Hour, refused, true, 1, 0, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var said bytes.Buffer
				calls, began := 0, time.Now()
				err := RetryUnanswered(t.Context(), ToolPatience, &said, unansweredFor(tt.back, tt.err, &calls))
				if took := time.Since(began); (err != nil) != tt.fails || calls != tt.calls || took != tt.took {
					t.Errorf("%v after %d calls and %s, want %d and %s", err, calls, took, tt.calls, tt.took)
				}
				if tt.fails && err != tt.err {
					t.Errorf("the last refusal is hidden: %v", err)
				}
				if lines := strings.Count(said.String(), "\n"); lines > 1 || (lines == 1) != tt.complaining {
					t.Errorf("said %q", said.String())
				}
			})
		})
	}
}
