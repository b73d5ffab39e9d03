package agentclient

import (
	"testing"
	"time"

	protocol "github.com/a2aproject/a2a-go/v2/a2a"
	"go.uber.org/goleak"

	"github.com/picket-dev/picket/internal/rig/fakeagent"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A follower goes on after a refusal that is for a while, and ends with any other.
func TestAFollowerGivesUpWhatItCannotFollow(t *testing.T) {
	f := fakeagent.New(t)
	a, err := Open(t.Context(), &Target{URL: f.URL})
	if err != nil {
		t.Fatal(err)
	}
	lost := 0
	follow := func() error {
		fo := &Follower{Agent: a, ID: "t1", First: time.Millisecond, Longest: time.Millisecond,
			Event: func(protocol.Event) error { return nil }, Lost: func(error) { lost++ }}
		return fo.Run(t.Context())
	}
	f.Answer = func(string, string) string { return `error:{"code":-32001,"message":"no such task"}` }
	if err := follow(); err == nil || err.Error() != "the agent refuses: no such task" {
		t.Errorf("a task that is not there: %v", err)
	}
	begun := f.Requests()
	f.Answer = func(string, string) string {
		if f.Requests() < begun+5 {
			return `error:{"code":-32000,"message":"busy","data":[{"reason":"RATE_LIMITED","domain":"picket"}]}`
		}
		return `error:{"code":-32000,"message":"broken"}`
	}
	if err := follow(); err == nil || err.Error() != "the agent refuses: broken" || lost != 1 ||
		f.Requests() < begun+5 {
		t.Errorf("after %d notes of refusals: %v", lost, err)
	}
}
