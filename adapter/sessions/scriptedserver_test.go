package sessions

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/picket-dev/picket"
)

// scriptedServer is the orchestrator as a keeper sees it. Its promises are those of the real one: commands
// come with every answer until they have a result, and pieces of answers are joined by their offsets.
type scriptedServer struct {
	t *testing.T

	// resultFault may refuse a result, or lose its reply: then err is returned after the result was taken.
	resultFault func(id string, r picket.CommandResult) (err error, taken bool)
	// reportFault may refuse a report.
	reportFault func() error
	repeat      bool // commands are sent again and again
	// nextTask says for which prompts a turn is reserved.
	nextTask func(id string) bool

	instructions string // of the agent; locked by mu
	away         error  // it answers no request for commands; locked by mu

	mu       sync.Mutex
	changed  chan struct{} // closed at every change
	commands []picket.SessionCommand
	answers  map[string]string
	results  map[string][]picket.CommandResult
	resultAt map[string][]time.Time
	reports  []picket.SessionsReport
	polls    []time.Duration
	newest   int64 // number of the last message to the agent
	told     int64 // the number that a poll has named
}

func newScriptedServer(t *testing.T) *scriptedServer {
	return &scriptedServer{
		t:        t,
		changed:  make(chan struct{}),
		answers:  map[string]string{},
		results:  map[string][]picket.CommandResult{},
		resultAt: map[string][]time.Time{},
	}
}

// change wakes everybody who waits. The caller has locked the server.
func (s *scriptedServer) change() {
	close(s.changed)
	s.changed = make(chan struct{})
}

func (s *scriptedServer) Report(ctx context.Context, r picket.SessionsReport) error {
	if err := r.Check(); err != nil {
		s.t.Errorf("a report is refused: %v", err)
	}
	if s.reportFault != nil {
		if err := s.reportFault(); err != nil {
			return err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reports = append(s.reports, r)
	s.change()
	return ctx.Err()
}

func (s *scriptedServer) Pending(ctx context.Context, wait time.Duration) (picket.PendingCommands, error) {
	end := time.After(wait)
	s.mu.Lock()
	s.polls = append(s.polls, wait)
	s.mu.Unlock()
	for {
		s.mu.Lock()
		if err := s.away; err != nil {
			s.mu.Unlock()
			return picket.PendingCommands{}, err
		}
		pending, changed := picket.PendingCommands{Sessions: s.open(), Instructions: s.instructions}, s.changed
		if s.newest > s.told {
			s.told, pending.NewestMessage = s.newest, s.newest
			s.change()
		}
		s.mu.Unlock()
		if len(pending.Sessions) > 0 || pending.NewestMessage > 0 {
			return pending, nil
		}
		select {
		case <-ctx.Done():
			return picket.PendingCommands{}, fmt.Errorf("%w: %w", picket.ErrUnknown, ctx.Err())
		case <-end:
			return picket.PendingCommands{}, nil
		case <-changed:
		}
	}
}

// open are the commands without a result. The caller has locked the server.
func (s *scriptedServer) open() (open []picket.SessionCommand) {
	for _, c := range s.commands {
		if s.repeat || len(s.results[c.CommandID]) == 0 {
			open = append(open, c)
		}
	}
	return open
}

func (s *scriptedServer) Result(ctx context.Context, id string,
	r picket.CommandResult) (taken picket.ResultTaken, err error) {
	if err := r.Check(); err != nil {
		s.t.Errorf("a result is refused: %v", err)
	}
	if len(r.Output) > maxPiece {
		s.t.Errorf("a piece has %d bytes", len(r.Output))
	}
	var fault error
	if s.resultFault != nil {
		var stored bool
		if fault, stored = s.resultFault(id, r); fault != nil && !stored {
			return taken, fault
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	have := s.answers[id]
	if r.Offset > len(have) {
		s.t.Errorf("a piece begins at %d, and only %d bytes are there", r.Offset, len(have))
		return taken, picket.CodeOffset
	}
	if news := r.Offset + len(r.Output) - len(have); news > 0 {
		s.answers[id] += r.Output[len(r.Output)-news:]
	}
	s.results[id], s.resultAt[id] = append(s.results[id], r), append(s.resultAt[id], time.Now())
	s.change()
	taken.NextTask = r.State == picket.PromptAnswered && s.nextTask != nil && s.nextTask(id)
	return taken, fault
}

// prompt sends a prompt to a session and returns its id.
func (s *scriptedServer) prompt(session, text string, expires time.Duration) string {
	return s.command(picket.SessionCommand{CommandID: "prompt_" + ulid.Make().String(), Command: picket.CommandPrompt,
		SessionID: session, Text: text, ExpiresInMs: expires.Milliseconds()})
}

func (s *scriptedServer) stop(session string) string {
	return s.command(picket.SessionCommand{CommandID: "cmd_" + ulid.Make().String(),
		Command: picket.CommandStopSession, SessionID: session})
}

func (s *scriptedServer) command(c picket.SessionCommand) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.commands = append(s.commands, c)
	s.change()
	return c.CommandID
}

// tell has the next poll name a new message.
func (s *scriptedServer) tell() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.newest++
	s.change()
}

// await waits until ok, which is called with the server locked.
func (s *scriptedServer) await(what string, ok func() bool) {
	s.t.Helper()
	late := time.After(30 * time.Second)
	for {
		s.mu.Lock()
		done, changed := ok(), s.changed
		s.mu.Unlock()
		if done {
			return
		}
		select {
		case <-changed:
		case <-late:
			s.t.Fatalf("%s: reports %+v, results %+v", what, s.reports, s.results)
		}
	}
}

// awaitEnd waits for the end of a command.
func (s *scriptedServer) awaitEnd(id string) (last picket.CommandResult, answer string) {
	s.t.Helper()
	s.await("the command does not end", func() bool {
		all := s.results[id]
		if len(all) == 0 {
			return false
		}
		last, answer = all[len(all)-1], s.answers[id]
		return last.State.Ended()
	})
	return last, answer
}

// awaitReport waits for a report about a session.
func (s *scriptedServer) awaitReport(session string, ok func(r picket.SessionReport) bool) {
	s.t.Helper()
	s.await("the session is not reported so", func() bool {
		if len(s.reports) == 0 {
			return false
		}
		return slices.ContainsFunc(s.reports[len(s.reports)-1].Sessions,
			func(r picket.SessionReport) bool { return r.SessionID == session && ok(r) })
	})
}

// ids are the sessions of the first report from the given one on.
func (s *scriptedServer) ids(from int) (ids []string) {
	s.t.Helper()
	s.await("nothing is reported", func() bool {
		if len(s.reports) <= from {
			return false
		}
		for _, r := range s.reports[from].Sessions {
			ids = append(ids, r.SessionID)
		}
		return true
	})
	return ids
}

// reported is how often the sessions were reported.
func (s *scriptedServer) reported() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.reports)
}

// answered checks that a prompt gets an answer.
func (s *scriptedServer) answered(id, want string) {
	s.t.Helper()
	if last, answer := s.awaitEnd(id); last.State != picket.PromptAnswered || answer != want {
		s.t.Fatalf("the prompt is %s %s with %q, want the answer %q", last.State, last.Reason, answer, want)
	}
}

// start runs a keeper. end ends it and returns what Run returned. The test ends it at the latest.
func start(t *testing.T, cfg Config) (k *Keeper, end func() error) {
	t.Helper()
	k, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- k.Run(ctx) }()
	end = sync.OnceValue(func() error {
		cancel()
		return <-ended
	})
	t.Cleanup(func() {
		if err := end(); err != nil && !errors.Is(err, picket.CodeAgentGone) {
			t.Errorf("the keeper ended with %v", err)
		}
	})
	return k, end
}
