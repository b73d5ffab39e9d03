package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync/atomic"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/internal/seal"
	"github.com/picket-dev/picket/orchestrator"
	"github.com/redis/go-redis/v9"
)

const scriptsText = "the profile: each script of a standard life called alone for 1,000 tasks from as many workers, without batches; INFO commandstats before and after say what it cost Redis a call, " +
	"and which commands it called; the cheapest of the rounds, since whatever else runs on the machine only adds. No peer. The rest of a script's time is Lua itself and its reply."

// profile is what one script costs Redis, a call.
type profile struct {
	Script   string             `json:"script"`
	Calls    int64              `json:"calls"`
	Micros   float64            `json:"usecPerCall"`
	Nested   float64            `json:"nestedCalls"`
	Inside   float64            `json:"nestedUsec"` // of Micros, inside the nested calls
	Commands map[string]float64 `json:"commands"`   // nested calls by command
}

// stage is one script of a life, for every task.
type stage struct {
	name string
	do   func(ctx context.Context, i int) error
}

// scripts measures one script after the other.
func scripts(ctx context.Context, b *bench) error {
	server, err := startRedis(ctx, "off")
	if err != nil {
		return err
	}
	defer server.stop()
	store, sealer, err := openStore(ctx, server, false)
	if err != nil {
		return err
	}
	defer store.Close()
	tasks := min(b.Tasks, 1_000)
	var rows []profile
	for n := range b.Rounds + 1 { // the first life warms up and does not count
		for i, s := range stages(b.plan, server, store.Engine("default"), sealer, tasks) {
			row, err := profileOf(ctx, b.plan, server, s, tasks)
			if err != nil {
				return fmt.Errorf("%s: %w", s.name, err)
			}
			switch {
			case n == 1:
				rows = append(rows, row)
			case n > 1 && row.Micros < rows[i].Micros:
				rows[i] = row
			}
		}
	}
	for _, row := range rows {
		fmt.Fprintf(b.log, "%-20s %6.1f µs a call, %4.1f nested calls in %5.1f µs: %s\n", row.Script, row.Micros,
			row.Nested, row.Inside, row.list())
	}
	b.add(line{
		Scenario: "scripts",
		Case:     fmt.Sprintf("%d tasks", tasks),
		Layer:    "script",
		Unit:     "µs",
		Fsync:    "off",
		Profile:  rows,
	}, rate, server.version)
	return nil
}

// bareScript is the least that Redis can do for an EVALSHA.
var bareScript = redis.NewScript("return 1")

// stages are a bare script to compare with, a life that is renewed, reports and goes to review, and the other
// ways out of a lease.
func stages(p plan, r *redisServer, e *orchestrator.Engine, sealer *seal.Sealer, tasks int) []stage {
	held := make([]picket.LeaseCredential, tasks)
	submit := func(review picket.ReviewBy) func(context.Context, int) error {
		return func(ctx context.Context, _ int) error {
			_, err := e.Submit(ctx, asBench, picket.TaskSpec{Title: "life", Input: payload(p), Review: review})
			return err
		}
	}
	grant := func(ctx context.Context, i int) error {
		leases, err := e.Acquire(ctx, asBench, picket.AcquireRequest{})
		if err != nil {
			return err
		}
		if len(leases) != 1 {
			return fmt.Errorf("%d leases granted", len(leases))
		}
		held[i], err = sealer.OpenLeaseToken(leases[0].LeaseToken.Reveal())
		return err
	}
	complete := func(ctx context.Context, i int) error {
		_, err := e.Complete(ctx, held[i], picket.Completion{Output: output})
		return err
	}
	return []stage{
		{"return 1", func(ctx context.Context, _ int) error {
			return bareScript.Run(ctx, r.client, []string{"bare"}).Err()
		}},
		{"submit", submit(picket.ReviewByHuman)},
		{"grant", grant},
		{"renew", func(ctx context.Context, i int) error { _, err := e.Renew(ctx, held[i]); return err }},
		{"report", func(ctx context.Context, i int) error {
			_, err := e.Report(ctx, held[i], "r1", halfway)
			return err
		}},
		{"watch", func(ctx context.Context, i int) error { _, _, err := e.Watch(ctx, held[i], 0); return err }},
		{"complete to review", complete},
		{"review", func(ctx context.Context, i int) error {
			_, err := e.Approve(ctx, asBench, held[i].TaskID, picket.Decision{})
			return err
		}},
		{"submit again", submit(picket.ReviewByNone)},
		{"grant again", grant},
		{"release", func(ctx context.Context, i int) error {
			_, err := e.Release(ctx, held[i], picket.Exit{Class: picket.ExitReleased})
			return err
		}},
		{"grant after release", grant},
		{"complete", complete},
		{"task", func(ctx context.Context, i int) error { _, err := e.Task(ctx, held[i].TaskID); return err }},
	}
}

// profileOf runs one stage for every task and reads what it cost.
func profileOf(ctx context.Context, p plan, r *redisServer, s stage, tasks int) (profile, error) {
	if err := r.resetCounts(ctx); err != nil {
		return profile{}, err
	}
	var next atomic.Int64
	p.Tasks = tasks
	if err := spread(p, func() error { return s.do(ctx, int(next.Add(1))-1) }); err != nil {
		return profile{}, err
	}
	counts, err := r.counts(ctx)
	if err != nil {
		return profile{}, err
	}
	return readProfile(s.name, counts)
}

// scriptCalls are the commands that call a script: those of Picket, and of the bare one.
var scriptCalls = []string{"fcall", "evalsha", "eval"}

// readProfile splits the counters into the script and what it called.
func readProfile(name string, counts map[string]count) (profile, error) {
	var script count
	for _, called := range scriptCalls {
		script.calls += counts[called].calls
		script.micros += counts[called].micros
	}
	if script.calls == 0 {
		return profile{}, fmt.Errorf("no script was called")
	}
	n := float64(script.calls)
	row := profile{Script: name, Calls: script.calls, Micros: round(script.micros/n, 1), Commands: map[string]float64{}}
	for command, c := range counts {
		if slices.Contains(scriptCalls, command) || command == "config|resetstat" {
			continue
		}
		row.Nested += float64(c.calls) / n
		row.Inside += c.micros / n
		row.Commands[command] = round(float64(c.calls)/n, 2)
	}
	row.Nested, row.Inside = round(row.Nested, 1), round(row.Inside, 1)
	return row, nil
}

// list names the nested commands, the most frequent first.
func (p profile) list() string {
	names := slices.SortedFunc(maps.Keys(p.Commands), func(a, b string) int {
		switch d := p.Commands[b] - p.Commands[a]; {
		case d > 0:
			return 1
		case d < 0:
			return -1
		case a < b:
			return -1
		}
		return 1
	})
	out := ""
	for i, name := range names {
		if i > 0 {
			out += ", "
		}
		out += fmt.Sprintf("%s %s", name, figure(p.Commands[name]))
	}
	return out
}
