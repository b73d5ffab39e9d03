package attach

import (
	"cmp"
	"context"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/adapter"
	"github.com/picket-dev/picket/adapter/agents"
	"github.com/picket-dev/picket/adapter/sessions"
	"github.com/picket-dev/picket/client"
	"github.com/picket-dev/picket/cmd/picket/cli"
	"github.com/picket-dev/picket/cmd/picket/cli/exit"
	"github.com/picket-dev/picket/cmd/picket/settings"
)

// keepSessions has a worker of an entry of picket.yaml keep the sessions that the entry asks for.
func keepSessions(conf *adapter.Config, e settings.Agent, l launch, s *cli.Connection) error {
	if e.Session.Only && e.Session.Max == 0 {
		return picket.Refuse(exit.CodeUsage, "Set agents."+e.Name+".session.max to at least 1, or leave session.only out.",
			"nobody asks for tasks: agents.%s.session.only is true, and it keeps no sessions", e.Name)
	}
	if e.Session.Max == 0 {
		return nil
	}
	if conf.Unregistered {
		return picket.Refuse(exit.CodeUsage, "Leave out --unregistered, or agents."+e.Name+".session.",
			"a worker outside of the registry keeps no sessions")
	}
	about := map[string]any{"agent_name": e.Name}
	maps.Copy(about, conf.Metadata)
	conf.Metadata = about
	base := sessions.Config{
		StateDir:    filepath.Join(settings.StateDir(), "sessions", e.Name),
		Preset:      cmp.Or(l.preset, agents.PresetExec),
		Command:     l.command,
		Env:         conf.Env,
		Max:         e.Session.Max,
		Kind:        e.Session.Kind,
		IdleStop:    e.Session.IdleStop,
		StallAfter:  conf.StallAfter,
		Containment: conf.Containment,
		Limits:      conf.Limits,
		Log:         conf.Log,
	}
	check := base
	check.Server, check.Incarnation = &sessionServer{}, 1
	if _, err := sessions.New(check); err != nil {
		return err
	}
	conf.TakeOnRequest = e.Session.Only
	conf.WhileRegistered = func(ctx context.Context, r adapter.Registered) {
		own := base
		own.Incarnation, own.ProxyURL = r.Incarnation, s.URL()
		own.Server = &sessionServer{c: s.Client, agent: r.AgentID, incarnation: r.Incarnation,
			messages: own.PassesMessages()}
		own.Work = func(ctx context.Context, t sessions.Turn) error {
			taken, err := r.TakeTask(ctx, t.Conversation, t.Started)
			if err == nil && !taken {
				conf.Log.Info("there is no task for the session any more", "session", t.SessionID)
			}
			return err
		}
		keeper, err := sessions.New(own)
		if err == nil {
			err = keeper.Run(ctx)
		}
		if err != nil && picket.CodeOf(err) != picket.CodeAgentGone {
			conf.Log.Error("this worker keeps no sessions", "agent_name", e.Name, "err", err)
		}
	}
	return nil
}

// maxKnown is how many commands a poll says that it knows.
const maxKnown = 200

// sessionServer is the server as the keeper of one registration sees it.
type sessionServer struct {
	c           *client.Client
	agent       string
	incarnation int64
	messages    bool // polls wait for messages to the agent, too

	mu     sync.Mutex
	known  []string // ids of commands that were read, the newest last
	newest int64    // number of the last message that a poll has named
}

func (s *sessionServer) Report(ctx context.Context, r picket.SessionsReport) error {
	return s.c.Sessions.Report(ctx, s.agent, r)
}

// Pending leaves out what it has answered before, or the next poll would not wait. A look that does not
// wait has everything, with the time that remains by now.
func (s *sessionServer) Pending(ctx context.Context, wait time.Duration) (picket.PendingCommands, error) {
	q := picket.PendingQuery{Incarnation: s.incarnation, Wait: wait}
	s.mu.Lock()
	if wait > 0 {
		q.Known = slices.Clone(s.known)
	}
	if s.messages {
		q.MessagesAfter = new(s.newest)
	}
	s.mu.Unlock()
	got, err := s.c.Sessions.Pending(ctx, s.agent, q)
	if err != nil {
		return got, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.newest = max(s.newest, got.NewestMessage)
	for _, c := range got.Sessions {
		s.known = append(s.known, c.CommandID)
	}
	for _, c := range got.Agent {
		s.known = append(s.known, c.CommandID)
	}
	s.known = s.known[max(0, len(s.known)-maxKnown):]
	return got, nil
}

// Result says what became of a prompt. That a session was stopped is said by the report.
func (s *sessionServer) Result(ctx context.Context, commandID string,
	r picket.CommandResult) (taken picket.ResultTaken, err error) {
	if !strings.HasPrefix(commandID, "prompt_") {
		return taken, nil
	}
	return s.c.Sessions.Result(ctx, s.agent, commandID, r)
}
