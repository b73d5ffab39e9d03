package demo

import (
	"context"
	"fmt"
	"strings"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/cmd/picket/cli/exit"
	"github.com/picket-dev/picket/internal/lazyregexp"
)

// painterAgent tells its client what it does, asks, and ends. It is started again with the answer.
const painterAgent = `#!/bin/sh
if [ "$PICKET_FENCING_TOKEN" = 1 ]; then
  picket tool emit_status --message "I look at the shed." >/dev/null
  exec picket tool request_human_help --question "Which colour?"
fi
grep -q 'dark red' "$PICKET_TASK_FILE" && exec picket tool mark_complete --output "The shed is dark red."
exec picket tool mark_failed --reason "There was no answer."
`

const painterSettings = `
  painter:
    review: none
    a2a: {enabled: true, budget: 0.50, max_queue: 10}
    card: {name: Painters, description: They paint what you name.}
`

var clientChapter = chapter{
	title: "the client",
	lead: "A program of somebody else gives a task to a pool of agents by the A2A protocol. Its key opens this pool alone, and\n" +
		"shows it its own tasks alone.",
	prepare: func(st *demoEnv) ([]chapterStep, error) {
		st.configureAgent(painterSettings)
		script, err := st.script("painter.sh", painterAgent)
		c := &clientDemo{demoEnv: st, script: script}
		return []chapterStep{c.readCard, c.send, c.answer, c.lookElsewhere}, err
	},
}

// clientDemo is the play: a worker of the pool, and two clients with keys of their own.
type clientDemo struct {
	*demoEnv
	script string
	id     string
}

// readCard makes the keys of both clients, under names that the shell knows.
func (c *clientDemo) readCard(ctx context.Context) error {
	for _, name := range []string{"partner", "stranger"} {
		made, err := c.s.Keys.Create(ctx, picket.KeyRequest{Name: name, Scopes: []picket.Scope{picket.ScopeClient},
			Client: &picket.ClientLimits{Roles: []string{"painter"}}})
		if err != nil {
			return err
		}
		c.env = append(c.env, strings.ToUpper(name)+"="+made.Key.Reveal())
	}
	c.narrate("A partner has a client key, in $PARTNER. It reads the card of the pool:")
	text, err := c.runShell(ctx, exit.OK, "picket a2a card painter --token-env PARTNER")
	if err == nil && !(strings.Contains(text, "Painters") && strings.Contains(text, "/agents/painter/a2a")) {
		err = fmt.Errorf("the card does not name the pool and its address")
	}
	return err
}

var taskLine = lazyregexp.New(`(?m)^task (task_[0-9A-Z]+)$`)

// send starts a worker of the pool, and follows a task until its agent asks.
func (c *clientDemo) send(ctx context.Context) error {
	worker, err := c.start("adapter", "--as", "painter", "--agent-id", "brush", "--", c.script)
	if err != nil {
		return err
	}
	c.narrate("It sends a task, and follows what the agent does:")
	text, err := c.runShell(ctx, exit.Conflict,
		"picket a2a send painter 'Paint the shed.' --timeout 25s --token-env PARTNER")
	if err != nil {
		return fmt.Errorf("%w\n%s", err, worker.stderr())
	}
	found := taskLine().FindStringSubmatch(text)
	for _, part := range []string{"working", "I look at the shed.", "input-required", "Which colour?"} {
		if found == nil || !strings.Contains(text, part) {
			return fmt.Errorf("the client was not told %q", part)
		}
	}
	c.id = found[1]
	return nil
}

// answer answers the question as the client, and waits for the result.
func (c *clientDemo) answer(ctx context.Context) error {
	c.narrate("The agent has ended, and its question stands. The answer of the client starts the next run:")
	text, err := c.runShell(ctx, exit.OK,
		"picket a2a tell painter "+c.id+" 'dark red' --wait --timeout 25s --token-env PARTNER")
	if err != nil {
		return err
	}
	if !strings.Contains(text, "completed") || !strings.Contains(text, "The shed is dark red.") {
		return fmt.Errorf("the client has not got the result")
	}
	t, err := c.task(ctx, c.id)
	if err != nil {
		return err
	}
	if t.State != picket.TaskCompleted || t.FencingToken != 2 || t.Runs[1].AgentID != "brush" {
		return fmt.Errorf("the task is %s under fencing token %d", t.State, t.FencingToken)
	}
	c.narrate("It was an ordinary task: leased twice, under fencing tokens 1 and 2, with an envelope of %s.",
		t.BudgetEnvelope.USD.Dollars())
	return nil
}

// lookElsewhere is another client of the same pool, which finds no such task.
func (c *clientDemo) lookElsewhere(ctx context.Context) error {
	text, err := c.runShell(ctx, exit.NotFound, "picket a2a get painter "+c.id+" --token-env STRANGER")
	if err != nil {
		return err
	}
	if strings.Contains(text, "shed") {
		return fmt.Errorf("another client has read the task")
	}
	held, err := c.s.Leases.List(ctx)
	if err == nil && held.Total > 0 {
		err = fmt.Errorf("%s is leased, although the task of the client has ended", held.Leases[0].TaskID)
	}
	c.narrate("Another client of the pool does not find the task.")
	return err
}
