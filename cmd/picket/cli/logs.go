package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/client"
	"github.com/picket-dev/picket/cmd/picket/cli/term"
)

func newTaskLogs() *cobra.Command {
	c := OnTask("logs", "Print the output of a task's latest run (the last 1 MiB)",
		func(cmd *cobra.Command, s *Connection, id string) error {
			stream, _ := cmd.Flags().GetString("stream")
			run, _ := cmd.Flags().GetString("run")
			follow, _ := cmd.Flags().GetBool("follow")
			ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGINT, syscall.SIGTERM)
			defer stop()
			times, _ := cmd.Flags().GetBool("timestamps")
			l := logReader{
				s:         s,
				task:      id,
				run:       run,
				singleRun: run != "",
				stream:    stream,
				times:     times,
				w:         cmd.OutOrStdout(),
			}
			if raw, _ := cmd.Flags().GetBool("raw"); !raw {
				l.w = term.SafeOutput(l.w)
			}
			if !follow {
				return l.printCurrent(ctx)
			}
			err := l.follow(ctx)
			if ctx.Err() != nil {
				return nil
			}
			return err
		})
	c.Flags().String("stream", "stdout", "the stream: stdout or stderr")
	term.Choices(c, "stream", "stdout", "stderr")
	c.Flags().String("run", "", "an earlier run instead of the latest (see: picket task runs)")
	c.Flags().Bool("raw", false, "print every byte, also to a terminal; text of the agent may control it")
	c.Flags().BoolP("follow", "f", false, "follow until the task is closed or in review, or the run of --run is over")
	c.Flags().Bool("timestamps", false, "put the time at which it was written before each line")
	return c
}

// logReader prints one stream of one run from where it last was.
type logReader struct {
	s         *Connection
	task      string
	run       string // "" is the latest
	singleRun bool   // this run, not the ones after it
	stream    string
	times     bool
	offset    int64
	w         io.Writer
}

// printCurrent prints what there is now.
func (l *logReader) printCurrent(ctx context.Context) error {
	for {
		got, err := l.printNext(ctx, "")
		if err != nil || len(got.Data) == 0 {
			return err
		}
	}
}

// printNext prints the next piece. With follow, run or task, it waits for one.
func (l *logReader) printNext(ctx context.Context, follow string, opts ...client.Option) (picket.LogChunk, error) {
	got, err := l.s.Tasks.Log(ctx, l.task, client.LogQuery{
		Run: l.run, Stream: l.stream, Offset: l.offset, Limit: 1 << 20, Follow: follow, Timestamps: l.times,
	}, opts...)
	if err != nil {
		return got, err
	}
	l.run = cmp.Or(l.run, got.RunID)
	if got.Offset > l.offset && len(got.Data) > 0 {
		fmt.Fprintf(l.w, "… %d bytes are no longer kept …\n", got.Offset-l.offset)
	}
	l.offset = got.Next
	_, err = l.w.Write(got.Data)
	return got, err
}

// follow prints until the run is over or, when it goes on to later ones, until
// the task waits for nobody's process any more. The server waits, not we.
func (l *logReader) follow(ctx context.Context) error {
	what, seen := "task", false
	if l.singleRun {
		what = "run"
	}
	for {
		got, err := l.printNext(ctx, what, client.WithSecondTry())
		switch {
		case seen && IsTaskMissing(err):
			return TaskLostError(l.task, "")
		case errors.Is(err, picket.CodeUnavailable):
			if err := Sleep(ctx, 500*time.Millisecond+rand.N(500*time.Millisecond)); err != nil {
				return err
			}
			continue
		case err != nil:
			return err
		}
		seen = true
		over := len(got.Data) == 0 && got.State != picket.LogOpen
		switch {
		case over && l.singleRun, over && l.run == got.LatestRunID && noMoreRuns(got.TaskState),
			l.run == "" && got.TaskState.Terminal():
			return nil
		case over && l.run != got.LatestRunID:
			l.run, l.offset = got.LatestRunID, 0
		}
	}
}

// noMoreRuns reports a state in which no run of the task comes any more.
func noMoreRuns(s picket.TaskState) bool { return s.Terminal() || s == picket.TaskReview }
