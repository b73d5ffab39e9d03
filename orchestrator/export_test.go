package orchestrator

import (
	"context"
	"crypto/sha1"
	"encoding/hex"
	"sync"
	"time"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/budget"
)

// Rewrite changes the source of every script of a store, for tests that watch
// scripts at work or plant a bug.
func Rewrite(s *Store, change func(source string) string) {
	for _, sc := range s.gate.scripts {
		sc.source = change(sc.source)
		sum := sha1.Sum([]byte(sc.source))
		sc.sha = hex.EncodeToString(sum[:])
	}
}

// Rewritten remembers what sources were changed to: the same change on many
// stores is made once.
type Rewritten struct{ of sync.Map }

// RewriteAs is Rewrite for a change that was made before on another store.
func RewriteAs(s *Store, was *Rewritten, change func(source string) string) {
	for _, sc := range s.gate.scripts {
		known, ok := was.of.Load(sc.source)
		if !ok {
			source := change(sc.source)
			sum := sha1.Sum([]byte(source))
			known, _ = was.of.LoadOrStore(sc.source, text{source: source, sha: hex.EncodeToString(sum[:])})
		}
		to := known.(text)
		sc.source, sc.sha = to.source, to.sha
	}
}

// Aside reports whether a script says a code to this package alone.
func Aside(code picket.Code) bool { return asides[string(code)] != nil }

// Worded reports whether a code that a script answers has a message and a
// remedy.
func Worded(code picket.Code) bool {
	_, ok := wording[code]
	return ok || asides[string(code)] != nil
}

// Greet makes sure that a store is the one this process knows, as a new
// connection does.
func Greet(ctx context.Context, e *Engine) error {
	return e.greet(ctx, e.store.gate.on(e.store.bare, e.namespace), false)
}

// SetClock sets the time of day that floors are taken from.
func SetClock(cfg *Config, now func() time.Time) { cfg.clock = now }

// FoundAnew makes the record of a namespace that nobody ever knew.
func FoundAnew(ctx context.Context, e *Engine) error {
	run := e.store.gate.on(e.store.bare, e.namespace)
	s, err := e.look(ctx, run)
	if err == nil {
		_, err = run(ctx, "adopt", s.here, "", "", "", "store_anew", 0, 0)
	}
	return err
}

// AdoptBlindly tries to adopt a store by what nobody saw.
func AdoptBlindly(ctx context.Context, e *Engine) error {
	return e.claim(ctx, e.store.gate.on(e.store.bare, e.namespace), sight{here: "nobody"}, e.witness.now())
}

// SourcesOf is what every script is compiled to.
func SourcesOf(memory bool) map[string]string {
	scripts, err := compile(memory)
	if err != nil {
		panic(err)
	}
	out := map[string]string{}
	for name, s := range scripts {
		out[name] = s.source
	}
	return out
}

// JudgeOne judges one agent, due or not.
func JudgeOne(ctx context.Context, e *Engine, id string) error { return e.judgeOne(ctx, id) }

// SetHouse caps what the tasks of a day get in all; nil: no cap.
func SetHouse(s *Store, perDay *budget.Envelope) { s.Allow(perDay, nil) }

// OpenSessionAs opens a session with a token of the caller's, as a repeated
// request does.
func OpenSessionAs(ctx context.Context, e *Engine, token, code picket.Secret, host string) error {
	_, err := e.openSession(ctx, token, code, host)
	return err
}

// SetQuotas changes what agents may keep.
func SetQuotas(s *Store, q Quotas) { s.cfg.Quotas = q.withDefaults() }

// BeginLoginAs begins a login with a code of the caller's, as a repeated request
// does.
func BeginLoginAs(ctx context.Context, e *Engine, code, key picket.Secret, host string) error {
	_, err := e.beginLogin(ctx, code, key, host, "loopback")
	return err
}
