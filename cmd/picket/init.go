package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/cmd/picket/cli"
	"github.com/picket-dev/picket/cmd/picket/cli/exit"
	"github.com/picket-dev/picket/cmd/picket/settings"
	"github.com/picket-dev/picket/internal/seal"
)

func newInit() *cobra.Command {
	c := &cobra.Command{
		Use:   "init",
		Short: "Make a namespace, the shared secret and the first admin key",
		Args:  cli.CheckArgs(cobra.NoArgs),
		Long: "Make a namespace in a Redis that several server processes share, the secret that they need, and\n" +
			"the first admin key, which is printed once. With --admin-key-file, an existing key is registered\n" +
			"again, for example after Redis was emptied. You can run this command again at any time, because\n" +
			"it keeps what exists.",
		Example: "  picket init --redis redis://10.0.0.5:6379 --secret-file /etc/picket/secret.key",
		RunE:    func(cmd *cobra.Command, _ []string) error { return runInit(cmd) },
	}
	c.Flags().String("redis", "", "the Redis URL")
	c.Flags().String("secret-file", "", "the file of the shared secret; made when missing")
	c.Flags().String("namespace", "default", "the namespace to make")
	witnessFlag(c)
	unsafeFlag(c)
	c.Flags().String("admin-key-file", "", "keep the admin key in this file instead of printing it")
	return c
}

func runInit(cmd *cobra.Command) error {
	cfg, err := settings.LoadSettings(cmd)
	if err != nil {
		return err
	}
	h, err := newSharedServer(cmd, cfg, roles{}, ensureSealer)
	if err != nil {
		return err
	}
	h.witnessDir, h.createMissing = settings.WitnessDir(cfg.Data), true
	store, err := h.openStore(cmd.Context())
	if err != nil {
		return err
	}
	defer store.Close()
	keyFile, _ := cmd.Flags().GetString("admin-key-file")
	for _, namespace := range cfg.Namespaces() {
		engine := store.Engine(namespace)
		if keyFile != "" {
			key, err := ensureAdminKey(keyFile, namespace)
			if err != nil {
				return err
			}
			if err := registerAdminKey(cmd.Context(), engine, keyFile, key); err != nil {
				return err
			}
			fmt.Fprintf(cmd.ErrOrStderr(), "namespace %s is ready; its admin key is in %s\n", namespace, keyFile)
			continue
		}
		keys, err := engine.Keys(cmd.Context())
		if err != nil {
			return err
		}
		if n := countAdmins(keys); n > 0 {
			fmt.Fprintf(cmd.ErrOrStderr(), "namespace %s exists and has %d admin key(s); none was made\n", namespace, n)
			continue
		}
		key, err := engine.CreateKey(cmd.Context(), bootstrapCaller,
			picket.KeyRequest{Name: "admin", Scopes: []picket.Scope{picket.ScopeAdmin}})
		if err != nil {
			return err
		}
		fmt.Fprintln(cmd.OutOrStdout(), key.Key.Reveal())
		fmt.Fprintf(cmd.ErrOrStderr(), "namespace %s is made; this is its admin key, shown only now\n", namespace)
	}
	cli.PrintNext(cmd, "picket serve orchestrator --redis … --secret-file "+cfg.SecretFile+
		" --proxy-url http://…",
		"picket serve toolproxy --redis … --secret-file "+cfg.SecretFile,
		"picket serve reaper --redis … --secret-file "+cfg.SecretFile)
	return nil
}

func countAdmins(keys []picket.APIKey) int {
	n := 0
	for _, k := range keys {
		if k.RevokedAt.IsZero() && (picket.Principal{Scopes: k.Scopes}).May() {
			n++
		}
	}
	return n
}

// newSharedServer is a house over a Redis that others share.
func newSharedServer(cmd *cobra.Command, cfg settings.Settings, r roles,
	secret func(string) (*seal.Sealer, error)) (serverProcess, error) {
	h := serverProcess{roles: r, cfg: cfg, proxyURL: cfg.ProxyURL, policyDir: cfg.Wake.Dir,
		log: settings.NewLog(cfg, os.Stderr)}
	if cfg.Redis == "" {
		return h, picket.Refuse(exit.CodeUsage,
			"Add --redis redis://host:6379, or use `picket up`, which brings its own.",
			"%s needs the URL of a Redis", cmd.CommandPath())
	}
	if cfg.SecretFile == "" {
		return h, picket.Refuse(exit.CodeUsage, "Add --secret-file FILE, the same for every server process.",
			"%s needs the shared secret", cmd.CommandPath())
	}
	var err error
	if h.redis, err = settings.ParseRedisURL(cfg.Redis); err != nil {
		return h, err
	}
	h.sealer, err = secret(cfg.SecretFile)
	return h, err
}
