package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/orchestrator"
)

const agentsText = "many registered agents against few, each lot in a store with a Redis of its own. *heartbeat*: one caller sends heartbeats of agents picked at random (the seed is fixed), one after the other, through the Go API and over HTTP, where the key is looked up, too; *in Redis* is the script's own time by the server's counters, all commands in it included; *heartbeats, all callers* is a rate. " +
	"*reaper's tick* is one tick and one look at the agents that are due for a judgement while all are healthy; *commands a tick* is how many commands Redis counted for it, those inside scripts included. No agent is lost while it is measured. Both sides are Picket."

// squad is a store with registered agents, all of them healthy.
type squad struct {
	plan   plan
	server *redisServer
	store  *orchestrator.Store
	engine *orchestrator.Engine
	site   *site
	ids    []string
	calls  int // a round
	random *rand.Rand
}

// muster registers n agents in a store of their own. Their thresholds are such
// that none is missed while others are measured.
func muster(ctx context.Context, b *bench, n int) (*squad, error) {
	server, err := startRedis(ctx, "off")
	if err != nil {
		return nil, err
	}
	store, sealer, err := openStore(ctx, server, true)
	if err != nil {
		server.stop()
		return nil, err
	}
	s := &squad{plan: b.plan, server: server, store: store, engine: store.Engine("default"), ids: make([]string, n),
		calls: b.pick(10_000, 500), random: rand.New(rand.NewPCG(3, 4))}
	if s.site, err = openSite(ctx, store, sealer, b.Workers); err == nil {
		if err = s.register(ctx); err == nil {
			err = server.settle(ctx)
		}
	}
	if err != nil {
		s.dismiss()
		return nil, fmt.Errorf("register %d agents: %w", n, err)
	}
	return s, nil
}

func (s *squad) dismiss() {
	if s.site != nil {
		s.site.close()
	}
	s.store.Close()
	s.server.stop()
}

func (s *squad) register(ctx context.Context) error {
	var next atomic.Int64
	interval, unhealthy, dead, most := 1800, 3600, 7200, 4
	p := s.plan
	p.Tasks = len(s.ids)
	return spread(p, func() error {
		i := next.Add(1) - 1
		s.ids[i] = fmt.Sprintf("agent_%06d", i)
		reg := picket.Registration{
			AgentID:      s.ids[i],
			RoleID:       fmt.Sprintf("role-%d", i%50),
			Capabilities: []string{"go", "review"},
			Capacity:     &picket.DeclaredCapacity{MaxConcurrentTasks: &most},
			Heartbeat: &picket.Thresholds{
				IntervalSeconds:       &interval,
				UnhealthyAfterSeconds: &unhealthy,
				DeadAfterSeconds:      &dead,
			},
		}
		_, err := s.engine.Register(ctx, asBench, reg)
		for try := 1; errors.Is(err, picket.ErrUnknown) && try < fillTries; try++ {
			if _, err = s.engine.Register(ctx, asBench, reg); errors.Is(err, picket.CodeStateConflict) {
				err = nil // the first one arrived
			}
		}
		return err
	})
}

// beat is what an agent with work says.
func beat() picket.Heartbeat {
	load := 2
	return picket.Heartbeat{
		Status:          picket.AgentActive,
		CurrentLoad:     &load,
		ClientTimestamp: picket.Instant(time.Now().UnixMilli()),
	}
}

func (s *squad) anybody() string { return s.ids[s.random.IntN(len(s.ids))] }

// heartbeats is a round of them through the Go API, one after the other.
func (s *squad) heartbeats(ctx context.Context) (sample, error) {
	return s.timed(ctx, func(id string) error {
		_, err := s.engine.Heartbeat(ctx, asBench, id, beat())
		return err
	})
}

// requests is the same over HTTP.
func (s *squad) requests(ctx context.Context) (sample, error) {
	return s.timed(ctx, func(id string) error {
		_, err := s.site.client.Agents.Heartbeat(ctx, id, beat())
		return err
	})
}

func (s *squad) timed(ctx context.Context, call func(id string) error) (sample, error) {
	if err := s.server.resetCounts(ctx); err != nil {
		return sample{}, err
	}
	var seen times
	for range s.calls {
		id, began := s.anybody(), time.Now()
		if err := call(id); err != nil {
			return sample{}, err
		}
		seen.add(time.Since(began))
	}
	counts, err := s.server.counts(ctx)
	if err != nil {
		return sample{}, err
	}
	took := quantiles(seen, 0.5)
	took.More["in Redis"] = round(counts["fcall"].micros/float64(counts["fcall"].calls), 2)
	took.More["scripts a call"] = round(float64(counts["fcall"].calls)/float64(s.calls), 3)
	return took, nil
}

// abreast is a round of heartbeats by all callers at once.
func (s *squad) abreast(ctx context.Context) (sample, error) {
	p := s.plan
	p.Tasks = s.calls
	return throughput(p, func(_, n int) error {
		_, err := s.engine.Heartbeat(ctx, asBench, s.ids[n%len(s.ids)], beat())
		return err
	})
}

// ticks is a round of ticks, each with a look at the agents that are due for a judgement.
func (s *squad) ticks(ctx context.Context) (sample, error) {
	if err := s.server.resetCounts(ctx); err != nil {
		return sample{}, err
	}
	var seen times
	n := min(s.calls, 2_000)
	for range n {
		began := time.Now()
		if err := s.engine.Tick(ctx); err != nil {
			return sample{}, err
		}
		judged, err := s.engine.JudgeAgents(ctx, reapBatch)
		if err != nil {
			return sample{}, err
		}
		if judged != 0 {
			return sample{}, fmt.Errorf("%d healthy agents were judged", judged)
		}
		seen.add(time.Since(began))
	}
	counts, err := s.server.counts(ctx)
	if err != nil {
		return sample{}, err
	}
	commands := int64(0)
	for name, c := range counts {
		if name != "config|resetstat" && name != "info" {
			commands += c.calls
		}
	}
	took := quantiles(seen, 0.5)
	took.More["commands a tick"] = round(float64(commands)/float64(n), 2)
	return took, nil
}

// expectAll fails when an agent was lost.
func (s *squad) expectAll(ctx context.Context) error {
	page, err := s.engine.Agents(ctx, picket.AgentQuery{})
	if err == nil && page.Total != len(s.ids) {
		err = fmt.Errorf("%d of %d agents are active", page.Total, len(s.ids))
	}
	return err
}

// agents measures a large registry against a small one.
func agents(ctx context.Context, b *bench) error {
	few, many := 100, b.pick(10_000, 2_000)
	small, err := muster(ctx, b, few)
	if err != nil {
		return err
	}
	defer small.dismiss()
	large, err := muster(ctx, b, many)
	if err != nil {
		return err
	}
	defer large.dismiss()
	names := [2]string{fmt.Sprintf("%d agents", many), fmt.Sprintf("%d agents", few)}
	measure := func(of string, unit string, large, small func(context.Context) (sample, error)) ([]side, error) {
		return b.inTurn(ctx, "agents, "+of, unit, contender{names[0], large}, contender{names[1], small})
	}
	add := func(of, layer, unit string, sides []side, c compare, must *goal) {
		b.add(line{Scenario: "agents", Case: of, Layer: layer, Unit: unit, Fsync: "off", Sides: sides, Must: must}, c,
			large.server.version)
	}
	sides, err := measure("heartbeat", "µs", large.heartbeats, small.heartbeats)
	if err != nil {
		return err
	}
	add("heartbeat, p50", "engine", "µs", sides, growth, atMost(1.2))
	add("heartbeat, p99", "engine", "µs", both(sides, "p99"), growth, nil)
	add("heartbeat in Redis", "script", "µs", both(sides, "in Redis"), growth, atMost(1.2))
	if sides, err = measure("heartbeat over HTTP", "µs", large.requests, small.requests); err != nil {
		return err
	}
	add("heartbeat, p50", "http", "µs", sides, growth, atMost(1.2))
	if sides, err = measure("heartbeats, all callers", "/s", large.abreast, small.abreast); err != nil {
		return err
	}
	add("heartbeats, all callers", "engine", "/s", sides, rate, atLeast(0.8))
	if sides, err = measure("reaper's tick", "µs", large.ticks, small.ticks); err != nil {
		return err
	}
	add("reaper's tick, p50", "engine", "µs", sides, growth, atMost(1.2))
	add("commands a tick", "script", "commands", both(sides, "commands a tick"), growth, atMost(1.05))
	return errors.Join(small.expectAll(ctx), large.expectAll(ctx))
}

// both are two sides by another of their figures.
func both(sides []side, name string) []side {
	return []side{byQuantile(sides[0], name), byQuantile(sides[1], name)}
}
