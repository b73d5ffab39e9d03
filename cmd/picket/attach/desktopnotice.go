package attach

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/cmd/picket/cli"
	"github.com/picket-dev/picket/cmd/picket/cli/term"
	"github.com/picket-dev/picket/cmd/picket/settings"
)

// desktopNotifier notifies the person at this machine of each change of a task once, by a notice of
// the desktop, or else on the terminal.
type desktopNotifier struct {
	show       func(title, text string) // nil: no notices
	lastChange string                   // the change that was told last
	sending    sync.WaitGroup
}

// newDesktopNotifier looks for a way to reach the person; wanted is what the command
// line says, above the configuration.
func newDesktopNotifier(cmd *cobra.Command, cfg settings.Settings, wanted bool) *desktopNotifier {
	d := &desktopNotifier{}
	if wanted && cfg.Notify.Desktop {
		d.show = noticeSender(cmd.ErrOrStderr())
	}
	return d
}

// noticeSender is the best way there is; nil when nobody is there.
func noticeSender(terminal io.Writer) func(title, text string) {
	bell := func(string, string) {}
	if term.IsTerminal(terminal) {
		bell = func(title, text string) { fmt.Fprint(terminal, terminalNotice(os.Getenv("TERM"), title, text)) }
	}
	words := desktopCommand(runtime.GOOS)
	if words == nil {
		if !term.IsTerminal(terminal) {
			return nil
		}
		return bell
	}
	return func(title, text string) {
		ctx, cancel := context.WithTimeout(context.Background(), noticeTimeout)
		defer cancel()
		command := words(title, text)
		if exec.CommandContext(ctx, command[0], command[1:]...).Run() != nil {
			bell(title, text)
		}
	}
}

// noticeTimeout bounds the program that shows a notice.
const noticeTimeout = 3 * time.Second

// desktopCommand is the program that shows a notice here; nil where there is no
// desktop, as in a session over SSH, or no such program.
func desktopCommand(system string) func(title, text string) []string {
	program := "notify-send"
	if system == "darwin" {
		program = "osascript"
	} else if os.Getenv("DBUS_SESSION_BUS_ADDRESS") == "" && os.Getenv("DISPLAY") == "" &&
		os.Getenv("WAYLAND_DISPLAY") == "" {
		return nil
	}
	path, err := exec.LookPath(program)
	if err != nil || os.Getenv("SSH_CONNECTION") != "" {
		return nil
	}
	return func(title, text string) []string {
		if system == "darwin" {
			return append([]string{path}, osascriptArgs(title, text)...)
		}
		return append([]string{path}, notifySendArgs(title, text)...)
	}
}

// notifySendArgs are the arguments of notify-send. A text may hold marks that
// desktops show as links and pictures, so it has none.
func notifySendArgs(title, text string) []string {
	escape := strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;")
	return []string{"--app-name=picket", "--", title, escape.Replace(text)}
}

// osascriptArgs are the arguments of osascript. What agents wrote is an argument of
// the script, never a part of it.
func osascriptArgs(title, text string) []string {
	return []string{"-e", "on run argv", "-e", "display notification (item 2 of argv) with title (item 1 of argv)",
		"-e", "end run", "--", title, text}
}

// terminalNotice makes a terminal show a notice (OSC 9) and ring; one that knows
// no such sequences only rings.
func terminalNotice(term, title, text string) string {
	if term == "" || term == "dumb" || term == "linux" {
		return "\a"
	}
	return "\x1b]9;" + title + ": " + text + "\x1b\\\a"
}

// taskChanged sends a notice when the new state of a task is of interest to people.
func (d *desktopNotifier) taskChanged(t picket.Task) {
	change, title, text := noticeOf(t)
	if change == "" || change == d.lastChange {
		return
	}
	d.lastChange = change
	d.send(title, t.Title, text)
}

// handleEvent sends a notice of an event that the task's state does not show.
func (d *desktopNotifier) handleEvent(e picket.Event, t picket.Task) {
	switch e.Type {
	case picket.EventHandoffOverdue:
		d.send("still waits for an answer", t.Title, "the time for it is over")
	case picket.EventBudgetOverrun:
		d.send("has cost more than it had", t.Title, "")
	}
}

func (d *desktopNotifier) send(what, title, text string) {
	tell := d.show
	if tell == nil {
		return
	}
	body := term.Clip(title, 80)
	if text = term.Clip(text, 160); text != "-" {
		body += " · " + text
	}
	d.sending.Go(func() { tell("Picket: "+what, body) })
}

// wait lets the last notice get through.
func (d *desktopNotifier) wait() { d.sending.Wait() }

// noticeOf returns the change that led to a task's state, a headline and a text. change is empty if
// people need no notice.
func noticeOf(t picket.Task) (change, headline, text string) {
	change = string(t.State)
	switch {
	case t.State == picket.TaskHandoff && t.Handoff != nil && t.Handoff.State == picket.HandoffOpen:
		change += " " + t.Handoff.HandoffID
		if escalated(t) {
			return change, "a task needs you", t.Handoff.Question
		}
		return change, "an agent asks", t.Handoff.Question
	case t.State == picket.TaskReview:
		return fmt.Sprintf("%s %d", change, t.FencingToken), "ready for review", cli.OutputText(t.Output)
	case t.State == picket.TaskCompleted:
		return change, "completed", cli.OutputText(t.Output)
	case t.State.Terminal():
		return change, string(t.State), t.Reason
	}
	return "", "", ""
}
