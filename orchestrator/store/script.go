package store

import (
	"context"
	"crypto/sha1"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/orchestrator/lua"
)

// script is one transition: what all share, the parts its header needs, its
// body as a function, and the end that writes what it changed.
type script struct {
	composedScript
	name    string
	latency *Histogram // seconds until its replies
}

// newScripts gives every script with counters of its own.
func newScripts(memory bool) (map[string]*script, error) {
	texts, err := composed[memory]()
	if err != nil {
		return nil, err
	}
	scripts := make(map[string]*script, len(texts))
	for name, t := range texts {
		scripts[name] = &script{t, name, NewHistogram(.0005, .001, .002, .005, .02, .1, .5, 2)}
	}
	return scripts, nil
}

// composedScript is what a server gets of a script, and what its header says.
type composedScript struct {
	source     string // as it is written
	sent       string // what Redis gets: the source without its comments
	sha        string // of what is sent
	storesMore bool   // it stores more, and leaves the headroom free
	urgent     bool   // a deadline waits for it, so it goes before others
}

// composed are the scripts for a store in memory or not: put together once in
// the life of a process, however many stores it opens.
var composed = map[bool]func() (map[string]composedScript, error){
	false: sync.OnceValues(func() (map[string]composedScript, error) { return composeScripts(false) }),
	true:  sync.OnceValues(func() (map[string]composedScript, error) { return composeScripts(true) }),
}

// composeScripts reads every script. An in-memory store knows no "#!lua" line, so
// there the flags are dropped.
func composeScripts(memory bool) (map[string]composedScript, error) {
	files, err := luaFiles(lua.Files)
	if err != nil {
		return nil, err
	}
	part := func(name string) (string, error) {
		text, ok := files[name]
		if !ok {
			return "", fmt.Errorf("no Lua file is named %s", name)
		}
		return text, nil
	}
	scripts := map[string]composedScript{}
	last, err := part("_last")
	if err != nil {
		return nil, err
	}
	for name, body := range files {
		if strings.HasPrefix(name, "_") {
			continue
		}
		parts := []string{"_prelude", "_identity"}
		if !hasHeaderLine(body, "clockless") {
			parts = append(parts, "_clock")
		}
		parts, err = withNeeds(parts, body, part)
		if err != nil {
			return nil, fmt.Errorf("compose %s: %w", name, err)
		}
		source := ""
		if !memory {
			source = strings.TrimSpace("#!lua "+headerFlags(headerDirective(body, "flags:"))) + "\n"
		}
		for _, p := range parts {
			text, err := part(p)
			if err != nil {
				return nil, fmt.Errorf("compose %s: %w", name, err)
			}
			source += text + "\n"
		}
		source += "local function verb()\n" + body + "\nend\n" + last
		grows := !strings.Contains(headerDirective(body, "flags:"), "allow-oom") &&
			!hasHeaderLine(body, "essential")
		sent := withoutComments(source)
		scripts[name] = composedScript{
			source:     source,
			sent:       sent,
			sha:        digest(sent),
			storesMore: grows,
			urgent:     hasHeaderLine(body, "urgent"),
		}
	}
	return scripts, nil
}

// digest is the name under which Redis caches a script.
func digest(source string) string {
	sum := sha1.Sum([]byte(source))
	return hex.EncodeToString(sum[:])
}

// luaFiles reads all Lua files by their base names.
func luaFiles(from fs.FS) (map[string]string, error) {
	paths, err := fs.Glob(from, "*/*.lua")
	if err != nil {
		return nil, err
	}
	files := make(map[string]string, len(paths))
	for _, p := range paths {
		text, err := fs.ReadFile(from, p)
		if err != nil {
			return nil, err
		}
		name := strings.TrimSuffix(path.Base(p), ".lua")
		if _, twice := files[name]; twice {
			return nil, fmt.Errorf("two Lua files are named %s", name)
		}
		files[name] = string(text)
	}
	return files, nil
}

// withNeeds appends to parts what a script needs by its header, and what those
// parts need, each part once and after all that it needs itself.
func withNeeds(parts []string, body string, read func(name string) (string, error)) ([]string, error) {
	var add func(body string, above []string) error
	add = func(body string, above []string) error {
		for _, need := range strings.Fields(headerDirective(body, "needs:")) {
			name := "_" + need
			if slices.Contains(above, name) {
				return fmt.Errorf("parts need each other: %s", strings.Join(append(above, name), " "))
			}
			if slices.Contains(parts, name) {
				continue
			}
			text, err := read(name)
			if err != nil {
				return err
			}
			if err := add(text, append(slices.Clone(above), name)); err != nil {
				return err
			}
			parts = append(parts, name)
		}
		return nil
	}
	err := add(body, nil)
	return parts, err
}

func headerFlags(list string) string {
	if list == "" {
		return ""
	}
	return "flags=" + strings.Join(strings.Fields(list), ",")
}

// headerDirective finds "-- word rest" among the comment lines a script starts with.
func headerDirective(body, word string) string {
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

// hasHeaderLine reports whether one of the comment lines a script starts with is
// "-- word". The words are: clockless, for a script that runs without store time;
// urgent, for one that a deadline waits for; and essential, for one that is needed
// on a full store although it stores more, because a server registers its admin
// key, people sign in and decide, or operators top up, retry and command agents.
func hasHeaderLine(body, word string) bool {
	for line := range strings.Lines(body) {
		if !strings.HasPrefix(line, "--") {
			return false
		}
		if strings.TrimSpace(line) == "-- "+word {
			return true
		}
	}
	return false
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

// scriptRunner is the one way to Redis: every transition is one EVALSHA through it.
type scriptRunner struct {
	scripts  map[string]*script
	urgent   scriptConn
	normal   scriptConn
	headroom *headroom                // nil: nobody to ask
	timeout  time.Duration            // of one transition, which takes well under a millisecond
	fault    func(point string) error // nil outside of tests
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
	if s.urgent {
		l = g.urgent
	}
	// Connection, handshake and read each have a timeout of their own; together
	// they may not keep a caller longer than this.
	ctx, cancel := context.WithTimeout(ctx, g.timeout)
	defer cancel()
	return g.invoke(ctx, s, l.send, namespace, args)
}

// through is a way past the two lines: scripts on a connection that is just being
// made, or by a client that looks at a store nobody has adopted yet.
func (g *scriptRunner) through(c interface {
	Process(ctx context.Context, cmd redis.Cmder) error
}, namespace string) scriptFunc {
	do := func(ctx context.Context, cmd *redis.Cmd) error { return c.Process(ctx, cmd) }
	return func(ctx context.Context, name string, args ...any) (any, error) {
		return g.invoke(ctx, g.scripts[name], do, namespace, args)
	}
}

func (g *scriptRunner) invoke(ctx context.Context, s *script, do func(context.Context, *redis.Cmd) error,
	namespace string, args []any) (any, error) {
	start := time.Now()
	if err := g.faultPoint("redis." + s.name + ".before"); err != nil {
		return nil, Unavailable("the request was not sent", err)
	}
	if s.storesMore {
		if err := g.headroom.admit(ctx, argumentBytes(args)); err != nil {
			return nil, err
		}
	}
	reply, err := eval(ctx, do, "EVALSHA", s.sha, namespace, args)
	if err != nil && redis.HasErrorPrefix(err, "NOSCRIPT") {
		reply, err = eval(ctx, do, "EVAL", s.sent, namespace, args)
	}
	if lost := g.faultPoint("redis." + s.name + ".after"); lost != nil {
		reply, err = nil, lost
	}
	s.latency.Observe(time.Since(start).Seconds())
	if err != nil {
		return nil, replyError(s.name, err)
	}
	return reply, nil
}

// faultPoint is a point where a test can make the store fail.
func (g *scriptRunner) faultPoint(point string) error {
	if g.fault == nil {
		return nil
	}
	return g.fault(point)
}

func eval(ctx context.Context, do func(context.Context, *redis.Cmd) error, command, what, namespace string,
	args []any) (any, error) {
	all := append([]any{command, what, 1, MetaKey(namespace)}, args...)
	cmd := redis.NewCmd(ctx, all...)
	if err := do(ctx, cmd); err != nil {
		return nil, err
	}
	return cmd.Val(), nil
}

// replyError turns what came back from the store into an error of the vocabulary:
// the script's own refusal, a full store, or "outcome unknown".
func replyError(name string, err error) error {
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
	case strings.HasPrefix(text, "ERR "), strings.HasPrefix(text, "WRONGTYPE "), strings.HasPrefix(text, "NOPERM "):
		return fmt.Errorf("run %s: %w", name, err)
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

// Scripts returns the source of every script by its name, with its comments, for a store in memory or a
// Redis server.
func Scripts(memory bool) (map[string]string, error) {
	texts, err := composed[memory]()
	sources := make(map[string]string, len(texts))
	for name, t := range texts {
		sources[name] = t.source
	}
	return sources, err
}

// ScriptBytes returns by the name of a script how many bytes of it a Redis server gets.
func ScriptBytes() (map[string]int, error) {
	texts, err := composed[false]()
	bytes := make(map[string]int, len(texts))
	for name, t := range texts {
		bytes[name] = len(t.sent)
	}
	return bytes, err
}

// Digests returns by the name of a script the digest by which this store calls it.
func (s *Store) Digests() map[string]string {
	digests := map[string]string{}
	for name, script := range s.runner.scripts {
		digests[name] = script.sha
	}
	return digests
}

// Sources returns the source of every script of this store by its name.
func (s *Store) Sources() map[string]string {
	sources := map[string]string{}
	for name, script := range s.runner.scripts {
		sources[name] = script.source
	}
	return sources
}

// RewriteScripts changes the source of every script of this store, which is sent with its comments then. It
// is for tests that watch scripts at work or plant a bug. No script may run meanwhile.
func (s *Store) RewriteScripts(change func(name, source string) string) {
	for name, script := range s.runner.scripts {
		script.source = change(name, script.source)
		script.sent = script.source
		script.sha = digest(script.sent)
	}
}

// ScriptStats counts the scripts run by this process.
func (s *Store) ScriptStats() []ScriptStats {
	out := make([]ScriptStats, 0, len(s.runner.scripts))
	for _, s := range s.runner.scripts {
		took := s.latency.Snapshot()
		out = append(out, ScriptStats{Script: s.name, Count: int64(took.Count), Took: took})
	}
	return out
}
