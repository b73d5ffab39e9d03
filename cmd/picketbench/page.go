package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
)

const pageHead = `<!-- Made by "make bench" from benchmarks.jsonl. Do not edit. -->
# Benchmarks
Ratios of one run on one machine. They say how two programs compare there and then, and promise nothing about yours: run
` + "`make bench`" + ` to get your own.

How it is measured: ` + "`cmd/picketbench`" + ` starts one redis-server of its own on a unix socket. Both sides run in one process, in
turn (Picket, asynq, Picket, asynq, …), after one round each that does not count. As many submitters as workers put tasks in
while the workers take them out; a round ends when the last task is done. asynq 0.26 runs one server with the same number of
workers and looks for work every millisecond, its best setting here; it has no HTTP.

A ratio under 1 means that asynq did more tasks. Redis is what Picket's engine waits for: its scripts do more a task.

- *life*: submit, grant, complete on Picket; enqueue, dequeue, done on asynq. Three transitions each. Picket also writes three
  events and keeps the finished task; asynq deletes it.
- *life5*: Picket does five transitions (a renewal, a report, and the end goes to review) against asynq's same three.
- *life-http*: life through the control plane and the tool proxy on a loopback port, as an adapter does it; asynq as before, so
  this row shows what HTTP, keys and strict decoding cost, not two equal programs.

| scenario | fsync | Picket tasks/s (spread) | asynq tasks/s (spread) | ratio | Redis µs a task | Redis calls a task |
|---|---|---|---|---|---|---|
`

// writePage writes docs/benchmarks.md from a file of JSON lines.
func writePage(w io.Writer, path string) error {
	f, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("open figures (make bench makes them): %w", err)
	}
	defer f.Close()
	var page strings.Builder
	page.WriteString(pageHead)
	var last result
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if err := json.Unmarshal(lines.Bytes(), &last); err != nil {
			return fmt.Errorf("read figures: %w", err)
		}
		writeRow(&page, last)
	}
	if last.Scenario == "" {
		return fmt.Errorf("%s holds no figures: run make bench", path)
	}
	fmt.Fprintf(&page, "\nMeasured %s: %d rounds of %d tasks, %d workers, %d bytes of payload; Redis %s, %s, %d processors shared by Redis, both\nsides and whatever else ran. A side marked *noisy* had a spread over 30 %%: read its figure as a hint only.\n",
		last.Date, last.Plan.Rounds, last.Plan.Tasks, last.Plan.Workers, last.Plan.Payload, last.Redis, last.Go, last.CPUs)
	page.WriteString("Redis µs and calls are Picket's against asynq's: processor time of redis-server, and scripts called, each a task.\n")
	_, err = io.WriteString(w, page.String())
	return err
}

func writeRow(page *strings.Builder, r result) {
	ours, theirs := r.Picket.middle(), r.Asynq.middle()
	fmt.Fprintf(page, "| %s | %s | %s | %s | x%.2f | %.0f / %.0f | %.2f / %.2f |\n", r.Scenario, r.Fsync, r.Picket, r.Asynq, r.Ratio,
		ours.RedisMicros, theirs.RedisMicros, ours.CallsPerTask, theirs.CallsPerTask)
}

func (s side) String() string {
	noisy := ""
	if s.Noisy {
		noisy = ", noisy"
	}
	return fmt.Sprintf("%.0f (%.0f %%%s)", s.Median, s.Spread*100, noisy)
}

// middle is the round whose rate is nearest to the median.
func (s side) middle() sample {
	best := s.Rounds[0]
	for _, r := range s.Rounds {
		if abs(r.PerSecond-s.Median) < abs(best.PerSecond-s.Median) {
			best = r
		}
	}
	return best
}

func abs(v float64) float64 { return max(v, -v) }
