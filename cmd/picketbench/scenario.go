package main

import (
	"context"
	"fmt"
	"io"
	"maps"
	"runtime/debug"
	"time"
)

// scenario is one question that the benchmark answers.
type scenario struct {
	name string
	what string // what is measured, on what terms: a line of the page
	run  func(context.Context, *bench) error
}

// scenarios are all of them, in the order of the page.
func scenarios() []scenario {
	return []scenario{
		{"life", lifeText, func(ctx context.Context, b *bench) error { return lives(ctx, b, "life") }},
		{"life5", life5Text, func(ctx context.Context, b *bench) error { return lives(ctx, b, "life5") }},
		{"life-http", lifeHTTPText, func(ctx context.Context, b *bench) error { return lives(ctx, b, "life-http") }},
		{"steady", steadyText, steady},
		{"inflight", inflightText, inflight},
		{"fence", fenceText, fence},
		{"renew", renewText, renew},
		{"pickup", pickupText, pickup},
		{"kill", killText, kill},
		{"launch", launchText, launches},
		{"leases", leasesText, leases},
		{"busy", busyText, busy},
		{"depth", depthText, depth},
		{"agents", agentsText, agents},
		{"hostdeath", hostdeathText, hostdeath},
		{"mcpcall", mcpcallText, mcpcall},
		{"console", consoleText, consoles},
		{"a2a", a2aText, subscribers},
		{"scripts", scriptsText, scripts},
	}
}

// bench is one run of the program.
type bench struct {
	plan
	fsyncs []string // of the scenarios that are measured for each
	log    io.Writer
	lines  []line            // of the scenario being measured
	began  time.Time         // of the line being measured
	peers  map[string]string // versions of servers beside Redis
}

// contender is one side of a comparison.
type contender struct {
	name  string
	round func(ctx context.Context) (sample, error)
}

// inTurn runs the contenders A, B, A, B, …: the first round of each warms it up
// and does not count.
func (b *bench) inTurn(ctx context.Context, what, unit string, contenders ...contender) ([]side, error) {
	samples := make([][]sample, len(contenders))
	for n := range b.Rounds + 1 {
		for i, c := range contenders {
			s, err := c.round(ctx)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", c.name, err)
			}
			fmt.Fprintf(b.log, "%-28s round %d %-24s %10s %s\n", what, n, c.name, figure(s.Value), unit)
			if n > 0 {
				samples[i] = append(samples[i], s)
			}
		}
	}
	sides := make([]side, len(contenders))
	for i, c := range contenders {
		sides[i] = sideOf(c.name, samples[i])
	}
	return sides, nil
}

// add takes one line. The first two sides make the ratio.
func (b *bench) add(l line, c compare, redis string) {
	l.Plan, l.Machine = b.plan, thisMachine()
	l.Machine.Redis = redis
	maps.Copy(l.Machine.Peers, b.peers)
	l.Seconds = round(time.Since(b.began).Seconds(), 1)
	b.began = time.Now()
	if len(l.Sides) > 1 {
		l.Ratio, l.Better = c.ratio(l.Sides[0], l.Sides[1]), c.better()
	}
	b.lines = append(b.lines, l)
	if b.log != nil && (l.Must != nil || l.Moonshot != nil) {
		fmt.Fprintf(b.log, "%s, %s: x%s; must %s, moonshot %s, reached %s\n", l.Scenario, l.Case, figure(l.Ratio),
			l.Must.text(l.Unit), l.Moonshot.text(l.Unit), l.reached())
	}
}

// peerVersions are the versions of what is measured beside Picket, as they
// were compiled in.
func peerVersions() map[string]string {
	peers := map[string]string{}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return peers
	}
	for _, m := range info.Deps {
		if name, ok := peerModules[m.Path]; ok {
			peers[name] = m.Version
		}
	}
	return peers
}

var peerModules = map[string]string{
	"github.com/hibiken/asynq":     "asynq",
	"github.com/riverqueue/river":  "river",
	"github.com/redis/go-redis/v9": "go-redis",
}
