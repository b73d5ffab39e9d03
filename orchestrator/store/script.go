package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
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

// scriptRunner is the one way to Redis: it calls verbs, each alone or in a batch with others.
type scriptRunner struct {
	program  *lua.Program
	scripts  map[string]*script
	memory   bool // the store knows no functions, so it gets each verb as a script
	noBatch  bool // every verb is a call of its own
	urgent   redis.UniversalClient
	normal   redis.UniversalClient
	batchers sync.Map           // by batchKey: *batcher
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
	// Connection, handshake and read each have a timeout of their own; together
	// they may not keep a caller longer than this.
	ctx, cancel := context.WithTimeout(ctx, g.timeout)
	defer cancel()
	size := argumentBytes(args)
	return g.invoke(s, func() (any, error) {
		if s.Alone || g.noBatch || g.memory || size > largeItem || len(args) > mostArguments {
			return g.call(ctx, g.client(s.Urgent), s, namespace, args)
		}
		return g.batcher(s, namespace).do(ctx, s, args, size)
	}, func() error { return g.headroom.admit(ctx, size) })
}

// client returns the client for urgent verbs, which a deadline waits for, or the one for all others.
// Each has connections of its own, so a large report never delays a renewal.
func (g *scriptRunner) client(urgent bool) redis.UniversalClient {
	if urgent {
		return g.urgent
	}
	return g.normal
}

// through is a way past the batches: scripts on a connection that is just being
// made, or by a client that looks at a store nobody has adopted yet.
func (g *scriptRunner) through(c processor, namespace string) scriptFunc {
	return func(ctx context.Context, name string, args ...any) (any, error) {
		s := g.scripts[name]
		return g.invoke(s, func() (any, error) { return g.call(ctx, c, s, namespace, args) },
			func() error { return g.headroom.admit(ctx, argumentBytes(args)) })
	}
}

// invoke runs a script by send. A script that stores more has to be admitted before.
func (g *scriptRunner) invoke(s *script, send func() (any, error), admit func() error) (any, error) {
	start := time.Now()
	if err := g.faultPoint("redis." + s.Name + ".before"); err != nil {
		return nil, Unavailable("the request was not sent", err)
	}
	if s.StoresMore {
		if err := admit(); err != nil {
			return nil, err
		}
	}
	reply, err := send()
	if lost := g.faultPoint("redis." + s.Name + ".after"); lost != nil {
		reply, err = nil, lost
	}
	s.latency.Observe(time.Since(start).Seconds())
	if err != nil {
		return nil, g.replyError(s.Name, err)
	}
	return reply, nil
}

// call runs one verb in a call of its own.
func (g *scriptRunner) call(ctx context.Context, c processor, s *script, namespace string, args []any) (any, error) {
	if g.memory {
		reply, err := send(ctx, c, "EVALSHA", s.Digest(), namespace, args)
		if err != nil && redis.HasErrorPrefix(err, "NOSCRIPT") {
			return send(ctx, c, "EVAL", s.Script(), namespace, args)
		}
		return reply, err
	}
	reply, err := g.callFunction(ctx, c, g.program.Library().Function(s.Name), namespace, args)
	if picket.CodeOf(err) == picket.CodeStoreFull && slices.Contains(s.Flags, "allow-oom") {
		// The store is so full that it cannot take the library. What ends or frees something runs all the same.
		return send(ctx, c, "EVAL", "#!lua flags="+strings.Join(s.Flags, ",")+"\n"+s.Script(), namespace, args)
	}
	return reply, err
}

// callFunction calls a function. If the store does not have the library, nothing was done: it gets
// the library, and the call is sent again.
func (g *scriptRunner) callFunction(ctx context.Context, c processor, function, namespace string,
	args []any) (any, error) {
	reply, err := send(ctx, c, "FCALL", function, namespace, args)
	if err == nil || !isFunctionMissing(err) {
		return reply, err
	}
	if err := g.load(ctx, c, namespace); err != nil {
		return nil, err
	}
	return send(ctx, c, "FCALL", function, namespace, args)
}

func send(ctx context.Context, c processor, command, what, namespace string, args []any) (any, error) {
	all := make([]any, 0, 4+len(args))
	cmd := redis.NewCmd(ctx, append(append(all, command, what, 1, MetaKey(namespace)), args...)...)
	err := c.Process(ctx, cmd)
	return cmd.Val(), err
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
		return Unavailable("the store did not answer", errors.Join(picket.ErrUnknown, err))
	}
	text := reply.Error()
	switch {
	case strings.HasPrefix(text, "OOM "):
		return storeFull().WithCause(err)
	case isFunctionMissing(err): // it was deleted since it was loaded: nothing was done
		return Unavailable("the store has just lost its functions", err)
	case strings.HasPrefix(text, "ERR "), strings.HasPrefix(text, "WRONGTYPE "), strings.HasPrefix(text, "NOPERM "):
		return fmt.Errorf("run %s: %w%s", name, err, g.placeOf(text))
	}
	code, _, _ := strings.Cut(text, " ")
	switch f := parseFacts(text); code {
	case "store_newer":
		return storeNewer(f)
	case "store_migrating":
		return storeMigrating(ParseInt(f["format"]), ParseInt(f["known"]))
	case "partly_written":
		err = fmt.Errorf("run %s: %w", name, err)
		e := picket.Refuse(picket.CodeUnavailable,
			"Look at the log of the server and run `picket doctor`. Then repeat the same request.",
			"%s", errPartlyWritten)
		e.RetryAfter = time.Second
		return e.WithCause(errors.Join(picket.ErrUnknown, err))
	}
	if said, ok := scriptErrors[code]; ok {
		return Unavailable(said.Error(), errors.Join(said, err))
	}
	if e := ParseRefusal(text); e != nil {
		return e
	}
	// LOADING, READONLY, MASTERDOWN, BUSY and their like: nothing was done.
	return Unavailable("the store cannot serve now", err)
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
