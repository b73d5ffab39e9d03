package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/budget"
	"github.com/picket-dev/picket/client"
	"github.com/picket-dev/picket/cmd/picket/attach"
	"github.com/picket-dev/picket/cmd/picket/cli"
	"github.com/picket-dev/picket/cmd/picket/cli/exit"
	"github.com/picket-dev/picket/cmd/picket/cli/term"
	"github.com/picket-dev/picket/cmd/picket/demo"
	"github.com/picket-dev/picket/cmd/picket/settings"
	"github.com/picket-dev/picket/internal/devredis"
	"github.com/picket-dev/picket/internal/files"
)

// budgetSummary is what `picket up` says of money.
func budgetSummary(cfg settings.Settings) string {
	e := cfg.DefaultTaskEnvelope()
	text := fmt.Sprintf("%s and %d tokens a task", cli.Dollars(e.USD), e.Tokens)
	switch day := cfg.DailyLimit(); {
	case day == nil:
		return text + ", no limit a day"
	case day.Tokens == budget.MaxTokens:
		return fmt.Sprintf("%s, %s a day", text, cli.Dollars(day.USD))
	case day.USD == budget.MaxMoney:
		return fmt.Sprintf("%s, %d tokens a day", text, day.Tokens)
	default:
		return fmt.Sprintf("%s, %s and %d tokens a day", text, cli.Dollars(day.USD), day.Tokens)
	}
}

func newUp() *cobra.Command {
	c := &cobra.Command{
		Use:   "up",
		Short: "Start everything in one process on this machine",
		Args:  cli.CheckArgs(cobra.NoArgs),
		Long: "Start orchestrator, tool proxy and reaper in one process. The data directory keeps the state\n" +
			"between starts. When the server is ready, one line with ready and the URL is printed on standard\n" +
			"output. SIGTERM and Ctrl-C stop the server cleanly.",
		Example: "  picket up\n  picket up --listen 127.0.0.1:0 --data ./picket-data\n  picket up --redis redis://127.0.0.1:6379/0",
		RunE:    func(cmd *cobra.Command, _ []string) error { return runUp(cmd) },
	}
	c.Flags().String("data", "", "keep state in this directory (default: $XDG_DATA_HOME/picket)")
	c.Flags().String("redis", "", "use this Redis URL (default: a redis-server of its own)")
	c.Flags().String("namespace", "default", "the namespace")
	unsafeFlag(c)
	publicURLFlag(c)
	serverFlags(c)
	return c
}

// witnessFlag is of commands that may adopt a store and have no other data.
func witnessFlag(c *cobra.Command) {
	c.Flags().String("data", "",
		"keep this machine's witness of the store in this directory (default: $XDG_DATA_HOME/picket)")
}

// publicURLFlag is of commands that tell others where this server is.
func publicURLFlag(c *cobra.Command) {
	c.Flags().String("public-url", "", "the base URL by which people and A2A clients reach this server")
}

// serverFlags are those of every command that serves.
func serverFlags(c *cobra.Command) {
	c.Flags().Var(new(addressList), "listen", "listen on this address, or on several when it is repeated "+
		"(default 127.0.0.1:7070; port 0 picks a free one, unix:PATH is a Unix socket)")
	c.Flags().String("tls-cert", "", "serve TLS with this certificate file")
	c.Flags().String("tls-key", "", "the file of the certificate's key")
	c.Flags().String("log-level", "info", "how much is logged: debug, info, warn or error")
	term.Choices(c, "log-level", "debug", "info", "warn", "error")
}

func runUp(cmd *cobra.Command) error {
	_ = attach.HideProcess()
	cfg, err := settings.LoadSettings(cmd)
	if err != nil {
		return err
	}
	cli.ReportLocalSettings(cmd, cfg)
	if len(cfg.Namespaces()) != 1 {
		return exit.Usagef("`picket up` serves one namespace; `picket serve` serves several")
	}
	ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	data, err := filepath.Abs(cfg.Data)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(data, 0o700); err != nil {
		return exit.Usagef("the data directory cannot be used: %v", err)
	}
	unlock, err := lockData(data)
	if err != nil {
		return err
	}
	defer unlock()
	return runServer(ctx, cmd, cfg, data)
}

func runServer(ctx context.Context, cmd *cobra.Command, cfg settings.Settings, data string) (err error) {
	log := settings.NewLog(cfg, cmd.ErrOrStderr())
	prices, err := openLivePrices(cmd, cfg, log)
	if err != nil {
		return err
	}
	defer prices.close()
	sealer, err := ensureSealer(filepath.Join(data, "secret.key"))
	if err != nil {
		return err
	}
	namespace := cfg.Namespace
	keyFile := filepath.Join(data, keyFileName(namespace))
	key, err := ensureAdminKey(keyFile, namespace)
	if err != nil {
		return err
	}
	guard := connectionGuard(cfg, log)
	served := roles{true, true, true}
	all, err := listen(cfg, guard, served, filepath.Join(data, "toolproxy.port"))
	if err != nil {
		return err
	}
	defer all.close()
	backing, err := openStoreBackend(ctx, cfg, data, log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, backing.close()) }()

	h := serverProcess{
		roles:         served,
		cfg:           cfg,
		redis:         backing.options,
		memory:        backing.memory,
		sealer:        sealer,
		proxyURL:      all.proxyURL(),
		prices:        prices,
		log:           log,
		guard:         guard,
		witnessDir:    settings.WitnessDir(data),
		createMissing: true,
		storeAddress:  backing.address,
		policyDir:     cmp.Or(cfg.Wake.Dir, filepath.Join(data, "agents")),
	}
	if backing.owned() {
		h.ticketDir = ticketDir()
	}
	h.onAdopted = reregisterAdminKey(keyFile, key, log)
	if p := cfg.ProxyURL; p != "" {
		h.proxyURL = p
	}
	store, err := h.openStore(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, h.closeStore(store)) }()
	if err := registerAdminKey(ctx, store.Engine(namespace), keyFile, key); err != nil {
		return fmt.Errorf("register the admin key: %w", err)
	}
	serving, cancel := context.WithCancel(ctx)
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- h.serve(serving, all, store) }()
	if err := awaitReady(ctx, store); err != nil && ctx.Err() == nil {
		cancel()
		return errors.Join(err, <-ended)
	}
	other, err := cli.SwitchProfile(ctx, cli.Profile{URL: all.url(), KeyFile: keyFile})
	if err != nil {
		log.Warn("the profile cannot be saved: set PICKET_URL and PICKET_API_KEY", "err", err)
	}
	printReady(cmd, cfg, all, data, keyFile, backing.name, other)
	err = <-ended
	log.Info("stopped")
	return err
}

func keyFileName(namespace string) string {
	if namespace == "default" {
		return "admin.key"
	}
	return "admin-" + namespace + ".key"
}

// printReady prints the one line that scripts wait for on stdout, and everything for people on
// stderr. other is the server that the commands continue to use, if it is not this one.
func printReady(cmd *cobra.Command, cfg settings.Settings, all endpoints, data, keyFile, store, other string) {
	url := all.url()
	fmt.Fprintln(cmd.OutOrStdout(), "ready "+url)
	w := cmd.ErrOrStderr()
	p := term.Painter(w)
	var rows [][]string
	for _, row := range append(addressRows(all), [][]string{
		{"data", data},
		{"store", store},
		{"key", keyFile},
		{"budget", budgetSummary(cfg)},
	}...) {
		rows = append(rows, []string{p.Dim("  " + row[0]), row[1]})
	}
	term.PrintRows(w, rows)
	if other != "" {
		fmt.Fprintln(w, "commands go on talking to "+other+"; for this server:")
		fmt.Fprintf(w, "       export PICKET_URL=%s PICKET_API_KEY=$(cat %s)\n", url, term.ShellQuote(keyFile))
	}
	fmt.Fprintln(w, p.Dim("try:   ")+term.WithProgramName("picket run -- make test"))
	fmt.Fprintln(w, p.Dim("       ")+term.WithProgramName("picket review approve"))
	fmt.Fprintln(w, p.Dim("stop:  ")+"Ctrl-C, or kill "+strconv.Itoa(os.Getpid()))
}

// addressRows says where the routes of a server are.
func addressRows(all endpoints) (rows [][]string) {
	if at := all[0]; at.console {
		rows = [][]string{
			{"console", at.url + "/console/"},
			{"API", at.url + client.BasePath},
			{"described", at.url + "/openapi.yaml"},
			{"metrics", at.url + "/metrics"},
		}
	}
	for i, at := range all {
		switch {
		case at.only:
			rows = append(rows, []string{"tool proxy", at.url})
		case i > 0:
			rows = append(rows, []string{"also on", at.url})
		case !at.console:
			rows = append(rows, []string{"API", at.url})
		}
	}
	return rows
}

// lockData makes sure that one `picket up` owns a data directory. The lock
// lives as long as the process, however it ends.
func lockData(data string) (unlock func(), err error) {
	path := filepath.Join(data, "up.lock")
	f, err := files.LockFile(context.Background(), path, 0)
	for end := time.Now().Add(lockPatience); errors.Is(err, files.ErrLocked); {
		text, _ := os.ReadFile(path)
		holder := strings.TrimSpace(string(text))
		if pid, bad := strconv.Atoi(holder); bad != nil || !processDying(pid) || time.Now().After(end) {
			return nil, picket.Refuse(picket.CodeStateConflict,
				"Use it, stop it with `kill "+holder+"`, or give this one another --data.",
				"picket up already runs with %s (pid %s)", data, holder)
		}
		time.Sleep(10 * time.Millisecond)
		f, err = files.LockFile(context.Background(), path, 0)
	}
	if err != nil {
		return nil, exit.Usagef("the data directory cannot be used: %v", err)
	}
	_ = files.Truncate(f, 0)
	_, _ = f.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0)
	return func() { f.Close() }, nil
}

// lockPatience is how long the lock of a process that has ended is waited for: its
// threads end one by one, and the last of them lets go.
const lockPatience = 10 * time.Second

// processDying reports whether a process runs no more, though it may not be gone.
func processDying(pid int) bool {
	s := demo.ProcessState(pid)
	return s == 'Z' || s == 'X' || errors.Is(unix.Kill(pid, 0), unix.ESRCH)
}

// storeBackend is the Redis under a server: somebody else's, or our own child.
type storeBackend struct {
	options redis.UniversalOptions
	memory  bool
	name    string
	address string // of the store in the names of witness files; "" is that of options
	close   func() error
}

// owned reports whether the store is a redis-server of this process alone.
func (b storeBackend) owned() bool { return b.address != "" }

func openStoreBackend(ctx context.Context, cfg settings.Settings, data string, log *slog.Logger) (storeBackend, error) {
	if url := cfg.Redis; url != "" {
		o, err := settings.ParseRedisURL(url)
		return storeBackend{options: o, name: settings.RedactedRedisURL(url), close: func() error { return nil }}, err
	}
	dir := filepath.Join(data, "redis")
	server, err := devredis.Start(ctx, dir, cfg.StoreMemory(), log)
	if err != nil {
		return storeBackend{}, fmt.Errorf("start the store: %w", err)
	}
	b := storeBackend{memory: server.InMemory(), name: server.String()}
	if b.memory {
		b.options = redis.UniversalOptions{Addrs: []string{"memory"}, Dialer: server.Dial}
		b.close = func() error { return server.Stop(context.Background()) }
		return b, nil
	}
	b.options = redis.UniversalOptions{Addrs: []string{server.Addr()}}
	// The socket is elsewhere, at a new path each time, if this one is too long.
	b.address = filepath.Join(dir, "redis.sock")
	b.close = superviseRedis(dir, cfg.StoreMemory(), server, log)
	return b, nil
}

// superviseRedis starts the managed redis-server again when it ends without having
// been asked to; the clients find it at the same socket. The answer stops both.
func superviseRedis(dir string, maxMemory int64, server *devredis.Server, log *slog.Logger) (stop func() error) {
	ctx, cancel := context.WithCancel(context.Background())
	finished := make(chan error, 1)
	go func() {
		current := server
		for {
			select {
			case <-ctx.Done():
				finished <- current.Stop(context.Background())
				return
			case <-current.Done():
			}
			log.Error("the store has ended; starting it again", "err", current.Err())
			for {
				next, err := devredis.Restart(ctx, dir, maxMemory, log)
				if err == nil {
					current = next
					log.Info("the store is back", "pid", next.PID())
					break
				}
				log.Error("the store does not start", "err", err)
				if cli.Sleep(ctx, 2*time.Second) != nil {
					finished <- nil
					return
				}
			}
		}
	}()
	return func() error { cancel(); return <-finished }
}
