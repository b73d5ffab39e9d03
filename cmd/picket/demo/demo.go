package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os/signal"
	"runtime"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/picket-dev/picket/cmd/picket/cli"
	"github.com/picket-dev/picket/cmd/picket/cli/exit"
	"github.com/picket-dev/picket/cmd/picket/cli/term"
)

// New is `picket demo`: it shows what Picket does, with real processes.
func New() *cobra.Command {
	return cli.CommandGroup("demo", "Show what Picket does, offline, with real processes",
		newDemoAll(), newDemoCrash(), newDemoZombie(), newDemoBudget(), newDemoHandoff(), newDemoNotice(),
		newDemoWake(), newDemoClient())
}

func newDemoAll() *cobra.Command {
	return newDemoCommand("all", "All scenes: work, crash, zombie, budget, hand-off, notice, wake, client, review, console",
		"Show what Picket is for: work and its review, a worker that is killed, a frozen worker that wakes up, an agent that\n"+
			"runs out of money, an agent that asks a person, a notice in a chat, an idle agent that is woken, a client of an endpoint,\n"+
			"and decisions.",
		workChapter, crashChapter, zombieChapter, budgetChapter, handoffChapter, noticeChapter, wakeChapter,
		clientChapter, reviewChapter, consoleChapter)
}

func newDemoCrash() *cobra.Command {
	return newDemoCommand("crash", "A worker is killed; the next one continues from the last report",
		"A worker is killed with SIGKILL in the middle of its task, and its agent with it. The next one continues from the\n"+
			"last report. Then the server is killed, and the agent that works meanwhile does not notice.",
		crashChapter)
}

func newDemoZombie() *cobra.Command {
	return newDemoCommand("zombie", "A frozen worker wakes up after its task was given to another",
		"A worker and its agent are frozen with SIGSTOP, like a closed laptop, until their lease has run out.\n"+
			"A second worker takes the task over. Then the first agent wakes and writes, and is refused.",
		zombieChapter)
}

func newDemoBudget() *cobra.Command {
	return newDemoCommand("budget",
		"Ten calls of $0.30 at once on $1.00: three are made, seven are refused before they leave",
		"An agent with $1.00 makes ten paid calls of $0.30 at once. Three reach the API, and seven are refused before anything is sent.\n"+
			"The agent waits until the command that a refusal printed is run, and then continues. No call is paid for twice.",
		budgetChapter)
}

func newDemoHandoff() *cobra.Command {
	return newDemoCommand("handoff", "An agent asks a person; a person decides about its result",
		"An agent asks a question and ends. While its task waits, the worker does other work. The answer starts the next run. A\n"+
			"second answer is refused and names the first. Then a person rejects the result, asks for a fix and approves that.",
		handoffChapter, reviewChapter)
}

func newDemoNotice() *cobra.Command {
	return newDemoCommand("notice", "What runs now, and a notice in a chat with the command that decides",
		"An agent runs out of money while nobody watches. picket ps shows it, and a chat gets its question with the command\n"+
			"that decides. The command adds the money and answers the question in one step, and the next run continues.",
		noticeChapter)
}

func newDemoWake() *cobra.Command {
	return newDemoCommand("wake", "An idle agent is woken by a person, asks for a task, and does it under a lease",
		"A worker keeps a session of an agent, which is idle. A task is queued, and a message is sent. A wake has the agent read\n"+
			"its message and ask for a task. It is started again with the lease. A second wake is refused with its reason.",
		wakeChapter)
}

func newDemoClient() *cobra.Command {
	return newDemoCommand("a2a", "A client sends a task to a pool by the A2A protocol, and answers its agent",
		"A program of somebody else reads the card of a pool and sends it a task. It sees what the agent does, answers its\n"+
			"question and gets the result. Another client of the same pool does not find the task.",
		clientChapter)
}

// newDemoCommand is a command that tells chapters, within two minutes and until Ctrl-C.
func newDemoCommand(use, short, long string, story ...chapter) *cobra.Command {
	c := &cobra.Command{
		Use:   use,
		Short: short,
		Args:  cli.CheckArgs(cobra.NoArgs),
		Long: long +
			"\nThe demo has a server of its own, real processes and scripted agents. It needs no keys and no network. The exit code\n" +
			"is 0 only if every step happened.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			// A closed terminal and a reader that went away end it, too: its actors
			// are in sessions of their own and would stay.
			attended, stop := signal.NotifyContext(cmd.Context(), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP,
				syscall.SIGPIPE)
			defer stop()
			ctx, cancel := context.WithTimeoutCause(attended, 2*time.Minute,
				errors.New("the demo took longer than two minutes"))
			defer cancel()
			afterwards := func(*demoEnv) {}
			if stay, _ := cmd.Flags().GetBool("stay"); stay {
				afterwards = func(st *demoEnv) { st.waitForInterrupt(attended) }
			}
			return runChapters(ctx, cmd.OutOrStdout(), afterwards, story...)
		},
	}
	c.Flags().Bool("stay", false, "keep the server running until Ctrl-C, so that you can look at the console")
	return c
}

// chapter is a part of the story that can be told on its own.
type chapter struct {
	title string
	lead  string // what a reader should know who meets Picket for the first time
	// prepare writes what the chapter needs before the server is started.
	prepare func(*demoEnv) ([]chapterStep, error)
}

// chapterStep is a part of a chapter; it fails when something was not observed to
// happen.
type chapterStep func(context.Context) error

// runChapters opens a stage with a server, plays the chapters, and ends every
// process whatever happened. afterwards is called when all was observed.
func runChapters(ctx context.Context, out io.Writer, afterwards func(*demoEnv), story ...chapter) (err error) {
	if runtime.GOOS != "linux" {
		return exit.NotAvailable("the demo on "+runtime.GOOS, "a list of processes as Linux has it in /proc",
			"Run it on Linux.")
	}
	st, err := newDemoEnv(out)
	if err != nil {
		return err
	}
	defer func() {
		if closing := st.close(); closing != nil {
			err = errors.Join(err, closing)
		}
		if err == nil {
			st.narrate("%s", term.Painter(out).Good("All of it was observed, and no process is left."))
		}
	}()
	acts := make([][]chapterStep, len(story))
	for i, c := range story {
		if acts[i], err = c.prepare(st); err != nil {
			return err
		}
	}
	if err := st.openServer(ctx); err != nil {
		return err
	}
	st.narrate("A server of its own: %s", st.s.URL())
	for i, c := range story {
		if len(story) > 1 {
			st.printChapter(i+1, len(story), c)
		}
		if err := st.runSteps(ctx, acts[i]); err != nil {
			return fmt.Errorf("%s: %w", c.title, err)
		}
	}
	afterwards(st)
	return nil
}

// runSteps plays the acts of a chapter and ends its workers.
func (st *demoEnv) runSteps(ctx context.Context, acts []chapterStep) error {
	for _, step := range acts {
		if err := step(ctx); err != nil {
			if ctx.Err() != nil && !errors.Is(err, context.Cause(ctx)) {
				err = errors.Join(context.Cause(ctx), err)
			}
			return err
		}
	}
	return st.stopWorkers()
}
