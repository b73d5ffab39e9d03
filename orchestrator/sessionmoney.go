package orchestrator

import (
	"cmp"
	"context"
	"fmt"

	"github.com/go-json-experiment/json"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/budget"
	"github.com/picket-dev/picket/internal/text"
	"github.com/picket-dev/picket/orchestrator/heartbeat"
)

// Agent sessions spend money outside of tasks: what each of their prompts may spend is reserved when the prompt is
// queued, from what the prompts of its agent name may spend on that day.

// SessionLimits bound what agent sessions spend on a UTC day.
type SessionLimits struct {
	// Namespace bounds all prompts and wakes of a namespace. Required.
	Namespace budget.Money
	// Others has the limits of every agent name that is not in Names. Required.
	Others SessionNameLimits
	Names  map[string]SessionNameLimits
}

// SessionNameLimits bound what the sessions of one agent name spend. A limit of 0 refuses what it limits.
type SessionNameLimits struct {
	Wakes   budget.Money // all wakes of a UTC day
	Prompts budget.Money // all prompts of people of a UTC day
	Each    budget.Money // one wake or prompt
}

// DefaultSessionLimits are $5 a day for a namespace, and for each agent name $0.50 a day for wakes, $2 a day for
// prompts of people, and $0.10 for one of them.
func DefaultSessionLimits() SessionLimits {
	const cent = budget.Money(10_000_000)
	return SessionLimits{Namespace: 500 * cent,
		Others: SessionNameLimits{Wakes: 50 * cent, Prompts: 200 * cent, Each: 10 * cent}}
}

// of are the limits of an agent name.
func (l SessionLimits) of(name string) SessionNameLimits {
	if own, ok := l.Names[name]; ok {
		return own
	}
	return l.Others
}

// check refuses limits below zero, and those that are too large.
func (l SessionNameLimits) check() error {
	return cmp.Or(checkAmount("Wakes", budget.Envelope{USD: l.Wakes}),
		checkAmount("Prompts", budget.Envelope{USD: l.Prompts}), checkAmount("Each", budget.Envelope{USD: l.Each}))
}

// amounts are the limits in nano-dollars, as scripts read them.
func (l SessionNameLimits) amounts() map[string]int64 {
	return map[string]int64{"wake": int64(l.Wakes), "prompt": int64(l.Prompts), "each": int64(l.Each)}
}

// argument is the limits as scripts read them.
func (l SessionLimits) argument() (string, error) {
	err := cmp.Or(l.Others.check(), checkAmount("Namespace", budget.Envelope{USD: l.Namespace}))
	names := map[string]map[string]int64{}
	for name, own := range l.Names {
		err = cmp.Or(err, own.check())
		names[name] = own.amounts()
	}
	if err != nil {
		return "", fmt.Errorf("limits of sessions: %w", err)
	}
	raw, err := json.Marshal(map[string]any{"namespace": int64(l.Namespace), "others": l.Others.amounts(),
		"names": names})
	return string(raw), err
}

// reserveForSession is Reserve for the holder of a session capability. The envelope of its prompt pays.
func (e *Engine) reserveForSession(ctx context.Context, held picket.LeaseCredential,
	req picket.CallRequest) (picket.Reservation, error) {
	if req.Effects == picket.EffectsExternal || req.Keyed {
		return picket.Reservation{}, picket.LeaseRequired()
	}
	r := e.runCapability(ctx, held, "session_reserve", req.CallID, req.Nonce, req.Tool, req.Reserve.Tokens,
		int64(req.Reserve.USD), req.PriceVersion, req.TimeoutMs, e.quotas().OpenCalls,
		text.OneLine(text.ValidHead(req.Model, maxModelName)), e.dailyLimitArg())
	var v struct {
		Available int64 `reply:"available"`
	}
	r.Decode(&v)
	return picket.Reservation{CallID: req.CallID, TaskID: held.PromptID, Nonce: req.Nonce, Reserved: req.Reserve,
		Available: sessionFunds(budget.Money(v.Available))}, r.Err
}

// sessionFunds is what a session has available. Its tokens are not limited by the prompt.
func sessionFunds(usd budget.Money) budget.Envelope {
	return budget.Envelope{Tokens: picket.MaxNumber, USD: usd}
}

// fundsOfSession is Funds for the holder of a session capability.
func (e *Engine) fundsOfSession(ctx context.Context, held picket.LeaseCredential) (picket.Funds, error) {
	grant, err := e.SessionCapability(ctx, held)
	return picket.Funds{Available: sessionFunds(grant.Available), Locked: grant.Available < 0}, err
}

// wakeBudget is what the wakes of an agent name may still spend today.
func (e *Engine) wakeBudget(ctx context.Context, name string) (picket.WakeBudget, error) {
	var v wakeReply
	r := e.run(ctx, "wake_facts", name, "", e.store.limits, e.dailyLimitArg())
	r.Decode(&v)
	return picket.WakeBudget{Envelope: v.Short, Left: budget.Money(max(0, v.Money)),
		RenewedAt: heartbeat.NextDay(picket.Instant(v.Raw))}, r.Err
}

// SetSessionLimits changes what agent sessions may spend. It is for tests, and must not run beside other calls.
func (s *Store) SetSessionLimits(l SessionLimits) (err error) {
	s.cfg.SessionLimits = &l
	s.limits, err = l.argument()
	return err
}
