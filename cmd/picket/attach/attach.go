package attach

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

	"github.com/spf13/cobra"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/client"
	"github.com/picket-dev/picket/cmd/picket/cli"
	"github.com/picket-dev/picket/cmd/picket/cli/exit"
	"github.com/picket-dev/picket/cmd/picket/cli/term"
)

const (
	outputEvery     = 50 * time.Millisecond
	cancelWindow    = 1500 * time.Millisecond // between the first Ctrl-C and leaving
	adapterExitWait = 15 * time.Second        // for the adapter to end after its task
	maxRestarts     = 5
)

// attachment is one `picket run` that watches its task.
type attachment struct {
	cmd      *cobra.Command
	s        *cli.Connection
	adapter  *adapterProcess
	task     picket.Task
	status   *statusLine
	outputs  [2]tail
	writers  [2]io.Writer // where they are shown
	prompt   answerPrompt
	restarts int
	told     announced
	clock    runClock
	spending spending
	desktop  *desktopNotifier
}

// attach watches a task until it needs no process any more.
func attach(cmd *cobra.Command, s *cli.Connection, task picket.Task, w *adapterProcess, d *desktopNotifier) error {
	a := &attachment{cmd: cmd, s: s, adapter: w, task: task, status: newStatusLine(cmd.ErrOrStderr()), desktop: d}
	defer d.wait()
	a.writers = [2]io.Writer{term.SafeOutput(cmd.OutOrStdout()), term.SafeOutput(cmd.ErrOrStderr())}
	a.outputs[0].path, a.outputs[1].path = filepath.Join(w.dir, "stdout"), filepath.Join(w.dir, "stderr")
	a.prompt = newAnswerPrompt(cmd.InOrStdin(), cmd.ErrOrStderr())
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
		failed <- s.FollowDespiteLimit(ctx, client.Follower{
			Query: picket.EventQuery{TaskID: task.TaskID},
			After: "0",
			Link:  func(bool) { poke() },
			Event: func(e picket.Event, _ []byte) error {
				select {
				case told <- e: // before a look can find that the task is over
				case <-ctx.Done():
				}
				poke()
				return nil
			},
		})
	}()
	go func() { failed <- s.AwaitTaskLost(ctx, task.TaskID) }()
	a.say("%s submitted: %s", task.TaskID, term.Clip(task.Title, 60))
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
			a.copyOutput()
		case <-second.C:
			a.drawStatus(ctx)
		case e := <-told:
			if text := a.clock.handleEvent(e, time.Now()); text != "" {
				a.say("%s", text)
			}
			a.desktop.handleEvent(e, a.task)
		case <-changed:
			if over, err := a.checkAtRest(ctx); over {
				return err
			}
		case <-a.adapter.ended:
			if over, err := a.checkAtRest(ctx); over {
				return err
			}
			if err := a.restart(); err != nil {
				return err
			}
		case text, open := <-a.prompt.lines:
			if !open {
				a.inputClosed()
				continue
			}
			a.sendAnswer(text)
		case err := <-failed:
			if errors.Is(err, cli.ErrTaskLost) {
				return a.finishLost()
			}
			return err
		case sig := <-signals:
			return a.detach(ctx, sig, signals)
		}
	}
}

// copyOutput copies new output, with the live line out of the way.
func (a *attachment) copyOutput() {
	for i, w := range a.writers {
		var fresh bytes.Buffer
		if n, err := a.outputs[i].copyTo(&fresh); n == 0 || err != nil {
			continue
		}
		a.status.clear()
		_, _ = w.Write(fresh.Bytes())
		a.status.noteOutput(fresh.Bytes())
	}
}

// checkAtRest looks at the task, and ends the watch when there is nothing more to see.
func (a *attachment) checkAtRest(ctx context.Context) (bool, error) {
	switch gone := a.refresh(ctx); {
	case gone:
		return true, a.finishLost()
	case atRest(a.task):
		return true, a.finish()
	}
	return false, nil
}

// refresh reads the task again and tells what has changed. It reports whether the
// task is gone.
func (a *attachment) refresh(ctx context.Context) (gone bool) {
	t, err := a.s.Tasks.Get(ctx, a.task.TaskID)
	if err != nil {
		if errors.Is(err, picket.CodeUnavailable) && !a.told.serverAway {
			a.told.serverAway = true
			a.say("the server does not answer; the task goes on until its lease ends")
		}
		return cli.IsTaskMissing(err)
	}
	if a.told.serverAway {
		a.told.serverAway = false
		a.say("the server is back")
	}
	a.task = t
	if i := a.told.runs; i < len(t.Runs) {
		a.announceLease(t.Runs[i].RunID, t.Runs[i].Attempt, t.Runs[i].FencingToken) // before what it printed
	}
	a.copyOutput()
	a.narrate()
	a.desktop.taskChanged(t)
	return false
}

// drawStatus refreshes the live line.
func (a *attachment) drawStatus(ctx context.Context) {
	a.explainWait(ctx)
	if !a.status.terminal || a.prompt.open {
		return
	}
	var left time.Duration
	if a.task.State == picket.TaskLeased {
		held, _ := a.s.Leases.Find(ctx, picket.LeaseQuery{TaskID: a.task.TaskID})
		for _, l := range held.Leases {
			left = time.Duration(l.LeaseTTLMs) * time.Millisecond
		}
	}
	a.status.draw(a.task, a.running(), a.spending.text(a.task, time.Now()), left)
}

// running is how long the agent has been at work, "" when it is not.
func (a *attachment) running() string {
	if a.task.State != picket.TaskLeased || a.task.CurrentRun == nil {
		return ""
	}
	if a.clock.agent == "" { // there was no heartbeat yet
		a.clock.agent = cmp.Or(a.task.Role, filepath.Base(a.adapter.command[0]))
		if s := a.task.TimeoutSeconds; s != nil {
			a.clock.timeout = time.Duration(*s) * time.Second
		}
	}
	return a.clock.text(a.task.CurrentRun.RunID, time.Now())
}

func (a *attachment) say(format string, args ...any) {
	a.status.clear()
	w := a.cmd.ErrOrStderr()
	fmt.Fprintln(w, term.Painter(w).Dim("picket: ")+fmt.Sprintf(format, args...))
}

// restart starts an adapter that ended before its task did, so that a killed
// adapter costs one lease window and not the task.
func (a *attachment) restart() error {
	if a.restarts++; a.restarts > maxRestarts || a.adapter.refusedToStart() {
		return picket.Refuse(picket.CodeInternal,
			"See why in "+a.adapter.dir+". The task waits: picket task cancel "+a.task.TaskID,
			"the adapter has ended %d times: %s", a.restarts, a.adapter.failure())
	}
	a.say("the adapter has ended (%v); starting it again", a.adapter.err)
	time.Sleep(time.Duration(a.restarts) * 200 * time.Millisecond)
	return a.adapter.start(a.task.TaskID)
}

// finish waits for the last output, says how it ended and answers the exit
// code.
func (a *attachment) finish() error {
	select {
	case <-a.adapter.ended:
	case <-time.After(adapterExitWait):
	}
	a.copyOutput()
	a.status.clear()
	code := a.reportOutcome()
	if a.adapter.process.ProcessState != nil {
		a.adapter.removeFiles()
	}
	if code == exit.OK {
		return nil
	}
	return exit.Status(code)
}

// finishLost ends the watch of a task that is gone. The adapter is asked to end, since
// no lease can come any more; an agent that still runs is ended by it.
func (a *attachment) finishLost() error {
	_ = a.adapter.process.Process.Signal(syscall.SIGTERM)
	select {
	case <-a.adapter.ended:
	case <-time.After(adapterExitWait):
	}
	a.copyOutput()
	a.status.clear()
	return cli.TaskLostError(a.task.TaskID, "picket run -- "+term.ShellJoin(a.adapter.command))
}

// detach is the first Ctrl-C: the task goes on, unless a second one follows.
func (a *attachment) detach(ctx context.Context, sig os.Signal, signals <-chan os.Signal) error {
	id := a.task.TaskID
	if sig == syscall.SIGINT {
		a.say("leaving %s running; Ctrl-C again cancels it", id)
		select {
		case <-signals:
			a.say("cancelling %s", id)
			a.desktop.show = nil // the person who cancelled knows it
			cancelTask(ctx, a.s, id, "cancelled with Ctrl-C")
			if over, err := a.checkAtRest(ctx); over {
				return err
			}
			return exit.Status(exit.Interrupted)
		case <-time.After(cancelWindow):
		}
	}
	a.copyOutput()
	if a.prompt.open && a.task.Handoff != nil {
		a.prompt.close()
		cli.PrintNext(a.cmd, cli.AnswerCommand(*a.task.Handoff))
	}
	cli.PrintNext(a.cmd, "picket task watch "+id, "picket task logs -f "+id, "picket task cancel "+id)
	return exit.Status(exit.Interrupted)
}
