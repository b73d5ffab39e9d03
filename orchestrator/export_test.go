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
	for _, sc := range s.runner.scripts {
		sc.source = change(sc.source)
		sum := sha1.Sum([]byte(sc.source))
		sc.sha = hex.EncodeToString(sum[:])
	}
}

// RewriteCache remembers what sources were changed to: the same change on many
// stores is made once.
type RewriteCache struct{ of sync.Map }

// RewriteAs is Rewrite for a change that was made before on another store.
func RewriteAs(s *Store, was *RewriteCache, change func(source string) string) {
	for _, sc := range s.runner.scripts {
		known, ok := was.of.Load(sc.source)
		if !ok {
			source := change(sc.source)
			sum := sha1.Sum([]byte(source))
			known, _ = was.of.LoadOrStore(sc.source, composedScript{source: source, sha: hex.EncodeToString(sum[:])})
		}
		to := known.(composedScript)
		sc.source, sc.sha = to.source, to.sha
	}
}

// IsScriptError reports whether a script says a code to this package alone.
func IsScriptError(code picket.Code) bool { return scriptErrors[string(code)] != nil }

// HasWording reports whether a code that a script answers has a message and a
// remedy.
func HasWording(code picket.Code) bool {
	_, ok := refusalTexts[code]
	return ok || scriptErrors[string(code)] != nil
}

// EnsureAdopted makes sure that a store is the one this process knows, as a new
// connection does.
func EnsureAdopted(ctx context.Context, e *Engine) error {
	return e.ensureAdopted(ctx, e.store.runner.through(e.store.uncheckedClient, e.namespace), false)
}

// SetClock sets the time of day that floors are taken from.
func SetClock(cfg *Config, now func() time.Time) { cfg.clock = now }

// InitNamespace makes the record of a namespace that nobody ever knew.
func InitNamespace(ctx context.Context, e *Engine) error {
	run := e.store.runner.through(e.store.uncheckedClient, e.namespace)
	s, err := e.readStoreState(ctx, run)
	if err == nil {
		_, err = run(ctx, "adopt", s.server, "", "", "", "store_anew", 0, 0)
	}
	return err
}

// AdoptUnseen tries to adopt a store by what nobody saw.
func AdoptUnseen(ctx context.Context, e *Engine) error {
	return e.takeOver(ctx, e.store.runner.through(e.store.uncheckedClient, e.namespace), storeState{server: "nobody"},
		e.witness.current())
}

// SourcesOf is what every script is compiled to.
func SourcesOf(memory bool) map[string]string {
	scripts, err := newScripts(memory)
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
func JudgeOne(ctx context.Context, e *Engine, id string) error { return e.judgeAgent(ctx, id) }

// SetDailyLimit caps what the tasks of a day get in all; nil: no cap.
func SetDailyLimit(s *Store, perDay *budget.Envelope) { s.SetBudgets(perDay, nil) }

// OpenLoginAs opens a session with a token of the caller's, as a repeated
// request does.
func OpenLoginAs(ctx context.Context, e *Engine, token, code picket.Secret, host string) error {
	_, err := e.openLogin(ctx, token, code, host)
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
