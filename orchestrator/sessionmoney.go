package orchestrator

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

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
	limits := e.wakeLimits(name)
	b := picket.WakeBudget{Envelope: v.Short, Left: budget.Money(max(0, v.Money)), Setting: limits.setting(v.Short)}
	if limits.none() == "" {
		next := heartbeat.NextDay(picket.Instant(v.Raw))
		b.RenewedAt = &next
	}
	return b, r.Err
}

// wakeLimits are the limits of what the wakes of an agent name may spend on a day.
type wakeLimits struct {
	name           string
	own, namespace budget.Money
	day            *budget.Money // nil: no limit
}

func (e *Engine) wakeLimits(name string) wakeLimits {
	l := wakeLimits{name: name, own: e.store.cfg.SessionLimits.of(name).Wakes,
		namespace: e.store.cfg.SessionLimits.Namespace}
	if day := e.store.budgets.Load().perDay; day != nil {
		l.day = &day.USD
	}
	return l
}

// none is the kind of the envelopes of which the limit is 0, or "".
func (l wakeLimits) none() string {
	switch {
	case l.own <= 0:
		return "wake"
	case l.namespace <= 0:
		return "sessions"
	case l.day != nil && *l.day <= 0:
		return "house"
	}
	return ""
}

// setting is the key of picket.yaml that limits an envelope: the one that is 0, if there is one.
func (l wakeLimits) setting(envelope string) string {
	kind, _, _ := strings.Cut(envelope, ":")
	switch cmp.Or(l.none(), kind) {
	case "wake":
		return "agents." + l.name + ".wake_budget"
	case "sessions":
		return "wake.budget"
	}
	return "budget.house"
}

// shortage says why a wake may spend nothing now, and what to do.
func (f wakeFacts) shortage() *picket.WakeShortage {
	s := &picket.WakeShortage{Setting: f.limits.setting(f.Short), Left: max(0, f.available())}
	whose := map[string]string{"agents." + f.name + ".wake_budget": "the wakes of " + f.name,
		"wake.budget": "all agent sessions", "budget.house": "all tasks and sessions"}[s.Setting]
	raise := "raise " + s.Setting + " in picket.yaml and restart the server."
	day, left := f.Short[strings.LastIndex(f.Short, ":")+1:], s.Left.Dollars()+" is left"
	switch {
	case f.limits.none() != "":
		s.Message = whose + " may spend nothing, because " + s.Setting + " is 0"
		s.Remedy = "No later day changes that: " + raise
	case f.Unspent > 0:
		s.Message = whose + " have reserved all that they may spend on " + day + " (UTC): " + left
		s.Remedy = "Wait until one of the prompts has ended, or " + raise
	default:
		s.Message = whose + " have spent all that they may on " + day + " (UTC): " + left
		next := heartbeat.NextDay(picket.Instant(f.Raw)).String()
		s.Remedy = "Wait until " + next + ", when the next day begins, or " + raise
	}
	return s
}

// explainZeroLimit says of a prompt that is refused for lack of money that its limit is 0, if it is. No later day
// changes that.
func (e *Engine) explainZeroLimit(err error) error {
	refusal, ok := errors.AsType[*picket.Error](err)
	if !ok || refusal.Code != picket.CodeBudgetExceeded {
		return err
	}
	envelope, _ := refusal.Facts["envelope"].(string)
	parts := strings.Split(envelope, ":")
	limit, setting, whose := e.store.cfg.SessionLimits.Namespace, "wake.budget", "all agent sessions"
	if parts[0] == "prompt" {
		limit = e.store.cfg.SessionLimits.of(parts[1]).Prompts
		setting, whose = "agents."+parts[1]+".prompts_budget", "the prompts of people to "+parts[1]
	}
	if len(parts) > 1 && parts[1] == "-" {
		setting, whose = "agents.NAME.prompts_budget", "the prompts of people to sessions without an agent name"
	}
	if limit > 0 || parts[0] == "house" {
		return err
	}
	refusal.Message = whose + " may spend nothing, because " + setting + " is 0"
	refusal.Remedy = "No later day changes that: raise " + setting + " in picket.yaml and restart the server."
	return err
}

// SetSessionLimits changes what agent sessions may spend. It is for tests, and must not run beside other calls.
func (s *Store) SetSessionLimits(l SessionLimits) (err error) {
	s.cfg.SessionLimits = &l
	s.limits, err = l.argument()
	return err
}
