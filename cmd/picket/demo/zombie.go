package demo

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"golang.org/x/sys/unix"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/cmd/picket/cli"
	"github.com/picket-dev/picket/cmd/picket/cli/exit"
	"github.com/picket-dev/picket/cmd/picket/cli/term"
)

// zombieAgent is what both workers run. The first attempt reports half of the
// work and is then overtaken; the second goes on from that report. It speaks
// with Picket through `picket tool` alone, as any script would.
const zombieAgent = `#!/bin/sh
if grep -q '"summary"' "$PICKET_LAST_REPORT"; then
  picket tool report_progress --summary "went on from the last report" || exit
  while [ ! -e "$DEMO_DIR/finish" ]; do sleep 0.05; done
  exec picket tool mark_complete --output "done by attempt 2"
fi
picket tool report_progress --summary "half of the work is done" || exit
while [ ! -e "$DEMO_DIR/wake" ]; do sleep 0.05; done
picket tool report_progress --summary "nothing happened, I go on" >"$DEMO_DIR/answer" 2>&1
echo $? >"$DEMO_DIR/code.new"
mv "$DEMO_DIR/code.new" "$DEMO_DIR/code"
while :; do sleep 1; done
`

const zombieWindow = 4 // seconds; short, so that the demo is, and long enough for a busy machine

var zombieChapter = chapter{
	title: "the zombie",
	lead:  "A laptop is closed in the middle of its task, and opened again when somebody else has the task.",
	prepare: func(st *demoEnv) ([]chapterStep, error) {
		z := &zombieDemo{demoEnv: st}
		var err error
		z.script, err = st.script("zombie.sh", zombieAgent)
		return []chapterStep{z.begin, z.closeTheLaptop, z.takeOver, z.wakeTheAgent, z.wakeTheAdapter, z.finish}, err
	},
}

// zombieDemo is the play: two workers and one task.
type zombieDemo struct {
	*demoEnv
	script string
	id     string
	first  *childProcess
	agent  []int // the first worker's agent and its children
	shims  []int // what would end them at their deadline
	closed time.Time
}

func (z *zombieDemo) startWorker(name string) (*childProcess, error) {
	return z.start("adapter", "--agent-id", name, "--env", "DEMO_DIR", "--", z.script)
}

func (z *zombieDemo) begin(ctx context.Context) (err error) {
	window := zombieWindow
	spec := picket.TaskSpec{Title: "a long piece of work", LeaseWindowSeconds: &window}
	t, err := z.s.Tasks.Create(ctx, spec)
	if err != nil {
		return err
	}
	z.id = t.TaskID
	z.narrate("Submitted %s. Its lease lasts %d s and is renewed by the adapter.", z.id, window)
	if z.first, err = z.startWorker("laptop"); err != nil {
		return err
	}
	t, err = z.awaitTask(ctx, z.id, "the first worker's report",
		func(t picket.Task) bool { return t.LastReport != nil })
	if err != nil {
		return fmt.Errorf("%w\n%s", err, z.first.stderr())
	}
	if t.FencingToken != 1 || t.CurrentRun == nil || t.CurrentRun.AgentID != "laptop" {
		return fmt.Errorf("expected laptop to hold fence 1, got fence %d", t.FencingToken)
	}
	z.narrate("Worker laptop holds it under fencing token 1. Its agent reported: %q.", t.LastReport.Summary)
	return nil
}

func (z *zombieDemo) closeTheLaptop(ctx context.Context) error {
	tree, err := z.first.freeze(ctx)
	if err != nil {
		return fmt.Errorf("not observed: all processes of the worker stopped: %w", err)
	}
	for _, p := range tree {
		if isShim(p) {
			z.shims = append(z.shims, p)
		} else {
			z.agent = append(z.agent, p)
		}
	}
	if len(z.agent) == 0 {
		return errors.New("the first worker has no agent process")
	}
	z.closed = time.Now()
	z.narrate("SIGSTOP: the laptop is closed. Adapter, shim and agent processes %v stand still; nobody renews.",
		append([]int{z.first.pid()}, tree...))
	return nil
}

func (z *zombieDemo) takeOver(ctx context.Context) error {
	if _, err := z.startWorker("desktop"); err != nil {
		return err
	}
	z.narrate("Worker desktop starts and waits for work. As long as the task is leased it gets nothing.")
	t, err := z.awaitTask(ctx, z.id, "a second lease",
		func(t picket.Task) bool { return t.FencingToken > 1 && t.CurrentRun != nil })
	if err != nil {
		return err
	}
	if t.FencingToken != 2 || t.CurrentRun.AgentID != "desktop" {
		return fmt.Errorf("expected desktop to hold fence 2, got %s with fence %d", t.CurrentRun.AgentID,
			t.FencingToken)
	}
	if e := t.Runs[0].Exit; e == nil || e.Class != picket.ExitLeaseExpired {
		return errors.New("the first run did not end as lease_expired")
	}
	z.narrate("After %.1f s the lease ran out and desktop took over at once: fencing token 2.", time.Since(z.closed).
		Seconds())
	if t, err = z.awaitTask(ctx, z.id, "the second worker's report",
		func(t picket.Task) bool { return t.LastReport != nil && t.LastReport.FencingToken == 2 }); err != nil {
		return err
	}
	z.narrate("Its agent was given the last report and says: %q.", t.LastReport.Summary)
	if !allStopped(slices.Concat([]int{z.first.pid()}, z.shims, z.agent)...) {
		return errors.New("the first worker did not stay frozen")
	}
	return nil
}

func (z *zombieDemo) wakeTheAgent(ctx context.Context) error {
	if err := z.createFile("wake"); err != nil {
		return err
	}
	z.narrate("SIGCONT: the first agent wakes, before its adapter. It noticed nothing and writes on.")
	for _, p := range z.agent {
		if err := unix.Kill(p, unix.SIGCONT); err != nil && ProcessAlive(p) {
			return err
		}
	}
	var code []byte
	err := PollUntil(ctx, func() (bool, error) {
		code, _ = os.ReadFile(z.path("code"))
		return len(code) > 0, nil
	})
	if err != nil {
		return fmt.Errorf("not observed: the answer to the first agent's write: %w", err)
	}
	answer, err := os.ReadFile(z.path("answer"))
	if err != nil {
		return err
	}
	if strings.TrimSpace(string(code)) != fmt.Sprint(exit.Conflict) ||
		!strings.Contains(string(answer), string(picket.CodeStaleFence)) {
		return fmt.Errorf("the stale write was not refused as stale_fence: exit %s: %s",
			strings.TrimSpace(string(code)), answer)
	}
	z.narrate("Refused, HTTP %d, exit code %d. What the agent was told:", picket.CodeStaleFence.Status(), exit.Conflict)
	z.printOutput(strings.TrimSpace(string(answer)))
	return z.checkLog(ctx)
}

// checkLog looks at what the log and the reports say about the refusal.
func (z *zombieDemo) checkLog(ctx context.Context) error {
	log, err := z.s.Events.List(ctx, picket.EventQuery{Types: []string{picket.EventWriteRefused}, TaskID: z.id})
	if err != nil {
		return err
	}
	refused := false
	for _, e := range log.Events {
		var data struct {
			Code      picket.Code `json:"code"`
			Presented int64       `json:"presented"`
			Current   int64       `json:"current"`
		}
		if json.Unmarshal(e.Data, &data) == nil &&
			data.Code == picket.CodeStaleFence && data.Presented == 1 && data.Current == 2 {
			refused = true
		}
	}
	if !refused {
		return errors.New("not observed: the event write.refused with code stale_fence, 1 presented, 2 current")
	}
	reports, err := z.s.Tasks.Reports(ctx, z.id)
	if err != nil {
		return err
	}
	if n := len(reports); n != 2 {
		return fmt.Errorf("expected two reports, found %d: the stale one was let in", n)
	}
	z.narrate("The log has it (write.refused, 1 presented, 2 current), and no trace of it is in the task.")
	return nil
}

func (z *zombieDemo) wakeTheAdapter(ctx context.Context) error {
	for _, p := range append([]int{z.first.pid()}, z.shims...) {
		if err := unix.Kill(p, unix.SIGCONT); err != nil {
			return err
		}
	}
	woken := time.Now()
	err := PollUntil(ctx, func() (bool, error) {
		for _, p := range append(z.first.descendants(), z.agent...) {
			if ProcessAlive(p) {
				return false, nil
			}
		}
		return true, nil
	})
	if err != nil {
		return fmt.Errorf("not observed: the end of the first agent: %w", err)
	}
	z.narrate("SIGCONT: its adapter wakes, sees that the lease is over, and %s later the old agent is gone.",
		term.ShortDuration(time.Since(woken)))
	return nil
}

func (z *zombieDemo) finish(ctx context.Context) error {
	if err := z.createFile("finish"); err != nil {
		return err
	}
	t, err := z.awaitTask(ctx, z.id, "the result in review",
		func(t picket.Task) bool { return t.State == picket.TaskReview })
	if err != nil {
		return err
	}
	if t.FencingToken != 2 || cli.OutputText(t.Output) != "done by attempt 2" {
		return fmt.Errorf("unexpected result: fence %d, output %s", t.FencingToken, t.Output)
	}
	z.narrate("The second agent handed in its result: the task is in review, written under token 2 alone.")
	return nil
}
