package main

import (
	"context"
	"path/filepath"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/adapter/agents"
	"github.com/picket-dev/picket/cmd/picket/cli"
	"github.com/picket-dev/picket/cmd/picket/cli/exit"
	"github.com/picket-dev/picket/cmd/picket/settings"
	"github.com/picket-dev/picket/internal/web"
	"github.com/picket-dev/picket/orchestrator"
	"github.com/picket-dev/picket/orchestrator/a2a"
	"github.com/picket-dev/picket/orchestrator/api"
	"github.com/picket-dev/picket/orchestrator/console"
	"github.com/picket-dev/picket/reaper/push"
	"github.com/picket-dev/picket/reaper/webhooks"
)

// newEndpoints makes the A2A endpoints of the pools in the settings, nil if there are none. own is the URL at which
// this process listens; clients that come another way need public_url.
func (h serverProcess) newEndpoints(store *orchestrator.Store, control *api.API, rates *web.Rates,
	sender *webhooks.Sender, own string) (*a2a.Server, error) {
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
	if h.cfg.A2A.Push {
		cfg.CheckPush = sender.CheckHTTPS
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

// agentEndpoint shows agents of the pools in the settings with their endpoints; nil if there are none.
func (h serverProcess) agentEndpoint(own string) func(namespace string, a picket.Agent) string {
	roles, base := map[string]bool{}, strings.TrimRight(h.cfg.PublicBase(own), "/")
	for _, p := range h.cfg.A2APools() {
		roles[p.Role] = true
	}
	if len(roles) == 0 || base == "" {
		return nil
	}
	return func(namespace string, a picket.Agent) string {
		if !roles[a.RoleID] {
			return ""
		}
		return a2a.InstanceURL(base, namespace, a.RoleID, a.AgentID)
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

// deliverPush delivers the push notifications of tasks until ctx ends, unless a setting has them off.
func (h serverProcess) deliverPush(ctx context.Context, group *errgroup.Group, store *orchestrator.Store,
	sender *webhooks.Sender) error {
	if !h.cfg.A2A.Push || len(h.cfg.A2APools()) == 0 {
		return nil
	}
	queues := map[string]push.Queue{}
	for _, e := range store.Engines() {
		queues[e.Namespace()] = e
	}
	d, err := push.New(push.Config{
		Queues:      queues,
		Sender:      sender,
		Render:      a2a.PushBody,
		ContentType: a2a.PushContentType,
		Log:         h.log,
	})
	if err != nil {
		return err
	}
	group.Go(func() error { return d.Run(ctx) })
	return nil
}
