package orchestrator

import (
	"context"
	"crypto/sha1"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/picket-dev/picket"
)

//go:embed lua/*.lua
var luaFiles embed.FS

// script is one transition: what all share, the parts its header needs, its
// body as a function, and the end that writes what it changed.
type script struct {
	name   string
	source string
	sha    string
	grows  bool       // it stores more, and leaves the headroom free
	took   *histogram // seconds until its replies
}

// compile gives every script with counters of its own.
func compile(memory bool) (map[string]*script, error) {
	texts, err := assembled[memory]()
	if err != nil {
		return nil, err
	}
	scripts := make(map[string]*script, len(texts))
	for name, t := range texts {
		scripts[name] = &script{
			name:   name,
			source: t.source,
			sha:    t.sha,
			grows:  t.grows,
			took:   newHistogram(.0005, .001, .002, .005, .02, .1, .5, 2),
		}
	}
	return scripts, nil
}

type text struct {
	source string
	sha    string
	grows  bool
}

// assembled are the scripts for a store in memory or not: put together once in
// the life of a process, however many stores it opens.
var assembled = map[bool]func() (map[string]text, error){
	false: sync.OnceValues(func() (map[string]text, error) { return assemble(false) }),
	true:  sync.OnceValues(func() (map[string]text, error) { return assemble(true) }),
}

// assemble reads every script. An in-memory store knows no "#!lua" line, so
// there the flags are dropped.
func assemble(memory bool) (map[string]text, error) {
	names, err := fs.Glob(luaFiles, "lua/*.lua")
	if err != nil {
		return nil, err
	}
	part := func(name string) (string, error) {
		b, err := luaFiles.ReadFile("lua/" + name + ".lua")
		return string(b), err
	}
	scripts := map[string]text{}
	last, err := part("_last")
	if err != nil {
		return nil, err
	}
	for _, path := range names {
		name := strings.TrimSuffix(strings.TrimPrefix(path, "lua/"), ".lua")
		if strings.HasPrefix(name, "_") {
			continue
		}
		body, err := part(name)
		if err != nil {
			return nil, err
		}
		parts := []string{"_prelude", "_identity"}
		if !hasDirective(body, "clockless") {
			parts = append(parts, "_clock")
		}
		for _, need := range strings.Fields(directive(body, "needs:")) {
			parts = append(parts, "_"+need)
		}
		source := ""
		if !memory {
			source = strings.TrimSpace("#!lua "+flags(directive(body, "flags:"))) + "\n"
		}
		for _, p := range parts {
			text, err := part(p)
			if err != nil {
				return nil, fmt.Errorf("compile %s: %w", name, err)
			}
			source += text + "\n"
		}
		source += "local function verb()\n" + body + "\nend\n" + last
		sum := sha1.Sum([]byte(source))
		grows := !strings.Contains(directive(body, "flags:"), "allow-oom") && !mayUseHeadroom[name]
		scripts[name] = text{source: source, sha: hex.EncodeToString(sum[:]), grows: grows}
	}
	return scripts, nil
}

func flags(list string) string {
	if list == "" {
		return ""
	}
	return "flags=" + strings.Join(strings.Fields(list), ",")
}

// directive finds "-- word rest" among the comment lines a script starts with.
func directive(body, word string) string {
	for line := range strings.Lines(body) {
		text, ok := strings.CutPrefix(line, "--")
		if !ok {
			return ""
		}
		if rest, ok := strings.CutPrefix(strings.TrimSpace(text), word); ok {
			return strings.TrimSpace(rest)
		}
	}
	return ""
}

func hasDirective(body, word string) bool {
	return strings.Contains(body, "\n-- "+word+"\n")
}

// line is a connection to the store that carries scripts in order. There are
// two, so that a large report never delays a renewal.
type line struct {
	client redis.UniversalClient
	pipe   *redis.AutoPipeliner // nil: the switch is off
}

func (l line) do(ctx context.Context, cmd *redis.Cmd) error {
	if l.pipe == nil {
		return l.client.Process(ctx, cmd)
	}
	return l.pipe.Submit(ctx, cmd).WaitContext(ctx)
}

// callTimeout bounds one transition. A script takes well under a millisecond,
// so a store that needs longer is away.
const callTimeout = 2 * time.Second

// gate is the one way to Redis: every transition is one EVALSHA through it.
type gate struct {
	scripts map[string]*script
	clock   line
	work    line
	room    *room                    // nil: nobody to ask
	fault   func(point string) error // nil outside of tests
}

// clockVerbs are the scripts that a deadline waits for. undeliver is none of
// them: it must not overtake the grant it takes back.
var clockVerbs = map[string]bool{"renew": true, "expire_due": true, "tick": true, "heartbeat": true, "judge": true}

// run runs a script.
func (g *gate) run(ctx context.Context, namespace, name string, args ...any) (any, error) {
	s, ok := g.scripts[name]
	if !ok {
		return nil, fmt.Errorf("no script named %s", name)
	}
	if err := ctx.Err(); err != nil {
		return nil, unavailable("the request was given up before it was sent", err)
	}
	l := g.work
	if clockVerbs[name] {
		l = g.clock
	}
	// Connection, handshake and read each have a timeout of their own; together
	// they may not keep a caller longer than this.
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	return g.call(ctx, s, l.do, namespace, args)
}

// on is a way past the two lines: scripts on a connection that is just being
// made, or by a client that looks at a store nobody has adopted yet.
func (g *gate) on(c interface {
	Process(ctx context.Context, cmd redis.Cmder) error
}, namespace string) runner {
	do := func(ctx context.Context, cmd *redis.Cmd) error { return c.Process(ctx, cmd) }
	return func(ctx context.Context, name string, args ...any) (any, error) {
		return g.call(ctx, g.scripts[name], do, namespace, args)
	}
}

func (g *gate) call(ctx context.Context, s *script, do func(context.Context, *redis.Cmd) error, namespace string,
	args []any) (any, error) {
	start := time.Now()
	if err := g.at("redis." + s.name + ".before"); err != nil {
		return nil, unavailable("the request was not sent", err)
	}
	if s.grows {
		if err := g.room.admit(ctx, sizeOf(args)); err != nil {
			return nil, err
		}
	}
	reply, err := eval(ctx, do, "EVALSHA", s.sha, namespace, args)
	if err != nil && redis.HasErrorPrefix(err, "NOSCRIPT") {
		reply, err = eval(ctx, do, "EVAL", s.source, namespace, args)
	}
	if lost := g.at("redis." + s.name + ".after"); lost != nil {
		reply, err = nil, lost
	}
	s.took.observe(time.Since(start).Seconds())
	if err != nil {
		return nil, refusal(s.name, err)
	}
	return reply, nil
}

// at is a point where a test can make the store fail.
func (g *gate) at(point string) error {
	if g.fault == nil {
		return nil
	}
	return g.fault(point)
}

// reading runs a plain read of the log between the same two points.
func reading[T any](ctx context.Context, e *Engine, read func() (T, error)) (got T, err error) {
	g := e.store.gate
	if err := e.cleared(ctx); err != nil {
		return got, err
	}
	if err := g.at("redis.events.before"); err != nil {
		return got, unavailable("the request was not sent", err)
	}
	got, err = read()
	if lost := g.at("redis.events.after"); lost != nil {
		err = lost
	}
	if err != nil && !errors.Is(err, redis.Nil) {
		return got, refusal("events", err)
	}
	return got, err
}

func eval(ctx context.Context, do func(context.Context, *redis.Cmd) error, command, what, namespace string,
	args []any) (any, error) {
	all := append([]any{command, what, 1, metaKey(namespace)}, args...)
	cmd := redis.NewCmd(ctx, all...)
	if err := do(ctx, cmd); err != nil {
		return nil, err
	}
	return cmd.Val(), nil
}

// refusal turns what came back from the store into an error of the vocabulary:
// the script's own refusal, a full store, or "outcome unknown".
func refusal(name string, err error) error {
	var known *picket.Error // of the check of a new connection: nothing was sent
	if errors.As(err, &known) {
		return known
	}
	var reply redis.Error
	if !errors.As(err, &reply) {
		return unavailable("the state of record did not answer", errors.Join(picket.ErrUnknown, err))
	}
	text := reply.Error()
	switch {
	case strings.HasPrefix(text, "OOM "):
		return storeFull().Because(err)
	case strings.HasPrefix(text, "ERR "), strings.HasPrefix(text, "WRONGTYPE "), strings.HasPrefix(text, "NOPERM "):
		return fmt.Errorf("run %s: %w", name, err)
	}
	code, _, _ := strings.Cut(text, " ")
	if code == "store_newer" {
		return storeNewer(factsOf(text))
	}
	if said, ok := asides[code]; ok {
		return unavailable(said.Error(), errors.Join(said, err))
	}
	if e := explainRefusal(text); e != nil {
		return e
	}
	// LOADING, READONLY, MASTERDOWN, BUSY and their like: nothing was done.
	return unavailable("the state of record cannot serve now", err)
}

func unavailable(message string, err error) error {
	e := picket.Refuse(picket.CodeUnavailable, "Wait a moment and repeat the same request; nothing else is needed.",
		"%s", message)
	e.RetryAfter = time.Second
	return e.Because(err)
}

// Calls are those of one script, for metrics.
type Calls struct {
	Script string
	Count  int64
	Took   Distribution // seconds until the reply
}

func (g *gate) stats() []Calls {
	out := make([]Calls, 0, len(g.scripts))
	for _, s := range g.scripts {
		took := s.took.shown()
		out = append(out, Calls{Script: s.name, Count: int64(took.Count), Took: took})
	}
	return out
}
