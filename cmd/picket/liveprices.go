package main

import (
	"context"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"sync/atomic"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/picket-dev/picket/budget"
	"github.com/picket-dev/picket/cmd/picket/attach"
	"github.com/picket-dev/picket/cmd/picket/cli/exit"
	"github.com/picket-dev/picket/cmd/picket/settings"
)

// livePrices holds the price list in force. SIGHUP has it read again, and with it
// what tasks and days are given.
type livePrices struct {
	list         atomic.Pointer[budget.PriceList]
	applyBudgets func(housePerDay, task *budget.Envelope) // puts them in force; nil: nobody asks
	cmd          *cobra.Command
	cfg          settings.Settings // as they were at the start: all but prices and budget stays so
	source       string
	log          *slog.Logger
	hangups      chan os.Signal
	// terminalClosed reports whether the terminal that the process was started from, if it
	// was, has been closed.
	terminalClosed func() bool
}

// noPrices is the list where none is configured.
var noPrices, _ = budget.NewPriceList(map[string]budget.Price{}, map[string]budget.TokenPrice{})

// openLivePrices takes the list of the settings and notes hang-ups from now on.
func openLivePrices(cmd *cobra.Command, cfg settings.Settings, log *slog.Logger) (*livePrices, error) {
	list, err := cfg.PriceList()
	if err != nil {
		return nil, err
	}
	b := &livePrices{cmd: cmd, cfg: cfg, log: log, hangups: make(chan os.Signal, 1)}
	b.terminalClosed = attach.TerminalClosed()
	b.source = settings.ConfigPath(cmd)
	b.list.Store(list)
	signal.Notify(b.hangups, syscall.SIGHUP)
	return b, nil
}

func (b *livePrices) close() { signal.Stop(b.hangups) }

// current is the list in force.
func (b *livePrices) current() *budget.PriceList { return b.list.Load() }

// reloadOnHangup reads the prices again at each hang-up, until ctx ends. A hang-up because
// the terminal was closed is answered with true: the process was of it.
func (b *livePrices) reloadOnHangup(ctx context.Context) (closed bool) {
	for {
		select {
		case <-ctx.Done():
			return false
		case <-b.hangups:
		}
		if b.terminalClosed() {
			return true
		}
		b.reload()
	}
}

// reload puts the prices of the file in force. A file that is wrong, or gone,
// changes nothing: calls go on at the old prices.
func (b *livePrices) reload() {
	old := b.current()
	fresh, err := settings.LoadSettings(b.cmd)
	var list *budget.PriceList
	if err == nil {
		list, err = fresh.PriceList()
	}
	if source := settings.ConfigPath(b.cmd); err == nil && source == "" && b.source != "" {
		err = exit.Usagef("%s is gone", b.source)
	}
	if err != nil {
		b.log.Error("prices: the old ones stay in force", "version", old.Version, "err",
			strings.TrimSpace(err.Error()+" "+exit.Remedy(err)))
		return
	}
	b.list.Store(list)
	if b.applyBudgets != nil {
		b.applyBudgets(fresh.DailyLimit(), fresh.DefaultTaskEnvelope())
		b.log.Info("budget: read again", "budget", budgetSummary(fresh))
	}
	if list.Version == old.Version {
		b.log.Info("prices: read again, they are the same", "version", old.Version)
	} else {
		b.log.Info("prices: read again", "version", list.Version, "was", old.Version, "tools", len(list.Tools),
			"models",
			len(list.Models))
	}
	if waiting := b.cfg.ChangedKeys(fresh); len(waiting) > 0 {
		b.log.Warn("these keys have changed, too, and wait for the next start", "keys", strings.Join(waiting, " "))
	}
}
