package rfc16

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/picket-dev/picket/internal/conformance"
)

// Config is one run.
type Config struct {
	// URL is the server, without a path. Required.
	URL string
	// Key is an operator's or administrator's. With an administrator's the
	// scoped keys of the run are made, and revoked at its end. Defaults to none.
	Key string
	// AgentKey owns the agents. Defaults to one that is made, else Key.
	AgentKey string
	// OtherKey is an agent key that owns none of them. Defaults to one that is
	// made; without it the rules about strangers are not run.
	OtherKey string
	// RFCOnly leaves out what the RFC does not say or has no route for.
	RFCOnly bool
	// Only leaves out every rule that it is not true of. Defaults to all rules.
	Only func(Rule) bool
	// Thresholds in seconds, of agents that are to fall silent. Default to 1, 2, 4.
	Interval  int
	Unhealthy int
	Dead      int
	// DrainTimeout of drains that run out in a check, in seconds. Defaults to 2.
	DrainTimeout int
	// Parallel bounds the rules that run side by side. Defaults to 32.
	Parallel int
	// Poll is the pause between two looks at something awaited. Defaults to 100 ms.
	Poll time.Duration
	// Slack is how late the server may judge. Defaults to 15 s.
	Slack time.Duration
	// Exact says that requests take no time, as on a virtual clock: then
	// boundaries are tried to the millisecond. Defaults to false.
	Exact bool
	// HTTP does the requests. Defaults to a client of its own.
	HTTP *http.Client
	// Progress is called for every result as it comes, one at a time. Defaults to nothing.
	Progress func(done, total int, r conformance.Result)
}

// suite is a run under way.
type suite struct {
	*conformance.Server
	cfg       Config
	available Needs // what there is
	why       map[Needs]string
}

// Run holds a server against every rule. The error says that nothing could be
// judged; rules that fail are in the report.
func Run(ctx context.Context, cfg Config) (conformance.Report, error) {
	s, err := start(ctx, cfg)
	if err != nil {
		return conformance.Report{}, err
	}
	var cases []conformance.Case
	for _, r := range Rules() {
		if (!cfg.RFCOnly || r.RFCOnly()) && (cfg.Only == nil || cfg.Only(r)) {
			cases = append(cases, s.testCase(r))
		}
	}
	runner := conformance.Runner{Server: s.Server, Title: "RFC-0016", Parallel: s.cfg.Parallel, Progress: cfg.Progress}
	return runner.Run(ctx, cases)
}

func start(ctx context.Context, cfg Config) (*suite, error) {
	cfg.Interval, cfg.Unhealthy, cfg.Dead = cmp.Or(cfg.Interval, 1), cmp.Or(cfg.Unhealthy, 2), cmp.Or(cfg.Dead, 4)
	cfg.DrainTimeout, cfg.Parallel = cmp.Or(cfg.DrainTimeout, 2), cmp.Or(cfg.Parallel, 32)
	cfg.Poll, cfg.Slack = cmp.Or(cfg.Poll, 100*time.Millisecond), cmp.Or(cfg.Slack, 15*time.Second)
	server, err := conformance.NewServer(cfg.URL, "rfc16", cfg.HTTP, cfg.Parallel)
	if err != nil {
		return nil, err
	}
	server.Keys = map[keyName]string{
		admin:      cfg.Key,
		operator:   cfg.Key,
		owner:      cmp.Or(cfg.AgentKey, cfg.Key),
		stranger:   cfg.OtherKey,
		unknownKey: "unknown-" + rand.Text(),
	}
	s := &suite{Server: server, cfg: cfg, why: map[Needs]string{}}
	return s, s.probe(ctx)
}

// probe finds out what the server has, and makes the keys that are missing.
func (s *suite) probe(ctx context.Context) error {
	a := s.Ask(ctx, operator, "GET", agentsPath, nil)
	switch {
	case a.Err != nil:
		return fmt.Errorf("%s cannot be reached: %w", s.URL, a.Err)
	case a.Status == 401:
		return ErrUnknownKey
	case a.Status == 404 || a.Status == 405:
		return fmt.Errorf("%w: GET %s answers %d", ErrNoRegistry, agentsPath, a.Status)
	}
	s.SetClock(a)
	s.makeKeys(ctx)
	s.needs(Stranger, s.Keys[stranger] != "", "no second agent key was given")
	s.needs(Operator, s.Keys[operator] != s.Keys[owner], "the agents' key is the operator's own")
	s.needs(Reviewer, s.Keys[reviewer] != "", "no reviewer's key could be made")
	s.needs(Keys, s.MadeKeys(), "the key makes no other keys")
	s.needs(Exact, s.cfg.Exact, "it takes a clock on which requests take no time")
	for need, path := range map[Needs]string{Events: "/api/v1/stats", Pools: "/api/v1/pools"} {
		a := s.Ask(ctx, operator, "GET", path, nil)
		s.needs(need, a.Status == 200, fmt.Sprintf("GET %s answers %d", path, a.Status))
	}
	a = s.Ask(ctx, operator, "POST", "/api/v1/tasks", fields{}) // may it submit? Without a title nothing is made
	s.needs(Tasks, a.Status == 400 || a.Status == 422, fmt.Sprintf("POST /api/v1/tasks answers %d", a.Status))
	a = s.Ask(ctx, operator, "POST", agentsPath+"/"+s.Prefix+"none/commands", fields{"command": "ping"})
	s.needs(Commands, a.Str("code") == "not_found",
		fmt.Sprintf("POST %s/{agent_id}/commands answers %d", agentsPath, a.Status))
	return nil
}

// The reasons why nothing can be judged.
var (
	ErrUnknownKey = errors.New("the server does not know the key")
	ErrNoRegistry = errors.New("the server has no agent registry")
)

func (s *suite) needs(need Needs, met bool, why string) {
	if met {
		s.available |= need
	} else {
		s.why[need] = why
	}
}

func (s *suite) has(need Needs) bool { return !s.cfg.RFCOnly && s.available&need == need }

// makeKeys makes the scoped keys that were not given, where the key may.
func (s *suite) makeKeys(ctx context.Context) {
	for _, k := range []struct {
		by    keyName
		scope string
		given bool
	}{
		{owner, "agent", s.cfg.AgentKey != ""}, {stranger, "agent", s.cfg.OtherKey != ""},
		{reviewer, "reviewer", false}, {operator, "operator", false},
	} {
		if !k.given && !s.MakeKey(ctx, k.by, k.scope) {
			return
		}
	}
}
