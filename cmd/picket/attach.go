package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/spf13/cobra"

	"github.com/picket-dev/picket"
)

const (
	exitInterrupted = 130 // as a shell reports Ctrl-C
	outputEvery     = 50 * time.Millisecond
	secondThoughts  = 1500 * time.Millisecond // between the first Ctrl-C and leaving
	lastOutput      = 15 * time.Second        // for the adapter to end after its task
	maxRestarts     = 5
)

// attachment is one `picket run` that watches its task.
type attachment struct {
	cmd      *cobra.Command
	s        *server
	w        *worker
	task     picket.Task
	line     *liveLine
	outputs  [2]tail
	shown    [2]io.Writer // where they are shown
	prompt   prompt
	restarts int
	said     saying
	pace     pace
	spending spending
	desktop  *desktop
}

// attach watches a task until it needs no process any more.
func attach(cmd *cobra.Command, s *server, task picket.Task, w *worker, d *desktop) error {
	a := &attachment{cmd: cmd, s: s, w: w, task: task, line: newLiveLine(cmd.ErrOrStderr()), desktop: d}
	defer d.wait()
	a.shown = [2]io.Writer{agentOutput(cmd.OutOrStdout()), agentOutput(cmd.ErrOrStderr())}
	a.outputs[0].path, a.outputs[1].path = filepath.Join(w.dir, "stdout"), filepath.Join(w.dir, "stderr")
	a.prompt = newPrompt(cmd.InOrStdin(), cmd.ErrOrStderr())
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	defer signal.Stop(signals)
	ctx, cancel := context.WithCancel(cmd.Context())
	defer cancel()
	changed := make(chan struct{}, 1)
	failed := make(chan error, 2)
	told := make(chan picket.Event)
	poke := func() {
		select {
		case changed <- struct{}{}:
		default: // one look at the task covers any number of changes
		}
	}
	go func() {
		failed <- s.followOrLook(ctx, "/api/v1/events?task="+segment(task.TaskID), "0", func(bool) { poke() },
			func(e picket.Event, _ jsontext.Value) error {
				select {
				case told <- e: // before a look can find that the task is over
				case <-ctx.Done():
				}
				poke()
				return nil
			})
	}()
	go func() { failed <- s.vigil(ctx, task.TaskID) }()
	a.say("%s submitted: %s", task.TaskID, clip(task.Title, 60))
	return a.loop(ctx, signals, changed, told, failed)
}

func (a *attachment) loop(ctx context.Context, signals <-chan os.Signal, changed <-chan struct{},
	told <-chan picket.Event, failed <-chan error) error {
	output, second := time.NewTicker(outputEvery), time.NewTicker(time.Second)
	defer output.Stop()
	defer second.Stop()
	for {
		select {
		case <-output.C:
			a.pass()
		case <-second.C:
			a.tick(ctx)
		case e := <-told:
			if text := a.pace.hear(e, time.Now()); text != "" {
				a.say("%s", text)
			}
			a.desktop.hear(e, a.task)
		case <-changed:
			if over, err := a.over(ctx); over {
				return err
			}
		case <-a.w.ended:
			if over, err := a.over(ctx); over {
				return err
			}
			if err := a.restart(); err != nil {
				return err
			}
		case text, open := <-a.prompt.lines:
			if !open {
				a.unanswered()
				continue
			}
			a.reply(text)
		case err := <-failed:
			if errors.Is(err, errTaskLost) {
				return a.lost()
			}
			return err
		case sig := <-signals:
			return a.leave(ctx, sig, signals)
		}
	}
}

// pass copies new output, with the live line out of the way.
func (a *attachment) pass() {
	for i, w := range a.shown {
		var fresh bytes.Buffer
		if n, err := a.outputs[i].copyTo(&fresh); n == 0 || err != nil {
			continue
		}
		a.line.clear()
		_, _ = w.Write(fresh.Bytes())
		a.line.output(fresh.Bytes())
	}
}

// over looks at the task, and ends the watch when there is nothing more to see.
func (a *attachment) over(ctx context.Context) (bool, error) {
	switch gone := a.look(ctx); {
	case gone:
		return true, a.lost()
	case settled(a.task):
		return true, a.finish()
	}
	return false, nil
}

// look reads the task anew and tells what has changed. It reports whether the
// task is gone.
func (a *attachment) look(ctx context.Context) (gone bool) {
	var t picket.Task
	if err := a.s.get(ctx, "/api/v1/tasks/"+segment(a.task.TaskID), &t, nil); err != nil {
		if errors.Is(err, picket.CodeUnavailable) && !a.said.away {
			a.said.away = true
			a.say("the server does not answer; the task goes on until its lease ends")
		}
		return isLost(err)
	}
	if a.said.away {
		a.said.away = false
		a.say("the server is back")
	}
	a.task = t
	if i := a.said.runs; i < len(t.Runs) {
		a.leased(t.Runs[i].RunID, t.Runs[i].Attempt, t.Runs[i].FencingToken) // before what it printed
	}
	a.pass()
	a.narrate()
	a.desktop.see(t)
	return false
}

// tick refreshes the live line.
func (a *attachment) tick(ctx context.Context) {
	a.explainWait(ctx)
	if !a.line.on || a.prompt.open {
		return
	}
	var page struct {
		Leases []picket.LiveLease `json:"leases"`
	}
	var left time.Duration
	if a.task.State == picket.TaskLeased && a.s.get(ctx, "/api/v1/leases", &page, nil) == nil {
		for _, l := range page.Leases {
			if l.TaskID == a.task.TaskID {
				left = time.Duration(l.LeaseTTLMs) * time.Millisecond
			}
		}
	}
	a.line.draw(a.task, a.running(), a.spending.text(a.task, time.Now()), left)
}

// running is how long the agent has been at work, "" when it is not.
func (a *attachment) running() string {
	if a.task.State != picket.TaskLeased || a.task.CurrentRun == nil {
		return ""
	}
	if a.pace.agent == "" { // there was no heartbeat yet
		a.pace.agent = cmp.Or(a.task.Role, filepath.Base(a.w.command[0]))
		if s := a.task.TimeoutSeconds; s != nil {
			a.pace.timeout = time.Duration(*s) * time.Second
		}
	}
	return a.pace.text(a.task.CurrentRun.RunID, time.Now())
}

func (a *attachment) say(format string, args ...any) {
	a.line.clear()
	w := a.cmd.ErrOrStderr()
	fmt.Fprintln(w, painter(w).dim("picket: ")+fmt.Sprintf(format, args...))
}

// restart starts an adapter that ended before its task did, so that a killed
// adapter costs one lease window and not the task.
func (a *attachment) restart() error {
	if a.restarts++; a.restarts > maxRestarts || a.w.refused() {
		return picket.Refuse(picket.CodeInternal,
			"See why in "+a.w.dir+". The task waits: picket task cancel "+a.task.TaskID,
			"the adapter has ended %d times: %s", a.restarts, a.w.failure())
	}
	a.say("the adapter has ended (%v); starting it again", a.w.err)
	time.Sleep(time.Duration(a.restarts) * 200 * time.Millisecond)
	return a.w.start(a.task.TaskID)
}

// finish waits for the last output, says how it ended and answers the exit
// code.
func (a *attachment) finish() error {
	select {
	case <-a.w.ended:
	case <-time.After(lastOutput):
	}
	a.pass()
	a.line.clear()
	code := a.verdict()
	if a.w.process.ProcessState != nil {
		a.w.forget()
	}
	if code == exitOK {
		return nil
	}
	return ended(code)
}

// lost ends the watch of a task that is gone. The adapter is asked to end, since
// no lease can come any more; an agent that still runs is ended by it.
func (a *attachment) lost() error {
	_ = a.w.process.Process.Signal(syscall.SIGTERM)
	select {
	case <-a.w.ended:
	case <-time.After(lastOutput):
	}
	a.pass()
	a.line.clear()
	return taskLost(a.task.TaskID, "picket run -- "+commandLine(a.w.command))
}

// leave is the first Ctrl-C: the task goes on, unless a second one follows.
func (a *attachment) leave(ctx context.Context, sig os.Signal, signals <-chan os.Signal) error {
	id := a.task.TaskID
	if sig == syscall.SIGINT {
		a.say("leaving %s running; Ctrl-C again cancels it", id)
		select {
		case <-signals:
			a.say("cancelling %s", id)
			a.desktop.tell = nil // who cancels knows
			a.s.cancel(ctx, id, "cancelled with Ctrl-C")
			if over, err := a.over(ctx); over {
				return err
			}
			return ended(exitInterrupted)
		case <-time.After(secondThoughts):
		}
	}
	a.pass()
	if a.prompt.open && a.task.Handoff != nil {
		a.prompt.close()
		next(a.cmd, answerCommand(*a.task.Handoff))
	}
	next(a.cmd, "picket task watch "+id, "picket task logs -f "+id, "picket task cancel "+id)
	return ended(exitInterrupted)
}
