package store

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/singleflight"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/orchestrator/lua"
)

// script is one verb of this store.
type script struct {
	*lua.Verb
	latency *Histogram // seconds until its replies
}

// builtin is the program of this build: put together once in the life of a process,
// however many stores it opens.
var builtin = sync.OnceValues(func() (*lua.Program, error) {
	texts, err := lua.Read(lua.Files)
	if err != nil {
		return nil, err
	}
	return lua.NewProgram(texts)
})

// newScripts gives every verb of a program with counters of its own.
func newScripts(p *lua.Program) map[string]*script {
	scripts := make(map[string]*script, len(p.Verbs))
	for name, v := range p.Verbs {
		scripts[name] = &script{v, NewHistogram(.0005, .001, .002, .005, .02, .1, .5, 2)}
	}
	return scripts
}

// scriptConn is a connection to the store that carries scripts in order. There are
// two, so that a large report never delays a renewal.
type scriptConn struct {
	client redis.UniversalClient
	pipe   *redis.AutoPipeliner // nil: the switch is off
}

func newScriptConn(cfg Config) (scriptConn, error) {
	l := scriptConn{client: redis.NewUniversalClient(&cfg.Redis)}
	if cfg.NoPipeline || cfg.Memory { // a store in this process is not a round trip away
		return l, nil
	}
	var err error
	l.pipe, err = l.client.AsyncAutoPipeline()
	return l, err
}

func (l scriptConn) send(ctx context.Context, cmd *redis.Cmd) error {
	if l.pipe == nil {
		return l.client.Process(ctx, cmd)
	}
	return l.pipe.Submit(ctx, cmd).WaitContext(ctx)
}

// scriptRunner is the one way to Redis: every transition is one call of a function through it.
type scriptRunner struct {
	program  *lua.Program
	scripts  map[string]*script
	memory   bool // the store knows no functions, so it gets each verb as a script
	urgent   scriptConn
	normal   scriptConn
	loads    singleflight.Group // of the library, by namespace
	headroom *headroom          // nil: nobody to ask
	timeout  time.Duration      // of one transition, which takes well under a millisecond
	now      func() time.Time
	fault    func(point string) error // nil outside of tests
}

// processor sends a command and waits for its reply: a client or one connection.
type processor interface {
	Process(ctx context.Context, cmd redis.Cmder) error
}

// run runs a script.
func (g *scriptRunner) run(ctx context.Context, namespace, name string, args ...any) (any, error) {
	s, ok := g.scripts[name]
	if !ok {
		return nil, fmt.Errorf("no script named %s", name)
	}
	if err := ctx.Err(); err != nil {
		return nil, Unavailable("the request was given up before it was sent", err)
	}
	l := g.normal
	if s.Urgent {
		l = g.urgent
	}
	// Connection, handshake and read each have a timeout of their own; together
	// they may not keep a caller longer than this.
	ctx, cancel := context.WithTimeout(ctx, g.timeout)
	defer cancel()
	return g.invoke(ctx, s, l.send, l.client, namespace, args)
}

// through is a way past the two lines: scripts on a connection that is just being
// made, or by a client that looks at a store nobody has adopted yet.
func (g *scriptRunner) through(c processor, namespace string) scriptFunc {
	do := func(ctx context.Context, cmd *redis.Cmd) error { return c.Process(ctx, cmd) }
	return func(ctx context.Context, name string, args ...any) (any, error) {
		return g.invoke(ctx, g.scripts[name], do, c, namespace, args)
	}
}

// invoke runs a script: do sends it, and c loads the library where Redis does not have it.
func (g *scriptRunner) invoke(ctx context.Context, s *script, do func(context.Context, *redis.Cmd) error,
	c processor, namespace string, args []any) (any, error) {
	start := time.Now()
	if err := g.faultPoint("redis." + s.Name + ".before"); err != nil {
		return nil, Unavailable("the request was not sent", err)
	}
	if s.StoresMore {
		if err := g.headroom.admit(ctx, argumentBytes(args)); err != nil {
			return nil, err
		}
	}
	reply, err := g.call(ctx, s, do, c, namespace, args)
	if lost := g.faultPoint("redis." + s.Name + ".after"); lost != nil {
		reply, err = nil, lost
	}
	s.latency.Observe(time.Since(start).Seconds())
	if err != nil {
		return nil, g.replyError(s.Name, err)
	}
	return reply, nil
}

// call sends one call of a verb. If the store does not have the code, nothing was done: it
// gets the code, and the call is sent again.
func (g *scriptRunner) call(ctx context.Context, s *script, do func(context.Context, *redis.Cmd) error, c processor,
	namespace string, args []any) (any, error) {
	send := func(command, what string) (any, error) {
		cmd := redis.NewCmd(ctx, append([]any{command, what, 1, MetaKey(namespace)}, args...)...)
		err := do(ctx, cmd)
		return cmd.Val(), err
	}
	if g.memory {
		reply, err := send("EVALSHA", s.Digest())
		if err != nil && redis.HasErrorPrefix(err, "NOSCRIPT") {
			return send("EVAL", s.Script())
		}
		return reply, err
	}
	function := g.program.Library().Function(s.Name)
	reply, err := send("FCALL", function)
	if err == nil || !isFunctionMissing(err) {
		return reply, err
	}
	if err := g.load(ctx, c, namespace); err != nil {
		return nil, err
	}
	return send("FCALL", function)
}

// faultPoint is a point where a test can make the store fail.
func (g *scriptRunner) faultPoint(point string) error {
	if g.fault == nil {
		return nil
	}
	return g.fault(point)
}

// replyError turns what came back from the store into an error of the vocabulary:
// the script's own refusal, a full store, or "outcome unknown".
func (g *scriptRunner) replyError(name string, err error) error {
	if known, ok := errors.AsType[*picket.Error](err); ok { // of the check of a new connection: nothing was sent
		return known
	}
	reply, ok := errors.AsType[redis.Error](err)
	if !ok {
		return Unavailable("the state of record did not answer", errors.Join(picket.ErrUnknown, err))
	}
	text := reply.Error()
	switch {
	case strings.HasPrefix(text, "OOM "):
		return storeFull().WithCause(err)
	case isFunctionMissing(err): // it was deleted since it was loaded: nothing was done
		return Unavailable("the state of record has just lost its functions", err)
	case strings.HasPrefix(text, "ERR "), strings.HasPrefix(text, "WRONGTYPE "), strings.HasPrefix(text, "NOPERM "):
		return fmt.Errorf("run %s: %w%s", name, err, g.placeOf(text))
	}
	code, _, _ := strings.Cut(text, " ")
	if code == "store_newer" {
		return storeNewer(parseFacts(text))
	}
	if said, ok := scriptErrors[code]; ok {
		return Unavailable(said.Error(), errors.Join(said, err))
	}
	if e := ParseRefusal(text); e != nil {
		return e
	}
	// LOADING, READONLY, MASTERDOWN, BUSY and their like: nothing was done.
	return Unavailable("the state of record cannot serve now", err)
}

// Unavailable returns a *[picket.Error] with CodeUnavailable, a RetryAfter of one second and the cause err,
// which may be nil.
func Unavailable(message string, err error) error {
	e := picket.Refuse(picket.CodeUnavailable, "Wait a moment and repeat the same request; nothing else is needed.",
		"%s", message)
	e.RetryAfter = time.Second
	return e.WithCause(err)
}

// ScriptStats are those of one script, for metrics.
type ScriptStats struct {
	Script string
	Count  int64
	Took   Distribution // seconds until the reply
}

// Program returns what this store runs.
func (s *Store) Program() *lua.Program { return s.runner.program }

// UseProgram makes this store run another program. It is for tests that watch verbs at work or plant a
// bug. No script may run meanwhile.
func (s *Store) UseProgram(p *lua.Program) {
	s.runner.program = p
	for name, script := range s.runner.scripts {
		script.Verb = p.Verbs[name]
	}
}

// ScriptStats counts the scripts run by this process.
func (s *Store) ScriptStats() []ScriptStats {
	out := make([]ScriptStats, 0, len(s.runner.scripts))
	for _, s := range s.runner.scripts {
		took := s.latency.Snapshot()
		out = append(out, ScriptStats{Script: s.Name, Count: int64(took.Count), Took: took})
	}
	return out
}
