// Scripted-worker is an example of a worker. It leases the tasks of a pool, and does with each what the id of the
// message of its client asks for, as the public test kit of A2A expects of an agent. It calls no language model.
//
//	scripted-worker --url http://127.0.0.1:7070 --role coder --key @worker.key
//
// docs/reference/a2a.md lists what it does for which messages, and how to run the public test kit.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/internal/scriptedworker"
)

func main() {
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	cfg := scriptedworker.Config{Log: log}
	key := flag.String("key", os.Getenv("PICKET_API_KEY"), "a key with scope agent, or @FILE (default: PICKET_API_KEY)")
	flag.StringVar(&cfg.URL, "url", "http://127.0.0.1:7070", "the server, without a path")
	flag.StringVar(&cfg.Role, "role", "", "the role of the pool (default: tasks without a role)")
	flag.StringVar(&cfg.AgentID, "agent-id", "", "the name of the worker (default scripted-worker)")
	flag.DurationVar(&cfg.Delay, "delay", 2*time.Second, "how long it works on a task whose message asks for a delay")
	front := flag.String("front", "", "also pass requests at this loopback address on to the server, and add the key of "+
		"--front-key to those without a key")
	frontKey := flag.String("front-key", "", "a key with scope client, or @FILE")
	flag.Parse()
	if err := run(cfg, *key, *front, *frontKey); !errors.Is(err, context.Canceled) {
		fmt.Fprintln(os.Stderr, "scripted-worker:", err)
		os.Exit(1)
	}
}

// run works until a signal ends it.
func run(cfg scriptedworker.Config, key, front, frontKey string) (err error) {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if cfg.Key, err = keyOf("--key", key); err != nil {
		return err
	}
	if cfg.Key == "" {
		return errors.New("--key is required: give a key with scope agent, or @FILE")
	}
	if front == "" {
		return scriptedworker.Run(ctx, cfg)
	}
	secret, err := keyOf("--front-key", frontKey)
	if err != nil {
		return err
	}
	if secret == "" {
		return errors.New("--front needs --front-key: give a key with scope client, or @FILE")
	}
	f, err := scriptedworker.NewFront(front, cfg.URL, secret)
	if err != nil {
		return fmt.Errorf("--front: %w", err)
	}
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	go func() { end(f.Serve(ctx)) }()
	return scriptedworker.Run(ctx, cfg)
}

// keyOf is the key that a flag holds, or that is in the file which the flag names.
func keyOf(flag, value string) (picket.Secret, error) {
	path, inFile := strings.CutPrefix(value, "@")
	if !inFile {
		return picket.Secret(value), nil
	}
	raw, err := os.ReadFile(path)
	if err != nil {
		return "", fmt.Errorf("%s: %w; give a key, or @FILE with a file that can be read", flag, err)
	}
	return picket.Secret(strings.TrimSpace(string(raw))), nil
}
