package attach

import (
	"bytes"
	"log/slog"
	"os"
	"strings"
	"syscall"
	"testing"
)

// What the servers are told by a SIGHUP ends no worker; the end of its terminal does.
func TestHangupEndsAdapterOnlyIfTerminalClosed(t *testing.T) {
	var said bytes.Buffer
	log := slog.New(slog.NewTextHandler(&said, nil))
	looks := 0
	gone := func() bool { looks++; return looks == 3 }
	hangups := make(chan os.Signal, 3)
	for range 3 {
		hangups <- syscall.SIGHUP
	}
	if !awaitEndSignal(log, nil, hangups, gone, nil) {
		t.Fatal("the terminal is gone, and the worker goes on")
	}
	if n := strings.Count(said.String(), "a worker has nothing to read again"); n != 2 || looks != 3 {
		t.Errorf("%d hang-ups were passed over and %d looked at, not 2 and 3:\n%s", n, looks, &said)
	}
	done := make(chan struct{})
	close(done)
	if awaitEndSignal(log, nil, nil, gone, done) {
		t.Error("nobody asked for the end")
	}
}
