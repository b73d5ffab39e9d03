package main

import (
	"context"
	"errors"
	"fmt"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/cmd/picket/attach"
	"github.com/picket-dev/picket/cmd/picket/cli"
	"github.com/picket-dev/picket/cmd/picket/cli/exit"
	"github.com/picket-dev/picket/cmd/picket/settings"
)

func newServe() *cobra.Command {
	return cli.CommandGroup("serve", "Run one role of the server; several of each can share one Redis",
		newServeRole("orchestrator", "The control plane: tasks, leases, reviews, events", roles{orchestrator: true}),
		newServeRole("toolproxy", "The data plane: tools, models and MCP for running agents", roles{toolproxy: true}),
		newServeRole("reaper", "Ends leases that nobody renews, and deletes what is old", roles{reaper: true}))
}

func newServeRole(name, short string, r roles) *cobra.Command {
	c := &cobra.Command{
		Use: name, Short: short, Args: cli.CheckArgs(cobra.NoArgs),
		Example: "  picket serve " + name + " --redis redis://10.0.0.5:6379 --secret-file /etc/picket/secret.key",
		RunE:    func(cmd *cobra.Command, _ []string) error { return runServe(cmd, r) },
	}
	c.Flags().String("redis", "", "the Redis URL")
	c.Flags().String("secret-file", "", "the file of the shared secret")
	unsafeFlag(c)
	c.Flags().String("namespace", "default", "the namespaces to serve, separated by commas")
	if r.orchestrator {
		witnessFlag(c)
		c.Flags().String("proxy-url", "", "the tool proxy's URL, as adapters and agents reach it")
	}
	if !r.toolproxy {
		publicURLFlag(c)
	}
	serverFlags(c)
	return c
}

func runServe(cmd *cobra.Command, r roles) (err error) {
	_ = attach.HideProcess()
	cfg, err := settings.LoadSettings(cmd)
	if err != nil {
		return err
	}
	cli.ReportLocalSettings(cmd, cfg)
	h, err := newSharedServer(cmd, cfg, r, loadSealer)
	if err != nil {
		return err
	}
	if r.orchestrator && h.proxyURL == "" {
		return picket.Refuse(exit.CodeUsage, "Add --proxy-url http://host:port of a `picket serve toolproxy`.",
			"the orchestrator puts the tool proxy's URL into every lease")
	}
	if h.prices, err = openLivePrices(cmd, cfg, h.log); err != nil {
		return err
	}
	defer h.prices.close()
	ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	h.guard = connectionGuard(cfg, h.log)
	all, err := listen(cfg, h.guard, r, "")
	if err != nil {
		return err
	}
	defer all.close()
	if r.orchestrator {
		h.witnessDir = settings.WitnessDir(cfg.Data)
	}
	store, err := h.openStore(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	serving, cancel := context.WithCancel(ctx)
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- h.serve(serving, all, store) }()
	// Listening is serving here: readiness may wait for a reaper elsewhere, and
	// /readyz reports it.
	fmt.Fprintln(cmd.OutOrStdout(), "ready "+all.url())
	err = <-ended
	h.log.Info("stopped")
	return err
}
