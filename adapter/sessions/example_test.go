//go:build unix

package sessions_test

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/adapter/agents"
	"github.com/picket-dev/picket/adapter/sessions"
)

// onePrompt is a server that has one prompt, for the first session that is reported.
type onePrompt struct {
	sessions chan string
	answered chan string
	answer   string // as far as it is known
}

func (s *onePrompt) Report(_ context.Context, r picket.SessionsReport) error {
	select {
	case s.sessions <- r.Sessions[0].SessionID:
	default:
	}
	return nil
}

func (s *onePrompt) Pending(ctx context.Context, wait time.Duration) (p picket.PendingCommands, err error) {
	select {
	case id := <-s.sessions:
		p.Sessions = []picket.SessionCommand{{
			CommandID:   "prompt_01JD0000000000000000000000",
			Command:     picket.CommandPrompt,
			SessionID:   id,
			Text:        "How are you?",
			ExpiresInMs: time.Minute.Milliseconds(),
		}}
	case <-time.After(wait):
	case <-ctx.Done():
		err = ctx.Err()
	}
	return p, err
}

func (s *onePrompt) Result(_ context.Context, _ string, r picket.CommandResult) (t picket.ResultTaken, err error) {
	s.answer = s.answer[:r.Offset] + r.Output // a piece may come again
	if r.State.Ended() {
		s.answered <- fmt.Sprintf("%s: %s", r.State, s.answer)
	}
	return t, nil
}

// The agent is a shell script that answers each prompt with the same words.
const script = `while read -r line; do
	id=$(printf '%s' "$line" | sed 's/.*"promptId":"\([^"]*\)".*/\1/')
	printf '{"type":"answer","promptId":"%s","text":"I am fine."}\n' "$id"
done`

// A keeper keeps one session of a program, which answers a prompt.
func ExampleKeeper() {
	dir, err := os.MkdirTemp("", "sessions-")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	server := &onePrompt{sessions: make(chan string, 1), answered: make(chan string, 1)}
	keeper, err := sessions.New(sessions.Config{
		Server:      server,
		Incarnation: 1,
		StateDir:    dir,
		Preset:      agents.PresetExec,
		Command:     []string{"sh", "-c", script},
		Containment: picket.ContainmentGroup,
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx, end := context.WithCancel(context.Background())
	go func() {
		fmt.Println(<-server.answered)
		end()
	}()
	if err := keeper.Run(ctx); err != nil {
		fmt.Println(err)
	}
	// Output: answered: I am fine.
}
