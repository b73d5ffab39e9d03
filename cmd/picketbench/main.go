// Command picketbench measures Picket beside asynq on the same Redis in the
// same process, round by round in turn, and writes one JSON line a scenario.
//
// It starts a redis-server of its own on a unix socket in a temporary folder
// and ends that one only. Figures are ratios of one run on one machine: no
// test depends on them.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "picketbench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, stdout io.Writer) error {
	flags := flag.NewFlagSet("picketbench", flag.ContinueOnError)
	var plan plan
	flags.IntVar(&plan.Rounds, "rounds", 3, "rounds of each side, at least 3")
	flags.IntVar(&plan.Tasks, "tasks", 8_000, "tasks a round")
	flags.IntVar(&plan.Workers, "workers", 64, "workers, and as many submitters")
	flags.IntVar(&plan.Payload, "payload", 1024, "bytes of payload a task")
	scenarios := flags.String("scenarios", "life,life5,life-http", "which scenarios, by comma")
	fsync := flags.String("fsync", "off,everysec,always", "which durability settings of Redis, by comma")
	out := flags.String("o", "", "also write the JSON lines to this file")
	table := flags.String("table", "", "measure nothing: write the page for this file of JSON lines")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *table != "" {
		return writePage(stdout, *table)
	}
	if plan.Rounds < 3 || plan.Tasks < plan.Workers || plan.Workers < 1 {
		return fmt.Errorf("at least 3 rounds, 1 worker and a task for each are needed")
	}
	if *out != "" {
		f, err := os.Create(*out)
		if err != nil {
			return fmt.Errorf("create figures file: %w", err)
		}
		defer f.Close()
		stdout = io.MultiWriter(stdout, f)
	}
	enc := json.NewEncoder(stdout)
	for mode := range strings.SplitSeq(*fsync, ",") {
		for name := range strings.SplitSeq(*scenarios, ",") {
			result, err := measure(ctx, plan, name, mode)
			if err != nil {
				return fmt.Errorf("scenario %s, fsync %s: %w", name, mode, err)
			}
			if err := enc.Encode(result); err != nil {
				return err
			}
		}
	}
	return nil
}

// measure runs the rounds of one scenario, the sides in turn on one Redis.
func measure(ctx context.Context, p plan, scenario, fsync string) (result, error) {
	ours, ok := lives[scenario]
	if !ok {
		return result{}, fmt.Errorf("no such scenario: life, life5 and life-http exist")
	}
	server, err := startRedis(ctx, fsync)
	if err != nil {
		return result{}, err
	}
	defer server.stop()
	sides := []struct {
		name string
		run  func(context.Context, plan, *redisServer) (sample, error)
	}{{"picket", ours.run}, {"asynq", asynqLife}}
	samples := map[string][]sample{}
	for round := range p.Rounds + 1 { // the first one warms both sides up
		for _, side := range sides {
			if err := server.empty(ctx); err != nil {
				return result{}, err
			}
			s, err := side.run(ctx, p, server)
			if err != nil {
				return result{}, fmt.Errorf("%s: %w", side.name, err)
			}
			fmt.Fprintf(os.Stderr, "%-6s fsync %-8s round %d %-6s %8.0f tasks/s\n", scenario, fsync, round, side.name, s.PerSecond)
			if round > 0 {
				samples[side.name] = append(samples[side.name], s)
			}
		}
	}
	return summarize(p, scenario, ours.layer, fsync, server.version, samples["picket"], samples["asynq"]), nil
}
