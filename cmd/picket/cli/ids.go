package cli

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/cmd/picket/cli/exit"
	"github.com/picket-dev/picket/cmd/picket/cli/term"
)

// An id can be given whole, or by its beginning or end as long as that is
// unique; the kind in front may be left out. The ids of one minute begin alike,
// so the end is often the shorter handle.

// ulidLength is that of a ULID.
const ulidLength = 26

// taskID completes what was typed to the id of one task.
func (s *Connection) taskID(ctx context.Context, typed string) (string, error) {
	return resolveID(ctx, "task", typed, s.taskCandidates)
}

func (s *Connection) handoffID(ctx context.Context, typed string) (string, error) {
	return resolveID(ctx, "handoff", typed, s.handoffCandidates)
}

func (s *Connection) webhookID(ctx context.Context, typed string) (string, error) {
	return resolveID(ctx, "webhook", typed, s.webhookCandidates)
}

func (s *Connection) keyID(ctx context.Context, typed string) (string, error) {
	return resolveID(ctx, "key", typed, s.keyCandidates)
}

type candidateLister func(context.Context) ([]candidate, error)

// candidate is an id with the words that describe it.
type candidate struct {
	id    string
	about string
}

func resolveID(ctx context.Context, kind, typed string, list candidateLister) (string, error) {
	body := strings.ToUpper(strings.TrimPrefix(typed, kind+"_"))
	if len(body) == ulidLength {
		return kind + "_" + body, nil
	}
	if len(body) < 2 {
		return "", exit.Usagef("%q is too short to name one of the %ss", typed, kind)
	}
	all, err := list(ctx)
	if err != nil {
		return "", err
	}
	var found []candidate
	for _, c := range all {
		rest := strings.ToUpper(strings.TrimPrefix(c.id, kind+"_"))
		if strings.HasPrefix(rest, body) || strings.HasSuffix(rest, body) {
			found = append(found, c)
		}
	}
	switch len(found) {
	case 1:
		return found[0].id, nil
	case 0:
		return "", picket.Refuse(picket.CodeNotFound, "See: picket "+kind+" list", "there is no %s with an id like %q",
			kind, typed)
	}
	var ids []string
	for _, c := range found[:min(len(found), 5)] {
		ids = append(ids, c.id)
	}
	if len(found) > len(ids) {
		ids = append(ids, "…")
	}
	return "", picket.Refuse(exit.CodeUsage, "Type more of it.", "%q stands for %d %ss: %s", typed, len(found), kind,
		strings.Join(ids, " "))
}

// maxCandidates bounds the search for an abbreviated id.
const maxCandidates = 2000

// candidates describes the first items of a list.
func candidates[T any](items iter.Seq2[T, error], most int, describe func(T) candidate) ([]candidate, error) {
	var all []candidate
	for item, err := range items {
		if err != nil {
			return nil, err
		}
		if all = append(all, describe(item)); len(all) == most {
			break
		}
	}
	return all, nil
}

// candidatesOf describes a list that came whole.
func candidatesOf[T any](items []T, err error, describe func(T) candidate) ([]candidate, error) {
	var all []candidate
	for _, item := range items {
		all = append(all, describe(item))
	}
	return all, err
}

func (s *Connection) taskCandidates(ctx context.Context) ([]candidate, error) {
	return candidates(s.Tasks.All(ctx, picket.TaskQuery{Limit: 200}), maxCandidates, func(t picket.Task) candidate {
		return candidate{t.TaskID, string(t.State) + " " + t.Title}
	})
}

func (s *Connection) handoffCandidates(ctx context.Context) ([]candidate, error) {
	var all []candidate
	for _, state := range picket.HandoffStates {
		some, err := s.handoffsIn(ctx, state)
		if err != nil {
			return nil, err
		}
		all = append(all, some...)
	}
	return all, nil
}

func (s *Connection) openHandoffCandidates(ctx context.Context) ([]candidate, error) {
	return s.handoffsIn(ctx, picket.HandoffOpen)
}

func (s *Connection) handoffsIn(ctx context.Context, state picket.HandoffState) ([]candidate, error) {
	return candidates(s.Handoffs.All(ctx, picket.HandoffQuery{State: state, Limit: 200}), maxCandidates,
		func(h picket.Handoff) candidate { return candidate{h.HandoffID, h.Question} })
}

func (s *Connection) reviewCandidates(ctx context.Context) ([]candidate, error) {
	return candidates(s.Reviews.All(ctx, picket.ReviewQuery{Limit: 200}), maxCandidates,
		func(r picket.PendingReview) candidate { return candidate{r.TaskID, r.Title} })
}

func (s *Connection) keyCandidates(ctx context.Context) ([]candidate, error) {
	keys, err := s.Keys.List(ctx)
	return candidatesOf(keys, err, func(k picket.APIKey) candidate { return candidate{k.KeyID, k.Name} })
}

func (s *Connection) webhookCandidates(ctx context.Context) ([]candidate, error) {
	hooks, err := s.Webhooks.List(ctx)
	return candidatesOf(hooks, err, func(w picket.Webhook) candidate {
		return candidate{w.WebhookID, w.Name + " " + string(w.State)}
	})
}

func (s *Connection) poolCandidates(ctx context.Context) ([]candidate, error) {
	pools, err := s.Pools.List(ctx)
	return candidatesOf(pools, err, func(p picket.Pool) candidate {
		return candidate{p.RoleID, fmt.Sprintf("%d active", p.Members[picket.AgentActive])}
	})
}

// agentCandidates are the agents of every status, 10,000 at most.
func (s *Connection) agentCandidates(ctx context.Context) ([]candidate, error) {
	every := s.Agents.All(ctx, picket.AgentQuery{Statuses: []picket.AgentStatus{"*"}, Limit: 1000, Attached: true})
	return candidates(every, 5*maxCandidates, func(a picket.AgentRow) candidate {
		return candidate{a.AgentID, strings.TrimSpace(string(a.Status) + " " + a.RoleID + " " + a.Name)}
	})
}

// onOne is a verb on one thing, whose id is completed.
func onOne(use, short string, complete func(*Connection, context.Context, string) (string, error),
	offered func(*Connection) candidateLister,
	act func(cmd *cobra.Command, s *Connection, id string) error) *cobra.Command {
	return &cobra.Command{
		Use: use, Short: short, Args: CheckArgs(cobra.ExactArgs(1)), ValidArgsFunction: completeFirstID(offered),
		RunE: connected(func(cmd *cobra.Command, s *Connection, given []string) error {
			id, err := complete(s, cmd.Context(), given[0])
			if err != nil {
				return err
			}
			return act(cmd, s, id)
		}),
	}
}

// onOnlyWaiting is a verb on one of the things that wait for a person; without an id it
// takes the only one there is.
func onOnlyWaiting(use, short, what string, complete func(*Connection, context.Context, string) (string, error),
	waiting func(*Connection) candidateLister,
	act func(cmd *cobra.Command, s *Connection, id string) error) *cobra.Command {
	return &cobra.Command{
		Use: use, Short: short, Args: CheckArgs(cobra.MaximumNArgs(1)), ValidArgsFunction: completeFirstID(waiting),
		RunE: connected(func(cmd *cobra.Command, s *Connection, given []string) error {
			find := func(ctx context.Context, typed string) (string, error) { return complete(s, ctx, typed) }
			id, err := givenOrOnly(cmd.Context(), cmd, given, find, waiting(s), what)
			if err != nil {
				return err
			}
			return act(cmd, s, id)
		}),
	}
}

// givenOrOnly answers the id that was typed, or the only candidate when none was.
func givenOrOnly(ctx context.Context, cmd *cobra.Command, given []string,
	complete func(context.Context, string) (string, error), waiting candidateLister, what string) (string, error) {
	if len(given) > 0 {
		return complete(ctx, given[0])
	}
	all, err := waiting(ctx)
	if err != nil {
		return "", err
	}
	switch len(all) {
	case 1:
		return all[0].id, nil
	case 0:
		return "", picket.Refuse(picket.CodeNotFound,
			"See what there is: "+cmd.Parent().CommandPath()+" list, or picket task list", "no %s is waiting", what)
	}
	var ids []string
	for _, c := range all[:min(len(all), 10)] {
		ids = append(ids, "  "+c.id+"  "+term.Clip(c.about, 60))
	}
	return "", picket.Refuse(exit.CodeUsage, "Usage: "+cmd.UseLine(),
		"%d %ss are waiting, name one:\n%s", len(all), what, strings.Join(ids, "\n"))
}

// completeFirstID offers live ids to the shell.
func completeFirstID(list func(*Connection) candidateLister) cobra.CompletionFunc {
	each := completeIDs(list)
	return func(cmd *cobra.Command, given []string, typed string) ([]cobra.Completion, cobra.ShellCompDirective) {
		if len(given) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return each(cmd, given, typed)
	}
}

// completeIDs offers live ids for any number of arguments, each once.
func completeIDs(list func(*Connection) candidateLister) cobra.CompletionFunc {
	return func(cmd *cobra.Command, given []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
		s, err := Connect(cmd)
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		all, _ := list(s)(cmd.Context())
		var offers []cobra.Completion
		for _, c := range all {
			if slices.Contains(given, c.id) {
				continue
			}
			offers = append(offers, cobra.CompletionWithDesc(c.id, term.Clip(c.about, 50)))
		}
		return offers, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveKeepOrder
	}
}

func taskIDs(s *Connection) candidateLister    { return s.taskCandidates }
func handoffIDs(s *Connection) candidateLister { return s.openHandoffCandidates }
func reviewIDs(s *Connection) candidateLister  { return s.reviewCandidates }
func keyIDs(s *Connection) candidateLister     { return s.keyCandidates }
func webhookIDs(s *Connection) candidateLister { return s.webhookCandidates }
func agentIDs(s *Connection) candidateLister   { return s.agentCandidates }
func poolRoles(s *Connection) candidateLister  { return s.poolCandidates }
