package orchestrator

import (
	"context"
	"crypto/sha1"
	"encoding/hex"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/budget"
	"github.com/picket-dev/picket/orchestrator/store"
)

// Sources returns the source of each script of a store.
func Sources(s *Store) map[string]string { return s.conn.Sources() }

// AllSources returns the source of each script as a real store gets it.
func AllSources() map[string]string { return SourcesOf(false) }

// SourcesOf returns what every script is compiled to.
func SourcesOf(memory bool) map[string]string {
	sources, err := store.Scripts(memory)
	if err != nil {
		panic(err)
	}
	return sources
}

// ScriptNames lists every script.
func ScriptNames() []string { return slices.Sorted(maps.Keys(AllSources())) }

// ScriptDigests returns the digest by which a store calls each script.
func ScriptDigests(s *Store) map[string]string {
	out := map[string]string{}
	for name, source := range s.conn.Sources() {
		sum := sha1.Sum([]byte(source))
		out[name] = hex.EncodeToString(sum[:])
	}
	return out
}

// Rewrite changes the source of every script of a store, for tests that watch
// scripts at work or plant a bug.
func Rewrite(s *Store, change func(source string) string) {
	s.conn.RewriteScripts(func(_, source string) string { return change(source) })
}

// RewriteEach is Rewrite with the script's name.
func RewriteEach(s *Store, change func(name, source string) string) { s.conn.RewriteScripts(change) }

// RewriteCache remembers what sources were changed to: the same change on many
// stores is made once.
type RewriteCache struct{ of sync.Map }

// RewriteAs is Rewrite for a change that was made before on another store.
func RewriteAs(s *Store, was *RewriteCache, change func(source string) string) {
	Rewrite(s, func(source string) string {
		known, ok := was.of.Load(source)
		if !ok {
			known, _ = was.of.LoadOrStore(source, change(source))
		}
		return known.(string)
	})
}

// ForgetWaiter forgets a waiter, as Acquire does when its client goes away.
func ForgetWaiter(ctx context.Context, e *Engine, waiter string) { e.forgetWaiter(ctx, waiter) }

// ClockOffset is how far a store is ahead of this machine.
var ClockOffset = clockOffset

// IsScriptError reports whether a script says a code to this process alone.
func IsScriptError(code picket.Code) bool { return store.IsInternalCode(string(code)) }

// HasWording reports whether a code that a script answers has a message and a
// remedy.
func HasWording(code picket.Code) bool {
	return store.IsInternalCode(string(code)) || store.ParseRefusal(string(code)) != nil
}

// EnsureAdopted makes sure that a store is the one this process knows, as a new
// connection does.
func EnsureAdopted(ctx context.Context, e *Engine) error { return e.records.Check(ctx) }

// SetClock sets the time of day that floors are taken from.
func SetClock(cfg *Config, now func() time.Time) { cfg.Now = now }

// InitNamespace makes the record of a namespace that nobody ever knew.
func InitNamespace(ctx context.Context, e *Engine) error {
	got, err := e.records.RunUnchecked(ctx, "identify")
	if err == nil {
		r := newReply("identify", got)
		server := r.Hash(r.Value)["server"]
		_, err = e.records.RunUnchecked(ctx, "adopt", server, "", "", "", "store_anew", 0, 0)
	}
	return err
}

// AdoptUnseen tries to adopt a store by what nobody saw.
func AdoptUnseen(ctx context.Context, e *Engine) error {
	_, err := e.records.RunUnchecked(ctx, "adopt", "nobody", "", "", "", "store_unseen", 1<<40, 1<<40)
	return err
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
