package demo

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/cmd/picket/cli"
	"github.com/picket-dev/picket/cmd/picket/cli/term"
)

// crashAgent does four steps and reports each. Its first attempt stops after two
// of them, to be killed; its second waits before the last.
const crashAgent = `#!/bin/sh
already=$(sed -n 's/.*"summary": *"\([0-9]\) of 4.*/\1/p' "$PICKET_LAST_REPORT" | head -n 1)
for step in 1 2 3 4; do
  [ "$step" -gt "${already:-0}" ] || continue
  if [ "$step" = 4 ]; then
    : >"$DEMO_DIR/third"
    while [ ! -e "$DEMO_DIR/fourth" ]; do sleep 0.05; done
  fi
  echo "step $step, attempt $PICKET_FENCING_TOKEN" >>"$DEMO_DIR/steps"
  picket tool report_progress --summary "$step of 4 steps are done" 2>"$DEMO_DIR/trouble" || exit
  while [ "$step.$PICKET_FENCING_TOKEN" = 2.1 ]; do sleep 1; done
done
exec picket tool mark_complete --output "four steps, none of them twice"
`

var crashChapter = chapter{
	title: "the crash",
	lead:  "Kill anything: the agent, its worker, the server. The task comes back and goes on from its last report.",
	prepare: func(st *demoEnv) ([]chapterStep, error) {
		c := &crashDemo{demoEnv: st}
		var err error
		c.script, err = st.script("crash.sh", crashAgent)
		return []chapterStep{c.begin, c.killTheWorker, c.resume, c.killTheServer, c.finish}, err
	},
}

// crashDemo is the play: one task, two workers, two servers.
type crashDemo struct {
	*demoEnv
	script string
	id     string
	first  *childProcess
}

func (c *crashDemo) startWorker() (*childProcess, error) {
	return c.start("adapter", "--env", "DEMO_DIR", "--", c.script)
}

func (c *crashDemo) begin(ctx context.Context) (err error) {
	t, err := c.s.Tasks.Create(ctx, picket.TaskSpec{Title: "four steps of work"})
	if err != nil {
		return err
	}
	c.id = t.TaskID
	if c.first, err = c.startWorker(); err != nil {
		return err
	}
	t, err = c.awaitTask(ctx, c.id, "the report of the second step", func(t picket.Task) bool {
		return t.LastReport != nil && t.LastReport.Summary == "2 of 4 steps are done"
	})
	if err != nil {
		return fmt.Errorf("%w\n%s", err, c.first.stderr())
	}
	c.narrate("Submitted %s. A worker holds it under fencing token %d. Its agent reported: %q.", c.id, t.FencingToken,
		t.LastReport.Summary)
	return nil
}

func (c *crashDemo) killTheWorker(ctx context.Context) error {
	tree := c.first.descendants()
	if len(tree) == 0 {
		return errors.New("the worker has no agent process")
	}
	if err := unix.Kill(c.first.pid(), unix.SIGKILL); err != nil {
		return err
	}
	killed := time.Now()
	err := PollUntil(ctx, func() (bool, error) {
		return !slices.ContainsFunc(append(tree, c.first.pid()), ProcessAlive), nil
	})
	if err != nil {
		return fmt.Errorf("not observed: the end of the killed worker's agent: %w", err)
	}
	c.narrate("SIGKILL: the worker is gone, without a word to anybody. %s later so were the processes of its agent: %v.",
		term.ShortDuration(time.Since(killed)), tree)
	return nil
}

func (c *crashDemo) resume(ctx context.Context) error {
	if _, err := c.startWorker(); err != nil {
		return err
	}
	t, err := c.awaitTask(ctx, c.id, "a report of the second attempt",
		func(t picket.Task) bool { return t.LastReport != nil && t.LastReport.FencingToken > 1 })
	if err != nil {
		return err
	}
	reports, err := c.s.Tasks.Reports(ctx, c.id) // by now there may be more than one
	if err != nil {
		return err
	}
	first := slices.IndexFunc(reports, func(r picket.Report) bool { return r.FencingToken > 1 })
	if first < 0 {
		return errors.New("the second attempt has not reported")
	}
	if reports[first].Summary != "3 of 4 steps are done" {
		return fmt.Errorf("the second attempt did not go on from the last report: its first is %q",
			reports[first].Summary)
	}
	if e := t.Runs[0].Exit; e == nil || t.FencingToken != 2 {
		return fmt.Errorf("expected the first run to be over and fence 2, got fence %d", t.FencingToken)
	}
	c.narrate("The next worker on this machine cleans up after the dead one and has the task at once, under token 2.")
	c.narrate("Its agent was given the last report. It did not start again: %q.", reports[first].Summary)
	if err := c.awaitText(ctx, "third", ""); err != nil {
		return fmt.Errorf("not observed: the end of the third step: %w", err)
	}
	return nil
}

// killTheServer needs a store that outlives the server.
func (c *crashDemo) killTheServer(ctx context.Context) error {
	if !strings.Contains(c.server.stderr(), "redis-server, appendonly") {
		c.narrate("There is no redis-server here, so all state is in the server's memory: it is left alone.")
		return c.createFile("fourth")
	}
	url := c.s.URL()
	if err := c.killServer(); err != nil {
		return err
	}
	c.narrate("SIGKILL: now the server. The agent goes on with its fourth step, and its report finds nobody.")
	if err := c.createFile("fourth"); err != nil {
		return err
	}
	if err := c.awaitText(ctx, "trouble", "trying again"); err != nil {
		return fmt.Errorf("not observed: an agent's report that finds no server: %w", err)
	}
	began := time.Now()
	again, err := c.serve(ctx, strings.TrimPrefix(url, "http://"))
	if err != nil {
		return err
	}
	if again != url {
		return fmt.Errorf("the server came back at %s, not at %s", again, url)
	}
	c.narrate("The server is started again on the same data and serves after %s. The report was repeated until it arrived.", term.ShortDuration(time.Since(began)))
	return nil
}

func (c *crashDemo) finish(ctx context.Context) error {
	t, err := c.awaitTask(ctx, c.id, "the result in review",
		func(t picket.Task) bool { return t.State == picket.TaskReview })
	if err != nil {
		return err
	}
	steps, err := os.ReadFile(c.path("steps"))
	if err != nil {
		return err
	}
	const want = "step 1, attempt 1\nstep 2, attempt 1\nstep 3, attempt 2\nstep 4, attempt 2\n"
	if string(steps) != want || t.FencingToken != 2 || cli.OutputText(t.Output) != "four steps, none of them twice" {
		return fmt.Errorf("expected each step once, got fence %d and\n%s", t.FencingToken, steps)
	}
	c.narrate("The task is in review: two attempts, four steps, none of them done twice.")
	return nil
}
