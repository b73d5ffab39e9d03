package main

import (
	"context"
	_ "embed"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/orchestrator"
	"github.com/picket-dev/picket/orchestrator/lua"
	"github.com/redis/go-redis/v9"
)

const (
	fenceText = "What the fence costs a write. Progress reports of 1 KiB go through Picket's engine. The other side " +
		"is a script that makes the same writes (record, counter, list, time, event, notice) and asks " +
		"nothing. Both sides use the same kind of client, workers and Redis. In *shared*, calls of several " +
		"workers share round trips: Picket makes batches, and the other side pipelines its commands. In " +
		"*plain*, each call is a round trip of its own. Picket also encodes and checks the report. In *with a " +
		"request id*, Picket remembers the request, as it does for agents, so that a repeat has one effect. " +
		"The other side never does."
	renewText = "POST /v1/lease/renew passes HTTP, the check of the credential, strict decoding and the engine. The " +
		"other side is an EVALSHA of \"return 1\". Both sides make calls from the same number of workers on the " +
		"same Redis. In *EVALSHA plain*, each EVALSHA is a round trip, as in a program without Picket. In " +
		"*EVALSHA shared*, it shares round trips with others. *32 leases a request* is POST /v1/leases/renew " +
		"by as many workers, counted by lease, against a plain EVALSHA for each lease."
)

//go:embed lua/unfenced_report.lua
var unfencedSource string

// rawClient is a Redis client with the settings that Picket's own have.
type rawClient struct {
	client redis.UniversalClient
	pipe   *redis.AutoPipeliner // nil: every command is a round trip of its own
}

func newRawClient(r *redisServer, pipelined bool) (*rawClient, error) {
	c := &rawClient{client: redis.NewUniversalClient(&redis.UniversalOptions{
		Addrs: []string{r.socket}, MaxRetries: -1, DialerRetries: 1, ContextTimeoutEnabled: true,
		ReadTimeout: time.Second, WriteTimeout: time.Second, DialTimeout: time.Second,
	})}
	if !pipelined {
		return c, nil
	}
	var err error
	c.pipe, err = c.client.AsyncAutoPipeline()
	return c, err
}

func (c *rawClient) close() {
	if c.pipe != nil {
		c.pipe.Close()
	}
	c.client.Close()
}

// load puts a script into Redis and returns its name there.
func (c *rawClient) load(ctx context.Context, source string) (string, error) {
	return c.client.ScriptLoad(ctx, source).Result()
}

func (c *rawClient) evalsha(ctx context.Context, sha string, keys []string, args ...any) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	all := []any{"EVALSHA", sha, len(keys)}
	for _, k := range keys {
		all = append(all, k)
	}
	cmd := redis.NewCmd(ctx, append(all, args...)...)
	if c.pipe == nil {
		return c.client.Process(ctx, cmd)
	}
	return c.pipe.Submit(ctx, cmd).WaitContext(ctx)
}

// throughput makes a round of p.Tasks calls from p.Workers goroutines; do gets
// the number of the worker and of the call.
func throughput(p plan, do func(worker, call int) error) (sample, error) {
	var workers, calls atomic.Int64
	errs := make(chan error, p.Workers)
	began := time.Now()
	for range p.Workers {
		go func() {
			w := int(workers.Add(1)) - 1
			for {
				n := int(calls.Add(1)) - 1
				if n >= p.Tasks {
					errs <- nil
					return
				}
				if err := do(w, n); err != nil {
					errs <- err
					return
				}
			}
		}()
	}
	var failed error
	for range p.Workers {
		if err := <-errs; err != nil {
			failed = err
		}
	}
	return sample{Value: round(float64(p.Tasks)/time.Since(began).Seconds(), 0)}, failed
}

// fence measures reports with and without a fence.
func fence(ctx context.Context, b *bench) error {
	for _, c := range []struct {
		name      string
		pipelined bool
		once      bool // with a request id
		goals     [2]*goal
	}{
		{"shared", true, false, [2]*goal{atLeast(0.7), atLeast(0.9)}},
		{"plain", false, false, [2]*goal{atLeast(0.7), atLeast(0.9)}},
		{"shared, with a request id", true, true, [2]*goal{}},
	} {
		if err := fenceCase(ctx, b, c.name, c.pipelined, c.once, c.goals); err != nil {
			return fmt.Errorf("%s: %w", c.name, err)
		}
	}
	return nil
}

func fenceCase(ctx context.Context, b *bench, name string, pipelined, once bool, goals [2]*goal) error {
	server, err := startRedis(ctx, "off")
	if err != nil {
		return err
	}
	defer server.stop()
	store, sealer, err := openStore(ctx, server, pipelined)
	if err != nil {
		return err
	}
	defer store.Close()
	engine := store.Engine("default")
	held, err := fillLeased(ctx, b.plan, engine, sealer, b.Workers)
	if err != nil {
		return err
	}
	raw, err := newRawClient(server, pipelined)
	if err != nil {
		return err
	}
	defer raw.close()
	sha, err := raw.load(ctx, unfencedSource)
	if err != nil {
		return fmt.Errorf("load script: %w", err)
	}
	report := picket.Progress{Summary: strings.Repeat("x", b.Payload)}
	body := reportJSON(report)
	turn := 0
	fenced := func(ctx context.Context) (sample, error) {
		turn++
		return throughput(b.plan, func(w, n int) error {
			id := ""
			if once {
				id = fmt.Sprintf("r%d-%d", turn, n)
			}
			next := report // the same again and again would be a loop
			next.NextStep = strconv.Itoa(n)
			_, err := engine.Report(ctx, held[w], id, next)
			return err
		})
	}
	// Keys as long as Picket's own, in a namespace beside it, with the same records of tasks.
	const p = "pk:{unfence}:"
	for _, h := range held {
		if err := raw.client.Copy(ctx, "pk:{default}:task:"+h.TaskID, p+"task:"+h.TaskID, 0, true).Err(); err != nil {
			return fmt.Errorf("copy the record of a task: %w", err)
		}
	}
	task := lua.Records[0].Fields
	reports, updated := 1+slices.Index(task, "reports"), 1+slices.Index(task, "updated")
	unfenced := func(ctx context.Context) (sample, error) {
		return throughput(b.plan, func(w, _ int) error {
			id := held[w].TaskID
			return raw.evalsha(ctx, sha, []string{p + "task:" + id, p + "reports:" + id, p + "meta", p + "events"}, id,
				held[w].RunID, "1", body, p+"tail", reports, updated)
		})
	}
	sides, err := b.inTurn(ctx, "fence, "+name, "writes/s", contender{"fenced", fenced},
		contender{"unfenced", unfenced})
	if err != nil {
		return err
	}
	b.add(line{
		Scenario: "fence",
		Case:     name,
		Layer:    "engine",
		Unit:     "writes/s",
		Fsync:    "off",
		Sides:    sides,
		Must:     goals[0],
		Moonshot: goals[1],
	}, rate, server.version)
	return nil
}

// reportJSON is a report as Picket stores it.
func reportJSON(p picket.Progress) string {
	return `{"summary":"` + p.Summary + `","beliefs":[],"attempted":[],"nextStep":"","blockers":[]}`
}

// renew measures renewals over HTTP against bare scripts.
func renew(ctx context.Context, b *bench) error {
	server, err := startRedis(ctx, "off")
	if err != nil {
		return err
	}
	defer server.stop()
	store, sealer, err := openStore(ctx, server, true)
	if err != nil {
		return err
	}
	defer store.Close()
	site, err := openSite(ctx, store, sealer, b.Workers)
	if err != nil {
		return err
	}
	defer site.close()
	holders, err := holdersOf(ctx, b.plan, store.Engine("default"), clientEntry(site))
	if err != nil {
		return err
	}
	overHTTP := func(ctx context.Context) (sample, error) {
		return throughput(b.plan, func(w, _ int) error { return holders[w].renew(ctx) })
	}
	for _, c := range []struct {
		name      string
		pipelined bool
		goals     [2]*goal
	}{{"plain", false, [2]*goal{atLeast(0.2), atLeast(0.3)}}, {"shared", true, [2]*goal{}}} {
		raw, err := newRawClient(server, c.pipelined)
		if err != nil {
			return err
		}
		defer raw.close()
		sha, err := raw.load(ctx, "return 1")
		if err != nil {
			return fmt.Errorf("load script: %w", err)
		}
		bare := func(ctx context.Context) (sample, error) {
			return throughput(b.plan, func(int, int) error { return raw.evalsha(ctx, sha, []string{"bare"}) })
		}
		sides, err := b.inTurn(ctx, "renew against "+c.name, "calls/s", contender{"POST renew", overHTTP},
			contender{"EVALSHA " + c.name, bare})
		if err != nil {
			return err
		}
		b.add(line{
			Scenario: "renew",
			Case:     "EVALSHA " + c.name,
			Layer:    "http",
			Unit:     "calls/s",
			Fsync:    "off",
			Sides:    sides,
			Must:     c.goals[0],
			Moonshot: c.goals[1],
		}, rate, server.version)
	}
	return renewTogether(ctx, b, server, site, store.Engine("default"))
}

// holdersOf leases one task for every worker through one entry.
func holdersOf(ctx context.Context, p plan, e *orchestrator.Engine, d entry) ([]holder, error) {
	if err := fillQueued(ctx, p, e, p.Workers); err != nil {
		return nil, err
	}
	all := p.Workers
	leases, err := d.acquire(ctx, picket.AcquireRequest{Max: &all})
	if err != nil {
		return nil, fmt.Errorf("acquire: %w", err)
	}
	if len(leases) != all {
		return nil, fmt.Errorf("%d leases granted", len(leases))
	}
	holders := make([]holder, all)
	for i, l := range leases {
		if holders[i], err = d.hold(l); err != nil {
			return nil, err
		}
	}
	return holders, nil
}
