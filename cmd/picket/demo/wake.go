package demo

import (
	"context"
	"fmt"
	"strings"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/cmd/picket/cli"
	"github.com/picket-dev/picket/cmd/picket/cli/exit"
)

// wakeAgent is two things. With a lease it does the task. Without one it is a session: it reads a line of JSON for
// each prompt, and answers a wake by asking for a task.
const wakeAgent = `#!/bin/sh
if [ -n "$PICKET_LEASE_TOKEN" ]; then
  exec picket tool mark_complete --output "12 invoices are sorted"
fi
value() { printf '%s' "$line" | sed 's/.*"'"$1"'":"\([^"]*\)".*/\1/'; }
while IFS= read -r line; do
  id=$(value promptId)
  PICKET_SESSION_CAPABILITY=$(value capability)
  PICKET_PROXY_URL=$(value contextUrl | sed 's,/agent/context$,,')
  export PICKET_SESSION_CAPABILITY PICKET_PROXY_URL
  if picket tool read_messages | grep -q 'invoices have come' && picket task next >/dev/null; then
    answer='The invoices have come, and I have asked for the task.'
  else
    answer='There is nothing to do.'
  fi
  printf '{"type":"answer","promptId":"%s","text":"%s"}\n' "$id" "$answer"
done
`

const wakeSettings = `
  clerk:
    session: {max: 1, only: true}
    launch: {command: [%q]}
`

var wakeChapter = chapter{
	title: "the wake",
	lead: "An idle agent has a conversation, and no task. Picket wakes it with a prompt, within the bounds of its policy. A wake\n" +
		"gives no task: the agent asks for one, and is started again under a lease.",
	prepare: func(st *demoEnv) ([]chapterStep, error) {
		w := &wakeDemo{demoEnv: st}
		script, err := st.script("wake.sh", wakeAgent)
		if err != nil {
			return nil, err
		}
		st.configureAgent(wakeSettings, script)
		return []chapterStep{w.keepSession, w.queue, w.wake, w.work, w.wakeAgain}, nil
	},
}

// wakeDemo is the play: a worker with one session, which takes a task only if the session asks for one.
type wakeDemo struct {
	*demoEnv
	worker  *childProcess
	session string
	id      string
}

// keepSession starts the worker, and gives its agent a wake policy.
func (w *wakeDemo) keepSession(ctx context.Context) (err error) {
	if w.worker, err = w.start("adapter", "--as", "clerk", "--agent-id", "clerk"); err != nil {
		return err
	}
	if err := w.awaitIdle(ctx); err != nil {
		return fmt.Errorf("%w\n%s", err, w.worker.stderr())
	}
	_, err = w.s.Policies.Write(ctx, "clerk",
		picket.PolicyWrite{Body: "---\nversion: 1\n---\nTake a task if your messages ask for it.\n"})
	if err != nil {
		return err
	}
	w.narrate("A worker of clerk keeps one session. It is idle, and takes a task only if the session asks for one.")
	return nil
}

// awaitIdle waits until the session can be woken.
func (w *wakeDemo) awaitIdle(ctx context.Context) error {
	err := PollUntil(ctx, func() (bool, error) {
		page, err := w.s.Sessions.List(ctx, picket.AgentSessionQuery{})
		if err != nil || len(page.Sessions) != 1 {
			return false, err
		}
		w.session = page.Sessions[0].SessionID
		return page.Sessions[0].Health.State == picket.SessionIdle, nil
	})
	if err != nil {
		return fmt.Errorf("not observed: an idle session: %w", err)
	}
	return nil
}

// queue queues a task and sends a message. Neither starts anything.
func (w *wakeDemo) queue(ctx context.Context) error {
	t, err := w.s.Tasks.Create(ctx, picket.TaskSpec{Title: "sort the invoices", Role: "clerk",
		Review: picket.ReviewByNone})
	if err != nil {
		return err
	}
	w.id = t.TaskID
	w.narrate("Submitted %s for clerk, and a message to the agent:", w.id)
	if _, err := w.runShell(ctx, exit.OK, `picket agent tell clerk "The invoices have come."`); err != nil {
		return err
	}
	if t, err = w.task(ctx, w.id); err != nil {
		return err
	}
	if t.State != picket.TaskQueued {
		return fmt.Errorf("expected the task to wait for a request, it is %s", t.State)
	}
	return nil
}

// wake waits until a wake is allowed. After an earlier chapter has killed the server, the directory of policies has a
// new owner only when the lock of the dead one has run out, and then the session has to be reported again.
func (w *wakeDemo) wake(ctx context.Context) error {
	reason := picket.WakeReason("")
	for range 3 { // the lock lasts for 15 seconds, and the next report comes within 30
		err := PollUntil(ctx, func() (bool, error) {
			d, err := w.s.Policies.Wake(ctx, "clerk", picket.WakeRequest{DryRun: true})
			reason = d.Reason
			return reason == picket.WakeReasonSent, err
		})
		if err == nil {
			break
		}
	}
	if reason != picket.WakeReasonSent {
		return fmt.Errorf("not observed: a session that may be woken, but %s", reason)
	}
	text, err := w.runShell(ctx, exit.OK, "picket agent heartbeat wake clerk")
	if err != nil {
		return err
	}
	if !strings.Contains(text, "sent: wake_sent") {
		return fmt.Errorf("not observed: a wake that was sent")
	}
	return nil
}

// work waits for the end of the task, and holds the order of the log against what is promised.
func (w *wakeDemo) work(ctx context.Context) error {
	t, err := w.awaitTask(ctx, w.id, "the task's end",
		func(t picket.Task) bool { return t.State == picket.TaskCompleted })
	if err != nil {
		return fmt.Errorf("%w\n%s", err, w.worker.stderr())
	}
	page, err := w.s.Sessions.Prompts(ctx, w.session, 0, 0)
	if err != nil {
		return err
	}
	if len(page.Prompts) != 1 {
		return fmt.Errorf("expected one prompt, the session has %d", len(page.Prompts))
	}
	p := page.Prompts[0]
	if !p.Wake || !p.NextTask || p.TaskID != w.id || t.FencingToken != 1 || t.Runs[0].AgentID != "clerk" {
		return fmt.Errorf("not observed: the task of the woken session: %+v", p)
	}
	if p.EndedAt == nil || t.Runs[0].StartedAt < *p.EndedAt {
		return fmt.Errorf("the run began before the prompt had ended")
	}
	w.narrate("The agent read its message, called next_task, and answered: %q", strings.TrimSpace(p.Answer))
	w.narrate("Then the adapter leased the task, and started it again under fencing token 1. It has done the task: %q.",
		cli.OutputText(t.Output))
	return nil
}

// wakeAgain wakes the session again at once.
func (w *wakeDemo) wakeAgain(ctx context.Context) error {
	if err := w.awaitIdle(ctx); err != nil {
		return err
	}
	text, err := w.runShell(ctx, exit.OK, "picket agent heartbeat wake clerk")
	if err != nil {
		return err
	}
	if !strings.Contains(text, "rate_limited: cooldown_active") {
		return fmt.Errorf("not observed: a wake that is refused because of the cooldown")
	}
	w.narrate("A second wake is too early. It was not sent, and the answer says why.")
	return nil
}
