package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os/signal"
	"strconv"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/adapter"
)

func newTaskLogs() *cobra.Command {
	c := onTask("logs", "Print the output of a task's latest run (the last 1 MiB)", func(cmd *cobra.Command, s *server, id string) error {
		stream, _ := cmd.Flags().GetString("stream")
		run, _ := cmd.Flags().GetString("run")
		follow, _ := cmd.Flags().GetBool("follow")
		ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGINT, syscall.SIGTERM)
		defer stop()
		l := logReader{s: s, task: id, run: run, stream: stream, w: cmd.OutOrStdout()}
		if raw, _ := cmd.Flags().GetBool("raw"); !raw && isTerminal(l.w) {
			l.w = &terminalText{w: l.w}
		}
		if !follow {
			return l.drain(ctx)
		}
		err := l.follow(ctx)
		if ctx.Err() != nil {
			return nil
		}
		return err
	})
	c.Flags().String("stream", "stdout", "the stream: stdout or stderr")
	choices(c, "stream", "stdout", "stderr")
	c.Flags().String("run", "", "an earlier run instead of the latest (see: picket task runs)")
	c.Flags().Bool("raw", false, "print every byte to a terminal, too; what the agent wrote may steer it")
	c.Flags().BoolP("follow", "f", false, "go on until the task is closed or in review")
	return c
}

// logReader prints one stream of one run from where it last was.
type logReader struct {
	s      *server
	task   string
	run    string // "" is the latest
	stream string
	offset int64
	w      io.Writer
}

// drain prints what there is now.
func (l *logReader) drain(ctx context.Context) error {
	for {
		n, err := l.step(ctx)
		if err != nil || n == 0 {
			return err
		}
	}
}

func (l *logReader) step(ctx context.Context) (int, error) {
	q := url.Values{"stream": {l.stream}, "offset": {strconv.FormatInt(l.offset, 10)}, "limit": {"1048576"}}
	if l.run != "" {
		q.Set("run", l.run)
	}
	var body []byte
	var header http.Header
	path := "/api/v1/tasks/" + segment(l.task) + "/logs?" + q.Encode()
	if err := l.s.client.Call(ctx, http.MethodGet, path, nil, &body, adapter.WithResponseHeader(&header)); err != nil {
		return 0, l.s.hint(err)
	}
	if run := header.Get("X-Picket-Run"); l.run == "" && run != "" {
		l.run = run
	}
	first, _ := strconv.ParseInt(header.Get("X-Picket-Offset"), 10, 64)
	if first > l.offset && len(body) > 0 {
		fmt.Fprintf(l.w, "… %d bytes are no longer kept …\n", first-l.offset)
	}
	next, err := strconv.ParseInt(header.Get("X-Picket-Next"), 10, 64)
	if err != nil {
		next = l.offset + int64(len(body))
	}
	l.offset = next
	_, err = l.w.Write(body)
	return len(body), err
}

// follow prints until the task waits for nobody's process any more.
func (l *logReader) follow(ctx context.Context) error {
	latest, seen := l.run == "", false
	for {
		var task picket.Task
		err := keyMayReturn(ctx, func() error { return l.s.get(ctx, "/api/v1/tasks/"+segment(l.task), &task, nil) })
		switch {
		case seen && isLost(err):
			return taskLost(l.task, "")
		case err != nil && !errors.Is(err, picket.CodeUnavailable):
			return err
		}
		seen = seen || err == nil
		if err := keyMayReturn(ctx, func() error { return l.drain(ctx) }); err != nil && !errors.Is(err, picket.CodeUnavailable) && !errors.Is(err, picket.CodeNotFound) {
			return err
		}
		if latest && task.CurrentRun != nil && l.run != "" && task.CurrentRun.RunID != l.run {
			l.run, l.offset = task.CurrentRun.RunID, 0
			continue
		}
		if task.State.Terminal() || task.State == picket.TaskReview {
			// The adapter ships the tail after the state has changed.
			if err := sleep(ctx, 300*time.Millisecond); err != nil {
				return err
			}
			return l.drain(ctx)
		}
		if err := sleep(ctx, 500*time.Millisecond); err != nil {
			return err
		}
	}
}
