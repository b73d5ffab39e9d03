package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"time"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/adapter/process"
)

const launchText = "An agent's process is started and held in each way. *first act* is the time until it writes a byte " +
	"into a pipe, and *end known* the time until its end is known and its tree is gone. The other side is " +
	"a bare fork and exec of the same program, `/bin/sh`. cgroup and subreaper go through the shim, a " +
	"second process that holds the deadline. No server takes part."

// launches measures what it costs to hold a process tree.
func launches(ctx context.Context, b *bench) error {
	dir, err := os.MkdirTemp("", "launch")
	if err != nil {
		return fmt.Errorf("make directory: %w", err)
	}
	defer os.RemoveAll(dir)
	mouth, err := openMouth(dir)
	if err != nil {
		return err
	}
	defer mouth.file.Close()
	best, _ := process.BestContainment()
	var levels []string
	for _, level := range []string{picket.ContainmentCgroup, picket.ContainmentSubreaper, picket.ContainmentGroup} {
		if level == picket.ContainmentCgroup && best != level ||
			level == picket.ContainmentSubreaper && best == picket.ContainmentGroup {
			continue // does not work on this machine
		}
		levels = append(levels, level)
	}
	l := &launching{mouth: mouth, dir: dir, starts: b.pick(200, 10)}
	var contenders []contender
	for _, level := range levels {
		contenders = append(contenders,
			contender{level, func(ctx context.Context) (sample, error) { return l.round(ctx, l.held(level)) }})
	}
	contenders = append(contenders,
		contender{"fork and exec", func(ctx context.Context) (sample, error) { return l.round(ctx, l.bare) }})
	sides, err := b.inTurn(ctx, "launch", "ms", contenders...)
	if err != nil {
		return err
	}
	bare := sides[len(sides)-1]
	for i, level := range levels {
		for _, part := range []struct {
			name   string
			figure string
		}{{"first act", "p50"}, {"end known", "p50 end"}} {
			b.add(line{Scenario: "launch", Case: level + ", " + part.name, Layer: "engine", Unit: "ms", Fsync: "off",
				Sides: []side{byQuantile(sides[i], part.figure), byQuantile(bare, part.figure)}}, growth, "none")
		}
	}
	return nil
}

// launching starts one process after the other.
type launching struct {
	mouth  *pipeMouth
	dir    string
	starts int // a round
}

// start starts the process and answers what waits for its end.
type start func(ctx context.Context) (wait func() error, err error)

func (l *launching) round(ctx context.Context, begin start) (sample, error) {
	var act, end times
	for range l.starts {
		began := time.Now()
		wait, err := begin(ctx)
		if err != nil {
			return sample{}, fmt.Errorf("start process: %w", err)
		}
		at, err := l.mouth.heard(ctx)
		if err != nil {
			return sample{}, err
		}
		if err := wait(); err != nil {
			return sample{}, fmt.Errorf("wait for process: %w", err)
		}
		act.add(at.Sub(began))
		end.add(time.Since(began))
	}
	s := quantiles(act.millis(), 0.5)
	s.More["p50 end"] = round(end.millis().at(0.5), 3)
	return s, nil
}

func (l *launching) bare(context.Context) (func() error, error) {
	c := l.mouth.command()
	cmd := exec.Command(c[0], c[1:]...)
	cmd.Dir = l.dir
	return cmd.Wait, cmd.Start()
}

// held starts it as an adapter does.
func (l *launching) held(level string) start {
	launcher := process.CommandLauncher{Command: l.mouth.command(), Containment: level}
	return func(ctx context.Context) (func() error, error) {
		p, err := launcher.Launch(ctx, process.Job{Dir: l.dir, Env: []string{"PICKET_RUN_ID=bench"}})
		if err != nil {
			return nil, err
		}
		return func() error {
			<-p.Done()
			if exit := p.Exit(); exit.Code != 0 {
				return fmt.Errorf("the process ended with %+v", exit)
			}
			return nil
		}, nil
	}
}
