package rfc16

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/picket-dev/picket/internal/unixsocket"
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
	Progress func(done, total int, r Result)
}

// suite is a run under way.
type suite struct {
	cfg       Config
	base      string // what the URLs of requests begin with
	prefix    string
	keys      map[keyName]string
	made      []string      // ids of keys to be revoked
	ahead     time.Duration // of the server's clock
	available Needs         // what there is
	why       map[Needs]string

	mu        sync.Mutex
	left      []string
	scenarios map[string]*sharedScenario
}

// Run holds a server against every rule. The error says that nothing could be
// judged; rules that fail are in the report.
func Run(ctx context.Context, cfg Config) (Report, error) {
	s, err := start(ctx, cfg)
	if err != nil {
		return Report{}, err
	}
	defer s.cfg.HTTP.CloseIdleConnections()
	began := time.Now()
	report := Report{URL: s.cfg.URL, Prefix: s.prefix, Started: began.UTC().Format(time.RFC3339)}
	rules := slices.DeleteFunc(Rules(), func(r Rule) bool {
		return cfg.RFCOnly && !r.RFCOnly() || cfg.Only != nil && !cfg.Only(r)
	})
	report.Results = s.runAll(ctx, rules)
	s.cleanUpScenarios(ctx)
	s.revoke(context.WithoutCancel(ctx))
	for _, r := range report.Results {
		switch r.Outcome {
		case Passed:
			report.Passed++
		case Failed:
			report.Failed++
		default:
			report.NotRun++
		}
	}
	report.Left = s.left
	report.Millis = time.Since(began).Milliseconds()
	return report, ctx.Err()
}

func start(ctx context.Context, cfg Config) (*suite, error) {
	cfg.Interval, cfg.Unhealthy, cfg.Dead = cmp.Or(cfg.Interval, 1), cmp.Or(cfg.Unhealthy, 2), cmp.Or(cfg.Dead, 4)
	cfg.DrainTimeout, cfg.Parallel = cmp.Or(cfg.DrainTimeout, 2), cmp.Or(cfg.Parallel, 32)
	cfg.Poll, cfg.Slack = cmp.Or(cfg.Poll, 100*time.Millisecond), cmp.Or(cfg.Slack, 15*time.Second)
	if cfg.HTTP == nil {
		t := http.DefaultTransport.(*http.Transport).Clone()
		t.MaxIdleConnsPerHost = cfg.Parallel
		unixsocket.Register(t)
		cfg.HTTP = &http.Client{
			Transport:     t,
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		}
	}
	cfg.URL = strings.TrimRight(cfg.URL, "/")
	base, err := unixsocket.RequestURL(cfg.URL)
	if err != nil {
		return nil, err
	}
	s := &suite{
		cfg:       cfg,
		base:      base,
		prefix:    "rfc16-" + strings.ToLower(rand.Text()[:8]) + "-",
		why:       map[Needs]string{},
		scenarios: map[string]*sharedScenario{},
	}
	s.keys = map[keyName]string{
		admin:      cfg.Key,
		operator:   cfg.Key,
		owner:      cmp.Or(cfg.AgentKey, cfg.Key),
		stranger:   cfg.OtherKey,
		unknownKey: "unknown-" + rand.Text(),
	}
	return s, s.probe(ctx)
}

// probe finds out what the server has, and makes the keys that are missing.
func (s *suite) probe(ctx context.Context) error {
	a := s.ask(ctx, operator, "GET", agentsPath, nil)
	switch {
	case a.err != nil:
		return fmt.Errorf("%s cannot be reached: %w", s.cfg.URL, a.err)
	case a.status == 401:
		return ErrUnknownKey
	case a.status == 404 || a.status == 405:
		return fmt.Errorf("%w: GET %s answers %d", ErrNoRegistry, agentsPath, a.status)
	}
	if date, err := http.ParseTime(a.header.Get("Date")); err == nil {
		s.ahead = date.Sub(time.Now().Truncate(time.Second))
	}
	s.makeKeys(ctx)
	s.needs(Stranger, s.keys[stranger] != "", "no second agent key was given")
	s.needs(Operator, s.keys[operator] != s.keys[owner], "the agents' key is the operator's own")
	s.needs(Reviewer, s.keys[reviewer] != "", "no reviewer's key could be made")
	s.needs(Keys, len(s.made) > 0, "the key makes no other keys")
	s.needs(Exact, s.cfg.Exact, "it takes a clock on which requests take no time")
	for need, path := range map[Needs]string{Events: "/api/v1/stats", Pools: "/api/v1/pools"} {
		a := s.ask(ctx, operator, "GET", path, nil)
		s.needs(need, a.status == 200, fmt.Sprintf("GET %s answers %d", path, a.status))
	}
	a = s.ask(ctx, operator, "POST", "/api/v1/tasks", fields{}) // may it submit? Without a title nothing is made
	s.needs(Tasks, a.status == 400 || a.status == 422, fmt.Sprintf("POST /api/v1/tasks answers %d", a.status))
	a = s.ask(ctx, operator, "POST", agentsPath+"/"+s.prefix+"none/commands", fields{"command": "ping"})
	s.needs(Commands, a.str("code") == "not_found",
		fmt.Sprintf("POST %s/{agent_id}/commands answers %d", agentsPath, a.status))
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

// ask sends a request to the server. headers are names, each followed by its value.
func (s *suite) ask(ctx context.Context, by keyName, method, path string, body any, headers ...string) *answer {
	return s.do(ctx, request{by: by, secret: s.keys[by], method: method, url: s.base + path, body: body,
		headers: headers})
}

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
		if k.given {
			continue
		}
		a := s.ask(ctx, admin, "POST", "/api/v1/keys", fields{"name": s.prefix + k.scope, "scopes": []string{k.scope}})
		if a.status != 201 {
			return
		}
		s.keys[k.by] = a.str("key")
		s.made = append(s.made, a.str("keyId"))
	}
}

// alsoRevoke has a key of a rule's revoked at the end, if it was not before.
func (s *suite) alsoRevoke(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.made = append(s.made, id)
}

// revoke ends the keys of the run.
func (s *suite) revoke(ctx context.Context) {
	for _, id := range s.made {
		if a := s.ask(ctx, admin, "DELETE", "/api/v1/keys/"+id, nil); a.status != 200 {
			s.left = append(s.left, "key "+id)
		}
	}
}
