package main

import (
	"context"
	"errors"
	"net/url"
	"strings"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/cmd/picket/cli/exit"
	"github.com/picket-dev/picket/cmd/picket/cli/term"
)

// agentID completes what was typed to the id of one agent. Ids that clients
// chose can be anything, so the whole id stands above every beginning and end.
func (s *connection) agentID(ctx context.Context, typed string) (string, error) {
	if len(typed) == len("agent_")+ulidLength && strings.HasPrefix(typed, "agent_") {
		return typed, nil
	}
	if err := picket.CheckName("agent", typed); err != nil {
		e := exit.Usagef("%s is no id of an agent", term.ShellQuote(typed))
		e.Remedy = "See: picket agent list --status '*'"
		return "", e
	}
	err := s.get(ctx, agentPath(typed), nil, nil)
	if err == nil || !errors.Is(err, picket.CodeNotFound) && !errors.Is(err, picket.CodeForbidden) {
		return typed, err
	}
	id, unmatched := resolveID(ctx, "agent", typed, s.agentCandidates)
	switch {
	case errors.Is(err, picket.CodeForbidden) && unmatched != nil:
		return "", err
	case errors.Is(unmatched, picket.CodeNotFound):
		var e *picket.Error
		errors.As(unmatched, &e)
		e.Remedy = "See: picket agent list --status '*'"
	}
	return id, unmatched
}

// agentCandidates are the agents of every status, 10,000 at most.
func (s *connection) agentCandidates(ctx context.Context) ([]candidate, error) {
	var all []candidate
	q := url.Values{"status": {"*"}, "limit": {"1000"}}
	for range maxPages {
		var page picket.AgentPage
		if err := s.get(ctx, "/api/v1/agents?"+q.Encode(), &page, nil); err != nil {
			return nil, err
		}
		for _, a := range page.Agents {
			all = append(all, candidate{a.AgentID, strings.TrimSpace(string(a.Status) + " " + a.RoleID + " " + a.Name)})
		}
		if page.NextCursor == "" {
			break
		}
		q.Set("cursor", page.NextCursor)
	}
	return all, nil
}

func agentIDs(s *connection) candidateLister { return s.agentCandidates }
