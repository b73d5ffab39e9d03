package attach

import (
	"log/slog"
	"os"
	"os/signal"
	"syscall"
)

// onTerminate calls first at the first signal that asks a worker to end, and then at
// the second: SIGTERM, SIGINT, and SIGHUP when its terminal was closed. Any other
// SIGHUP is meant for servers, which read their prices again, and changes nothing:
// a worker that it ended would take its agents along.
func onTerminate(log *slog.Logger, first, then func()) (stop func()) {
	ends, hangups := make(chan os.Signal, 2), make(chan os.Signal, 1)
	signal.Notify(ends, syscall.SIGTERM, syscall.SIGINT)
	if !signal.Ignored(syscall.SIGHUP) { // nohup is obeyed
		signal.Notify(hangups, syscall.SIGHUP)
	}
	gone, done := TerminalClosed(), make(chan struct{})
	go func() {
		for acts := []func(){first, then}; len(acts) > 0; acts = acts[1:] {
			if !awaitEndSignal(log, ends, hangups, gone, done) {
				return
			}
			acts[0]()
		}
	}()
	return func() { signal.Stop(ends); signal.Stop(hangups); close(done) }
}

// awaitEndSignal waits for a signal that asks for the end; false: nobody waits any more.
func awaitEndSignal(log *slog.Logger, ends, hangups <-chan os.Signal, gone func() bool, done <-chan struct{}) bool {
	for {
		select {
		case <-ends:
			return true
		case <-hangups:
			if gone() {
				return true
			}
			log.Info("SIGHUP is for servers: a worker has nothing to read again")
		case <-done:
			return false
		}
	}
}

// TerminalClosed returns a function. It reports whether the process was started
// from a terminal that has been closed since.
func TerminalClosed() func() bool {
	hadTerminal := hasTerminal()
	return func() bool { return hadTerminal && !hasTerminal() }
}

// hasTerminal reports whether the process has a terminal that is still there.
func hasTerminal() bool {
	tty, err := os.Open("/dev/tty")
	if err != nil {
		return false
	}
	tty.Close()
	return true
}
