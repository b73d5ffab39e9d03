package agentheartbeat

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/picket-dev/picket/internal/conformance"
)

// Config is one run.
type Config struct {
	// URL is the server, without a path. Required.
	URL string
	// Key is an operator's or administrator's. With an administrator's the scoped keys of the run are made, and
	// revoked at its end. Required.
	Key string
	// Picket is the path of the picket binary. Empty: the rules about the command line are not run.
	Picket string
	// Files is the directory in which the server has the files of its policies. Empty: the rules about files are
	// not run.
	Files string
	// Only leaves out every rule that it is not true of. Defaults to all rules.
	Only func(Rule) bool
	// Parallel bounds the rules that run side by side. Defaults to 16.
	Parallel int
	// Poll is the pause between two looks at something awaited. Defaults to 100 ms.
	Poll time.Duration
	// Slack is how late the server may judge. Defaults to 15 s.
	Slack time.Duration
	// Exact says that waiting takes no time, as on a virtual clock: then rules that take minutes are run.
	// Defaults to false.
	Exact bool
	// HTTP does the requests. Defaults to a client of its own.
	HTTP *http.Client
	// Progress is called for every result as it comes, one at a time. Defaults to nothing.
	Progress func(done, total int, r conformance.Result)
}

// suite is a run under way.
type suite struct {
	*conformance.Server
	cfg     Config
	missing map[string]string // why a need is not met
	dir     string            // of the files and the configuration of commands

	mu    sync.Mutex
	names []string               // of agents, that no rule uses now
	made  int                    // names so far
	woken map[string][]time.Time // when sessions of each name were woken
}

// The reasons why nothing can be judged.
var (
	ErrUnknownKey  = errors.New("the server does not know the key")
	ErrNotOperator = errors.New("the key is not that of an operator")
	ErrNoPolicies  = errors.New("the server has no wake policies")
)

// Run holds a server against every rule. The error says that nothing could be
// judged; rules that fail are in the report.
func Run(ctx context.Context, cfg Config) (conformance.Report, error) {
	cfg.Parallel = cmp.Or(cfg.Parallel, 16)
	cfg.Poll, cfg.Slack = cmp.Or(cfg.Poll, 100*time.Millisecond), cmp.Or(cfg.Slack, 15*time.Second)
	server, err := conformance.NewServer(cfg.URL, "heartbeat", cfg.HTTP, cfg.Parallel)
	if err != nil {
		return conformance.Report{}, err
	}
	for _, name := range []keyName{admin, operator, owner} {
		server.Keys[name] = cfg.Key
	}
	s := &suite{Server: server, cfg: cfg, missing: map[string]string{}, woken: map[string][]time.Time{}}
	if err := s.probe(ctx); err != nil {
		return conformance.Report{}, err
	}
	if s.dir, err = os.MkdirTemp("", "picket-conformance-"); err != nil {
		return conformance.Report{}, err
	}
	defer os.RemoveAll(s.dir)
	var cases []conformance.Case
	for _, r := range Rules() {
		if cfg.Only == nil || cfg.Only(r) {
			cases = append(cases, s.testCase(r))
		}
	}
	runner := conformance.Runner{Server: server, Title: "Agent Heartbeat", Parallel: cfg.Parallel,
		Progress: cfg.Progress}
	return runner.Run(ctx, cases)
}

// testCase is a rule for the runner.
func (s *suite) testCase(r Rule) conformance.Case {
	return conformance.Case{Row: r.Row, Missing: s.lacks(r), Check: func(c *conformance.Trial) {
		t := &Trial{Trial: c, s: s}
		c.Clean = t.clean
		r.Check(t)
	}}
}

// lacks says why a rule cannot be run; empty when it can.
func (s *suite) lacks(r Rule) string {
	if r.Check == nil {
		return r.Why
	}
	for _, need := range r.Needs {
		if why := s.missing[need]; why != "" {
			return why
		}
	}
	return ""
}

// probe finds out what the server has, and makes the keys of the run.
func (s *suite) probe(ctx context.Context) error {
	path := policyPath(s.Prefix+"none", "")
	a := s.Ask(ctx, operator, "DELETE", path, fields{}) // may it write? The name has no policy, so nothing is deleted
	switch {
	case a.Err != nil:
		return fmt.Errorf("%s cannot be reached: %w", s.URL, a.Err)
	case a.Status == http.StatusUnauthorized:
		return ErrUnknownKey
	case a.Status == http.StatusForbidden:
		return ErrNotOperator
	case a.Str("code") != "heartbeat_no_policy":
		return fmt.Errorf("%w: DELETE %s answers %d", ErrNoPolicies, path, a.Status)
	}
	s.SetClock(a)
	for _, k := range []struct {
		name  keyName
		scope string
	}{{owner, "agent"}, {stranger, "agent"}, {reviewer, "reviewer"}, {operator, "operator"}} {
		if !s.MakeKey(ctx, k.name, k.scope) {
			break
		}
	}
	s.needs(needSecondKey, s.Keys[stranger] != "", "the key makes no keys of agents")
	s.needs(needReviewer, s.Keys[reviewer] != "", "the key makes no key of a reviewer")
	s.needs(needBinary, s.cfg.Picket != "", "picket is neither beside picket-conformance nor on PATH")
	s.needs(needFiles, s.cfg.Files != "", "it takes the directory of the server's files: --files DIR")
	s.needs(needExact, s.cfg.Exact, "it takes minutes, and runs on a virtual clock only, in TestHeartbeatVirtual of "+
		"cmd/picket")
	a = s.Ask(ctx, operator, "GET", "/api/v1/stats", nil)
	s.needs(needEvents, a.Status == http.StatusOK, fmt.Sprintf("GET /api/v1/stats answers %d", a.Status))
	a = s.Ask(ctx, operator, "POST", "/api/v1/tasks", fields{}) // may it submit? Without a title nothing is made
	s.needs(needLeases, a.Status == 400 || a.Status == 422, fmt.Sprintf("POST /api/v1/tasks answers %d", a.Status))
	return nil
}

func (s *suite) needs(need string, met bool, why string) {
	if !met {
		s.missing[need] = why
	}
}

// wakeCycle is how long a cycle lasts, in which a server bounds the wakes of a name.
const wakeCycle = 30 * time.Second

// takeName gives a rule the name of an agent that has no policy. A server keeps the revisions of a name whose
// policy was deleted, so names are used again. One that was woken twice in the last cycle is not, because the
// server could refuse more wakes of it.
func (s *suite) takeName() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, name := range s.names {
		if all := s.woken[name]; len(all) < 2 || time.Since(all[len(all)-2]) > wakeCycle {
			s.names = slices.Delete(s.names, i, i+1)
			return name
		}
	}
	s.made++
	return fmt.Sprintf("%s%d", s.Prefix, s.made)
}

// noteWake notes that a session of a name may be woken now.
func (s *suite) noteWake(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.woken[name] = append(s.woken[name], time.Now())
}

func (s *suite) returnName(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.names = append(s.names, name)
}

// file is the path of a new file with a text for a command.
func (s *suite) file(name, text string) (string, error) {
	path := filepath.Join(s.dir, name)
	return path, os.WriteFile(path, []byte(text), 0o600)
}
