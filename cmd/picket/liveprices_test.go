package main

import (
	"context"
	"io"
	"log/slog"
	"os"
	"syscall"
	"testing"

	"github.com/spf13/cobra"

	"github.com/picket-dev/picket/cmd/picket/settings"
)

// A hang-up reloads, unless it says that the terminal is gone: then the server
// ends, as it always did.
func TestHangupEndsServerIfTerminalClosed(t *testing.T) {
	t.Chdir(t.TempDir())
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
	cmd := &cobra.Command{}
	cmd.Flags().String("config", "picket.yaml", "")
	if err := os.WriteFile("picket.yaml", []byte("tools: {prices: {x: {call: 1}}}"), 0o600); err != nil {
		t.Fatal(err)
	}
	cfg, err := settings.LoadSettings(cmd)
	if err != nil {
		t.Fatal(err)
	}
	b, err := openLivePrices(cmd, cfg, slog.New(slog.NewTextHandler(io.Discard, nil)))
	if err != nil {
		t.Fatal(err)
	}
	defer b.close()
	before := b.current().Version
	if err := os.WriteFile("picket.yaml", []byte("tools: {prices: {x: {call: 2}}}"), 0o600); err != nil {
		t.Fatal(err)
	}
	asked := 0
	b.terminalClosed = func() bool {
		asked++
		if asked == 1 {
			b.hangups <- syscall.SIGHUP // the second one
		}
		return asked == 2
	}
	b.hangups <- syscall.SIGHUP
	if closed := b.reloadOnHangup(t.Context()); !closed {
		t.Error("the terminal is gone, and the server goes on")
	}
	if after := b.current(); after.Version == before || after.Tools["x"].Call != 2_000_000_000 {
		t.Errorf("the first hang-up has not read the prices again: %+v", after)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if b.reloadOnHangup(ctx) {
		t.Error("the end of the context is taken for a closed terminal")
	}
}
