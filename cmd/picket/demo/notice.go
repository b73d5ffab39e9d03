package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/cmd/picket/cli"
	"github.com/picket-dev/picket/cmd/picket/cli/exit"
	"github.com/picket-dev/picket/internal/lazyregexp"
)

// noticeAgent reports, asks a person for money when it may, and ends. The run after the top-up
// hands its result in.
const noticeAgent = `#!/bin/sh
if [ "$PICKET_FENCING_TOKEN" -gt 1 ]; then
  exec picket tool mark_complete --output "all four vendors are compared"
fi
picket tool report_progress --summary "two of four vendors are compared" || exit
while [ ! -e "$DEMO_DIR/ask" ]; do sleep 0.05; done
exec picket tool request_human_help --kind budget --question "The two vendors that are left cost about a dollar. May I go on?"
`

var noticeChapter = chapter{
	title: "the notice",
	lead: "Nobody watches agents all night. picket ps shows what runs now. What needs a person is posted to a chat, together\n" +
		"with the command that decides it.",
	prepare: func(st *demoEnv) ([]chapterStep, error) {
		chat, err := openChat()
		if err != nil {
			return nil, err
		}
		st.cleanups = append(st.cleanups, chat.close)
		st.env = append(st.env, "PICKET_NOTIFY_ALLOW="+chat.address)
		n := &noticeDemo{demoEnv: st, chat: chat}
		n.script, err = st.script("notice.sh", noticeAgent)
		return []chapterStep{n.connectChat, n.work, n.ask, n.topUp, n.finish}, err
	},
}

// chat takes the notices, as the incoming webhook of a chat does.
type chat struct {
	address  string
	messages chan string
	server   *http.Server
}

func openChat() (*chat, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	c := &chat{address: l.Addr().String(), messages: make(chan string, 100)}
	c.server = &http.Server{ReadHeaderTimeout: 10 * time.Second, Handler: http.HandlerFunc(c.take)}
	go func() { _ = c.server.Serve(l) }()
	return c, nil
}

// take keeps the text of a message. A message that finds no room is refused and posted again later.
func (c *chat) take(w http.ResponseWriter, r *http.Request) {
	var message struct {
		Text string `json:"text"`
	}
	if err := json.UnmarshalRead(io.LimitReader(r.Body, 1<<20), &message); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	select {
	case c.messages <- message.Text:
	default:
		w.WriteHeader(http.StatusServiceUnavailable)
	}
}

func (c *chat) close() { _ = c.server.Close() }

// awaitMessage returns the first message in which all words are.
func (c *chat) awaitMessage(ctx context.Context, words ...string) (string, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, demoStepTimeout,
		fmt.Errorf("not observed: a notice with %q within %s", words, demoStepTimeout))
	defer cancel()
	for {
		select {
		case text := <-c.messages:
			if containsAll(text, words) {
				return text, nil
			}
		case <-ctx.Done():
			return "", context.Cause(ctx)
		}
	}
}

func containsAll(text string, words []string) bool {
	for _, w := range words {
		if !strings.Contains(text, w) {
			return false
		}
	}
	return true
}

// noticeDemo is the play: one agent that runs out of money, and a chat.
type noticeDemo struct {
	*demoEnv
	chat    *chat
	script  string
	id      string
	command string // what the notice says decides
}

func (n *noticeDemo) connectChat(ctx context.Context) error {
	n.narrate("A chat is connected. Its incoming webhook is a server of this demo.")
	_, err := n.runShell(ctx, exit.OK,
		"picket webhook create http://"+n.chat.address+"/agents --format slack --name '#agents' -o name")
	return err
}

func (n *noticeDemo) work(ctx context.Context) error {
	t, err := n.s.Tasks.Create(ctx, picket.TaskSpec{
		Title: "compare four vendors", Labels: map[string]string{"team": "procurement"}})
	if err != nil {
		return err
	}
	n.id = t.TaskID
	worker, err := n.start("adapter", "--agent-id", "buyer", "--env", "DEMO_DIR", "--", n.script)
	if err != nil {
		return err
	}
	if _, err := n.awaitTask(ctx, n.id, "the agent's report",
		func(t picket.Task) bool { return t.LastReport != nil }); err != nil {
		return fmt.Errorf("%w\n%s", err, worker.stderr())
	}
	n.narrate("Submitted %s. What runs now:", n.id)
	text, err := n.runShell(ctx, exit.OK, "picket ps")
	if err == nil && !containsAll(text, []string{"compare four vendors", "buyer", "two of four vendors are compared"}) {
		err = errors.New("picket ps does not show the run with its agent and its last report")
	}
	return err
}

// The commands of the notices that add money, and that approve.
var (
	topUpCommand    = lazyregexp.New("`(picket budget top-up [^`]+)`")
	approvalCommand = lazyregexp.New("`(picket review approve [^`]+)`")
)

func (n *noticeDemo) ask(ctx context.Context) error {
	if err := n.createFile("ask"); err != nil {
		return err
	}
	message, err := n.chat.awaitMessage(ctx, n.id, "May I go on?")
	if err != nil {
		return err
	}
	n.narrate("The agent asks for money, and ends. The chat gets:")
	n.printOutput(message)
	found := topUpCommand().FindStringSubmatch(message)
	if found == nil {
		return errors.New("not observed: the command in the notice that tops up")
	}
	n.command = found[1]
	return nil
}

func (n *noticeDemo) topUp(ctx context.Context) error {
	n.narrate("The command of the notice is run as it stands. It adds the money and answers the question in one step:")
	text, err := n.runShell(ctx, exit.OK, n.command)
	if err != nil {
		return err
	}
	t, err := n.task(ctx, n.id)
	if err == nil && (t.State == picket.TaskHandoff || t.BudgetEnvelope.USD <= 1_000_000_000) {
		err = fmt.Errorf("the task is %s with an envelope of %s after the top-up: %s", t.State,
			cli.Dollars(t.BudgetEnvelope.USD), text)
	}
	return err
}

func (n *noticeDemo) finish(ctx context.Context) error {
	t, err := n.awaitTask(ctx, n.id, "the result in review",
		func(t picket.Task) bool { return t.State == picket.TaskReview })
	if err != nil {
		return err
	}
	message, err := n.chat.awaitMessage(ctx, n.id, "picket review")
	if err != nil {
		return err
	}
	n.narrate("The next run went on and handed its result in: %q. The chat gets:", cli.OutputText(t.Output))
	n.printOutput(message)
	found := approvalCommand().FindStringSubmatch(message)
	if found == nil {
		return errors.New("not observed: the command in the notice that approves")
	}
	if err := n.awaitExit(ctx, n.id); err != nil {
		return err
	}
	if _, err := n.runShell(ctx, exit.OK, found[1]); err != nil {
		return err
	}
	t, err = n.task(ctx, n.id)
	if err == nil && t.State != picket.TaskCompleted {
		err = fmt.Errorf("the task is %s after it was approved", t.State)
	}
	return err
}
