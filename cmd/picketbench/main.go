// Command picketbench measures Picket beside its peers on the same machine in
// the same process, round by round in turn, and writes one JSON line a case.
//
// It starts servers of its own on unix sockets in temporary folders and ends
// those only. Figures are ratios of one run on one machine: no test depends on
// them.
package main

import (
	"context"
	stdjson "encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"
)

func main() {
	asHost()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "picketbench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, stdout io.Writer) error {
	flags := flag.NewFlagSet("picketbench", flag.ContinueOnError)
	var p plan
	flags.IntVar(&p.Rounds, "rounds", 3, "rounds of each side, at least 3")
	flags.IntVar(&p.Tasks, "tasks", 8_000, "tasks a round")
	flags.IntVar(&p.Workers, "workers", 64, "workers, and as many submitters")
	flags.IntVar(&p.Payload, "payload", 1024, "bytes of payload a task")
	flags.BoolVar(&p.Quick, "quick", false, "small sizes: to see that it works, never to quote")
	only := flags.String("only", "", "which scenarios, by comma or space; all of them when empty")
	list := flags.Bool("list", false, "measure nothing: list the scenarios")
	fsync := flags.String("fsync", "off,everysec,always",
		"which durability settings of Redis the lives are measured with, by comma")
	out := flags.String("o", "",
		"also put the JSON lines into this file, in the place of those it holds of the same scenarios")
	table := flags.String("table", "", "measure nothing: write the page for this file of JSON lines")
	if err := flags.Parse(args); err != nil {
		return err
	}
	switch {
	case *list:
		for _, s := range scenarios() {
			fmt.Fprintf(stdout, "%-12s %s\n", s.name, s.what)
		}
		return nil
	case *table != "":
		return writePage(stdout, *table)
	}
	if p.Quick {
		p.Tasks = min(p.Tasks, 1_000)
	}
	if p.Rounds < 3 || p.Tasks < p.Workers || p.Workers < 1 {
		return fmt.Errorf("at least 3 rounds, 1 worker and a task for each are needed")
	}
	chosen, err := choose(*only)
	if err != nil {
		return err
	}
	b := &bench{plan: p, fsyncs: strings.Split(*fsync, ","), log: os.Stderr}
	fmt.Fprintf(b.log, "%d processors, %s, %v\n", runtime.NumCPU(), runtime.Version(), peerVersions())
	var failed []error
	for _, s := range chosen {
		b.began, b.lines, b.peers = time.Now(), nil, nil
		if err := s.run(ctx, b); err != nil {
			failed = append(failed, fmt.Errorf("scenario %s: %w", s.name, err))
			continue // its figures stay as they were
		}
		if err := writeLines(stdjson.NewEncoder(stdout), b.lines); err != nil {
			return err
		}
		if *out == "" {
			continue
		}
		if err := replaceFigures(*out, s.name, b.lines); err != nil {
			return err
		}
	}
	return errors.Join(failed...)
}

// choose finds scenarios by name.
func choose(names string) ([]scenario, error) {
	all := scenarios()
	if names == "" {
		return all, nil
	}
	var chosen []scenario
	for name := range strings.FieldsFuncSeq(names, func(r rune) bool { return r == ',' || r == ' ' }) {
		i := slices.IndexFunc(all, func(s scenario) bool { return s.name == name })
		if i < 0 {
			return nil, fmt.Errorf("no scenario %q: -list shows them", name)
		}
		chosen = append(chosen, all[i])
	}
	return chosen, nil
}
