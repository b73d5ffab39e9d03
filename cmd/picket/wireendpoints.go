package main

import (
	"context"
	"path/filepath"

	"github.com/picket-dev/picket/adapter/agents"
	"github.com/picket-dev/picket/cmd/picket/cli"
	"github.com/picket-dev/picket/cmd/picket/cli/exit"
	"github.com/picket-dev/picket/cmd/picket/settings"
	"github.com/picket-dev/picket/internal/web"
	"github.com/picket-dev/picket/orchestrator"
	"github.com/picket-dev/picket/orchestrator/a2a"
	"github.com/picket-dev/picket/orchestrator/api"
	"github.com/picket-dev/picket/orchestrator/console"
)

// newEndpoints makes the A2A endpoints of the pools in the settings, nil if there are none. own is the URL at which
// this process listens; clients that come another way need public_url.
func (h serverProcess) newEndpoints(store *orchestrator.Store, control *api.API, rates *web.Rates,
	own string) (*a2a.Server, error) {
	pools := h.cfg.A2APools()
	if len(pools) == 0 || !h.orchestrator {
		return nil, nil
	}
	if h.cfg.PublicBase(own) == "" {
		return nil, exit.Usagef("agents.%s.a2a needs the address that its card names, and this server has only a Unix "+
			"socket; set public_url", pools[0].Agent)
	}
	cfg := a2a.Config{
		PublicURL:    h.cfg.PublicBase(own),
		Version:      cli.Version(),
		PublicCards:  h.cfg.A2A.PublicCards,
		Admit:        control.Admit,
		Engine:       store.Engine,
		Leases:       h.sealer,
		Rates:        rates,
		AllowedHosts: h.hosts(),
		Log:          h.log,
		PriceVersion: func() string { return h.prices.current().Version },
	}
	for _, p := range pools {
		pool := endpointPool(p)
		if llm := h.cfg.Tools.LLM; pool.Vendor == "anthropic" && llm.Anthropic == nil ||
			pool.Vendor == "openai" && llm.OpenAI == nil {
			pool.Vendor = ""
		}
		cfg.Pools = append(cfg.Pools, pool)
	}
	return a2a.New(cfg)
}

// shownEndpoints are the endpoints of a namespace as the console shows them, nil if there are none.
func shownEndpoints(s *a2a.Server, publicCards bool) func(context.Context, string) (*console.Endpoints, error) {
	if s == nil {
		return nil
	}
	return func(ctx context.Context, namespace string) (*console.Endpoints, error) {
		orchestrator, pools, err := s.Endpoints(ctx, namespace)
		if err != nil {
			return nil, err
		}
		all := &console.Endpoints{URL: orchestrator, PublicCards: publicCards}
		for _, p := range pools {
			shown := console.PoolEndpoint{Role: p.Role, Name: p.Name, Description: p.Description, URL: p.URL,
				MaxQueue: p.MaxQueue, Reviewed: p.Reviewed, Budget: p.Budget}
			for _, skill := range p.Skills {
				shown.Skills = append(shown.Skills, console.EndpointSkill(skill))
			}
			all.Pools = append(all.Pools, shown)
		}
		return all, nil
	}
}

// endpointPool is a pool of the settings as its endpoint takes it.
func endpointPool(p settings.A2APool) a2a.Pool {
	pool := a2a.Pool{Role: p.Role, Task: p.Task, MaxQueue: p.MaxQueue, ReusedMessageIDs: p.ReusedMessageIDs,
		Card: a2a.CardText(p.Card), Skills: map[string]a2a.Skill{}}
	switch preset := agents.Preset(p.Preset); {
	case preset != "" && preset != agents.PresetExec:
		pool.Provider, pool.Vendor = p.Preset, preset.Vendor()
	case len(p.Command) > 0:
		pool.Provider = filepath.Base(p.Command[0])
	}
	for _, tag := range p.Capabilities {
		pool.Skills[tag] = a2a.Skill{}
	}
	for tag, s := range p.Skills {
		pool.Skills[tag] = a2a.Skill(s)
	}
	return pool
}
