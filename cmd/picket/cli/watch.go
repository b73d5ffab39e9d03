package cli

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/spf13/cobra"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/client"
	"github.com/picket-dev/picket/cmd/picket/cli/term"
)

// watchFlag adds --watch.
func watchFlag(c *cobra.Command) *cobra.Command {
	c.Flags().BoolP("watch", "w", false, "show again whenever it changes, until Ctrl-C")
	return c
}

// WatchedList makes a command a list that --watch shows again whenever an event of a kind comes, whose type
// begins with one of kinds, and every few seconds.
func WatchedList(c *cobra.Command, kinds []string,
	show func(ctx context.Context, cmd *cobra.Command, s *Connection, w io.Writer) error) *cobra.Command {
	return listCommand(c, func(cmd *cobra.Command, s *Connection) error {
		return showOrWatch(cmd, s, topic{kinds: kinds, polled: true}, func(ctx context.Context, w io.Writer) error {
			return show(ctx, cmd, s, w)
		})
	})
}

// topic says which events can change a view.
type topic struct {
	kinds []string // beginnings of their types; none means all types
	task  string   // only those of this task
	// polled views show what no event tells, such as renewals, heartbeats and
	// what is reserved: they are read again every pollEvery, too.
	polled bool
	// asked views ask for each look at something that is not a server of Picket. They are read
	// every pollEvery, and not in between.
	asked bool
}

// PolledView adds -o and --watch to a command whose body calls ShowOrPoll.
func PolledView(c *cobra.Command) *cobra.Command { return watchFlag(term.FormatFlag(c)) }

// ShowOrPoll shows once what no event of a server of Picket tells or, with --watch, every few
// seconds until Ctrl-C. show writes to w what is for stdout.
func ShowOrPoll(cmd *cobra.Command, show func(ctx context.Context, w io.Writer) error) error {
	return showOrWatch(cmd, nil, topic{asked: true}, show)
}

const (
	redrawEvery = 400 * time.Millisecond // at most so often, however many events come
	pollEvery   = 5 * time.Second
)

// query selects the events of a topic.
func (t topic) query() picket.EventQuery {
	q := picket.EventQuery{TaskID: t.task}
	for _, e := range picket.EventTypes {
		if slices.ContainsFunc(t.kinds, func(kind string) bool { return strings.HasPrefix(e, kind) }) {
			q.Types = append(q.Types, e)
		}
	}
	return q
}

// showOrWatch shows a view once or, with --watch, until Ctrl-C: again after every
// event of its topic. In between a terminal's ages and clocks go on, with no
// question to the server. Without a server, as of what lies on this machine, it
// looks every pollEvery.
func showOrWatch(cmd *cobra.Command, s *Connection, of topic, show func(context.Context, io.Writer) error) error {
	if again, _ := cmd.Flags().GetBool("watch"); !again {
		return show(cmd.Context(), cmd.OutOrStdout())
	}
	ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	v := &view{
		cmd:      cmd,
		s:        s,
		show:     show,
		out:      cmd.OutOrStdout(),
		terminal: term.IsTerminal(cmd.OutOrStdout()),
		changed:  make(chan struct{}, 1),
		failed:   make(chan error, 1),
	}
	if s != nil {
		since := s.lastCursor(ctx) // before the first look: no change falls between
		s.reads.start()
		defer s.reads.stop()
		defer v.follow(ctx, client.Follower{Query: of.query(), After: since})()
	}
	if !of.asked {
		clock := time.NewTicker(time.Second)
		defer clock.Stop()
		v.clock = clock.C
	}
	if of.polled || s == nil {
		again := time.NewTicker(pollEvery)
		defer again.Stop()
		v.again = again.C
	}
	if err := v.watch(ctx); ctx.Err() == nil {
		return err
	}
	return nil
}

// view is what --watch draws again.
type view struct {
	cmd      *cobra.Command
	s        *Connection
	show     func(context.Context, io.Writer) error
	out      io.Writer
	terminal bool
	changed  chan struct{}
	failed   chan error
	clock    <-chan time.Time // redraws ages, on a terminal
	again    <-chan time.Time // reads again what no event tells
	away     bool
	last     []byte
	lastOf   jsontext.Value
}

// follow marks the view as changed after every event, and when the server is
// back; the answer ends it.
func (v *view) follow(ctx context.Context, f client.Follower) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	poke := func() {
		select {
		case v.changed <- struct{}{}:
		default: // one look covers any number of changes
		}
	}
	ended := make(chan struct{})
	lost := false
	f.Link = func(up bool) {
		if up && lost {
			poke()
		}
		lost = !up
	}
	f.Event = func(picket.Event, []byte) error {
		poke()
		return nil
	}
	go func() {
		defer close(ended)
		v.failed <- v.s.Events.Follow(ctx, f)
	}()
	return func() { cancel(); <-ended }
}

func (v *view) watch(ctx context.Context) error {
	for anew := true; ; {
		if err := v.draw(ctx, anew); err != nil {
			return err
		}
		if anew && Sleep(ctx, redrawEvery) != nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return nil
		case err := <-v.failed:
			return err
		case <-v.changed:
			anew = true
		case <-v.again:
			anew = true
		case <-v.clock:
			anew = false
		}
	}
}

// draw shows the view: read again, or as it was read last with the ages of now.
func (v *view) draw(ctx context.Context, anew bool) error {
	anew = anew || v.away
	if !anew && !v.terminal {
		return nil
	}
	if anew && v.s != nil {
		v.s.reads.start()
	}
	page := &term.ViewBuffer{Buffer: &bytes.Buffer{}, Target: v.out}
	err := v.show(ctx, page)
	switch {
	case errors.Is(err, picket.CodeUnavailable) && v.last != nil:
		if !v.away {
			fmt.Fprintln(v.cmd.ErrOrStderr(), "the server does not answer; going on when it does")
		}
		v.away = true
		return nil
	case err != nil:
		return err
	}
	v.away = false
	if v.terminal {
		v.paint(page)
	} else if v.last == nil ||
		!(page.Answer != nil && bytes.Equal(page.Answer, v.lastOf)) && !bytes.Equal(page.Bytes(), v.last) {
		// In a log, an age that has moved automatically is not news.
		_, _ = v.out.Write(page.Bytes())
		_, _ = v.cmd.ErrOrStderr().Write(page.Notes.Bytes())
	}
	v.last, v.lastOf = append([]byte{}, page.Bytes()...), page.Answer
	return nil
}

// paint writes a page over the last one, as far as the terminal is high.
func (v *view) paint(page *term.ViewBuffer) {
	lines := strings.Split(strings.TrimSuffix(page.String()+page.Notes.String(), "\n"), "\n")
	if most := term.TerminalHeight(v.out); len(lines) >= most {
		below := len(lines) - most + 2
		lines = append(lines[:most-2], fmt.Sprintf("%d more lines below", below))
	}
	var b strings.Builder
	if v.last == nil {
		b.WriteString("\x1b[2J")
	}
	b.WriteString("\x1b[H")
	for _, line := range lines {
		b.WriteString(line + "\x1b[K\r\n")
	}
	b.WriteString("\x1b[J")
	_, _ = io.WriteString(v.out, b.String())
}

// FollowDespiteLimit follows events for a reader that can look for itself meanwhile: if
// the key reads too many streams, it reports a lost link and tries again.
func (s *Connection) FollowDespiteLimit(ctx context.Context, f client.Follower) error {
	for {
		err := s.Events.Follow(ctx, f)
		var full *picket.Error
		if !errors.As(err, &full) || full.Code != picket.CodeRateLimited {
			return err
		}
		f.Link(false)
		if err := Sleep(ctx, cmp.Or(full.RetryAfter, pollEvery)); err != nil {
			return err
		}
	}
}

// ErrTaskLost says that a task that was there is in the store no more, although
// nothing deletes a task that is not closed.
var ErrTaskLost = errors.New("the store has lost the task")

// lossCheckEvery is how often a task is looked for while it is followed.
const lossCheckEvery = 5 * time.Second

// AwaitTaskLost returns ErrTaskLost once a task is not in the store any more, or the end
// of ctx. The event stream cannot tell: what took the task took its events, too.
func (s *Connection) AwaitTaskLost(ctx context.Context, task string) error {
	for {
		if err := Sleep(ctx, lossCheckEvery); err != nil {
			return err
		}
		if _, err := s.Tasks.Get(ctx, task); IsTaskMissing(err) {
			return ErrTaskLost
		}
	}
}

// IsTaskMissing recognizes Picket's own not_found. That of a load balancer, which
// carries no request id, says nothing about the store.
func IsTaskMissing(err error) bool {
	var e *picket.Error
	return errors.As(err, &e) && e.Code == picket.CodeNotFound && e.Facts["requestId"] != nil
}

// TaskLostError is ErrTaskLost for a person. again, when not empty, is the command
// that submits the task again.
func TaskLostError(id, again string) error {
	remedy := "Submit it again. What its agent did is still where it worked: look there first."
	if again != "" {
		remedy = "What its agent did is still where it worked: look there, then submit it again: " + again
	}
	return picket.Refuse(picket.CodeNotFound, remedy,
		"the store has lost %s: it was emptied, or an older state of it was restored", id)
}
