package agenttoagent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/internal/conformance"
	"github.com/picket-dev/picket/internal/scriptedworker"
)

// Config is one run.
type Config struct {
	// URL is the address of an endpoint, below which its card is. Required.
	URL string
	// Key is the key of a client. Empty: requests have none.
	Key string
	// OtherKey is the key of another client. Empty: the rules about two clients are not run.
	OtherKey string
	// WorkerKey is a key with which the suite leases the tasks of the pool, if the server is a Picket server, and
	// WorkerURL its address; empty: what is before the endpoint in URL. WorkerRole is the role of the pool; empty: that
	// in URL. Without WorkerKey, the suite leases no tasks.
	WorkerKey  picket.Secret
	WorkerURL  string
	WorkerRole string
	// Scripted says that an agent of the endpoint follows the message ids of package scriptedworker already.
	Scripted bool
	// PushListener is where the suite takes push notifications, and PushURL the address under which the server reaches
	// it; empty: that of the listener over HTTP. The run closes it. Without it the rules about the delivery of
	// notifications are not run.
	PushListener net.Listener
	PushURL      string
	// Only leaves out every rule that it is not true of. Defaults to all rules.
	Only func(Rule) bool
	// Parallel bounds the rules that run side by side. Defaults to 8.
	Parallel int
	// Slack is how long the suite waits for something that must happen. Defaults to 15 s.
	Slack time.Duration
	// HTTP does the requests to the endpoint. Defaults to a client of its own.
	HTTP *http.Client
	// Progress is called for every result as it comes, one at a time. Defaults to nothing.
	Progress func(done, total int, r conformance.Result)
}

// suite is a run under way.
type suite struct {
	*conformance.Server
	cfg       Config
	missing   map[string]string // why a need is not met
	card      fields
	cardBy    keyName // with which key the card was read; nobody: it is public
	keyHeader string
	bindings  []binding
	receiver  *receiver // nil: there is none
}

// The reasons why nothing can be judged.
var (
	ErrNoCard     = errors.New("there is no agent card")
	ErrUnknownKey = errors.New("the endpoint does not know the key")
	ErrNoBinding  = errors.New("the card offers neither JSON-RPC nor HTTP+JSON of version 1.0")
)

// cardPath is where the card is below an endpoint.
const cardPath = "/.well-known/agent-card.json"

// workDelay is how long the worker of the suite works on tasks whose work must be seen.
const workDelay = 500 * time.Millisecond

// Run holds an endpoint against every rule. The error says that nothing could be judged; rules that fail are in the
// report.
func Run(ctx context.Context, cfg Config) (conformance.Report, error) {
	cfg.Parallel, cfg.Slack = cmp.Or(cfg.Parallel, 8), cmp.Or(cfg.Slack, 15*time.Second)
	server, err := conformance.NewServer(cfg.URL, "a2a", cfg.HTTP, 4*cfg.Parallel)
	if err != nil {
		return conformance.Report{}, err
	}
	server.Keys[client], server.Keys[other] = cfg.Key, cfg.OtherKey
	server.Keys[unknownKey] = "unknown-key-of-a-conformance-run"
	s := &suite{Server: server, cfg: cfg, missing: map[string]string{}}
	if err := s.probe(ctx); err != nil {
		return conformance.Report{}, err
	}
	if cfg.PushListener != nil {
		s.receiver = startReceiver(cfg.PushListener, cfg.PushURL)
		defer s.receiver.close()
	}
	stop := s.startWorker(ctx)
	defer stop()
	var cases []conformance.Case
	for _, r := range Rules() {
		if cfg.Only == nil || cfg.Only(r) {
			cases = append(cases, s.testCase(r))
		}
	}
	runner := conformance.Runner{Server: server, Title: "A2A 1.0", Parallel: cfg.Parallel, Progress: cfg.Progress}
	return runner.Run(ctx, cases)
}

// startWorker leases the tasks of the pool until stop is called, if the run has a key for it.
func (s *suite) startWorker(ctx context.Context) (stop func()) {
	server, role := PoolOf(s.URL)
	if role = cmp.Or(s.cfg.WorkerRole, role); s.cfg.WorkerKey == "" || role == "" {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = scriptedworker.Run(ctx, scriptedworker.Config{URL: cmp.Or(s.cfg.WorkerURL, server), Key: s.cfg.WorkerKey,
			Role: role, AgentID: s.Prefix + "worker", Delay: workDelay})
	}()
	return func() {
		cancel()
		<-ended
	}
}

// PoolOf takes the address of the endpoint of a pool apart: the server's own address, and the role of the pool. role is
// empty if the address is not that of a pool.
func PoolOf(url string) (server, role string) {
	server, role, _ = strings.Cut(strings.TrimRight(url, "/"), "/agents/")
	if at := strings.LastIndex(server, "/n/"); at >= 0 {
		server = server[:at]
	}
	role, _, _ = strings.Cut(role, "/")
	return server, role
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

// probe reads the card, and finds out what the endpoint has.
func (s *suite) probe(ctx context.Context) error {
	if err := s.readCard(ctx); err != nil {
		return err
	}
	if s.bindings = bindingsOf(s.card); len(s.bindings) == 0 {
		return ErrNoBinding
	}
	s.keyHeader = keyHeaderOf(s.card)
	c := caller{Trial: &Trial{s: s}, b: s.bindings[0], by: client, version: version}
	a := s.Do(ctx, c.request("ListTasks", fields{"pageSize": 1}))
	if a.Err != nil {
		return fmt.Errorf("%s cannot be reached: %w", c.b.url, a.Err)
	}
	if r := c.decode(a); a.Status == http.StatusUnauthorized || r.failed != nil && r.failed.status == 401 {
		return ErrUnknownKey
	}
	for _, name := range []string{needRPC, needREST} {
		s.needs(name, s.binding(name) != nil, "the card does not offer the binding "+name+" in version 1.0")
	}
	capable := func(name string) bool { return object(s.card, "capabilities")[name] == true }
	s.needs(needStreaming, capable("streaming"), "the card does not say that the agent streams")
	s.needs(needNoStreaming, !capable("streaming"), "the card says that the agent streams")
	s.needs(needPush, capable("pushNotifications"), "the card does not say that the agent pushes notifications")
	s.needs(needNoPush, !capable("pushNotifications"), "the card says that the agent pushes notifications")
	s.needs(needReceiver, s.cfg.PushListener != nil, "it takes an address at which the server reaches the suite: "+
		"--push-listen ADDRESS")
	s.needs(needExtended, capable("extendedAgentCard"), "the card does not say that there is an extended one")
	s.needs(needNoExtended, !capable("extendedAgentCard"), "the card says that there is an extended one")
	s.needs(needRequiredExt, requiredExtension(s.card) != "", "the card does not require an extension")
	s.needs(needKey, s.cfg.Key != "", "it takes an endpoint that asks for a key: --key KEY")
	s.needs(needSecondKey, s.cfg.OtherKey != "", "it takes a key of another client: --other-key KEY")
	_, role := PoolOf(s.URL)
	s.needs(needWorker, s.cfg.Scripted || s.cfg.WorkerKey != "", "it takes an agent that follows the message ids: "+
		"--worker-key KEY, or --scripted")
	s.needs(needWorker, s.cfg.Scripted || s.cfg.WorkerKey == "" || cmp.Or(s.cfg.WorkerRole, role) != "",
		"the URL names no pool for the worker: --worker-role ROLE")
	s.needs(needPicket, isPicket(s.card), "it is about Picket servers")
	return nil
}

func (s *suite) needs(need string, met bool, why string) {
	if !met {
		s.missing[need] = why
	}
}

// readCard reads the card, without a key if that is enough.
func (s *suite) readCard(ctx context.Context) error {
	var a *answer
	for _, try := range []conformance.Request{
		{By: nobody},
		{By: client},
		{By: client, KeyHeader: "Authorization"},
	} {
		try.Method, try.URL, try.Secret = "GET", s.Base+cardPath, s.Keys[client]
		if a = s.Do(ctx, try); a.Status == http.StatusOK && a.Body != nil {
			s.card, s.cardBy = a.Body, try.By
			return nil
		}
		if a.Err != nil {
			return fmt.Errorf("%s cannot be reached: %w", s.URL, a.Err)
		}
	}
	if a.Status == http.StatusUnauthorized {
		return ErrUnknownKey
	}
	return fmt.Errorf("%w: GET %s%s answers %d", ErrNoCard, s.URL, cardPath, a.Status)
}

// picketExtension names the object by which a Picket server is known.
const picketExtension = "urn:picket:rfc-001:agent-card"

func isPicket(card fields) bool {
	for _, e := range list(card, "capabilities.extensions") {
		if text(e, "uri") == picketExtension {
			return true
		}
	}
	return false
}

func requiredExtension(card fields) string {
	for _, e := range list(card, "capabilities.extensions") {
		if e["required"] == true {
			return text(e, "uri")
		}
	}
	return ""
}

// keyHeaderOf is the header that takes the key, by the security schemes of a card.
func keyHeaderOf(card fields) string {
	for _, scheme := range object(card, "securitySchemes") {
		f, _ := scheme.(fields)
		if text(f, "apiKeySecurityScheme.location") == "header" {
			return text(f, "apiKeySecurityScheme.name")
		}
	}
	for _, scheme := range object(card, "securitySchemes") {
		if f, _ := scheme.(fields); len(f) > 0 && !has(f, "mtlsSecurityScheme") {
			return "Authorization"
		}
	}
	return "X-API-Key"
}
