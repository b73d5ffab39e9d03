package main

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"

	"github.com/picket-dev/picket/internal/seal"
	"github.com/picket-dev/picket/orchestrator"
	"github.com/redis/go-redis/v9"
)

// openStore opens Picket's state of record on a Redis of ours, as a process that
// may found it: its tokens begin at 1. Without pipelined, every script is a
// round trip of its own.
func openStore(ctx context.Context, r *redisServer, pipelined bool) (*orchestrator.Store, *seal.Sealer, error) {
	sealer, err := seal.New(bytes.Repeat([]byte("k"), 32))
	if err != nil {
		return nil, nil, err
	}
	witness, err := os.MkdirTemp(r.dir, "witness")
	if err != nil {
		return nil, nil, fmt.Errorf("make witness folder: %w", err)
	}
	store, err := orchestrator.Open(ctx, orchestrator.Config{
		Redis: redis.UniversalOptions{Addrs: []string{r.socket}}, Sealer: sealer, NoBatch: !pipelined,
		Witness: witness, Found: true, Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		return nil, nil, fmt.Errorf("open store: %w", err)
	}
	return store, sealer, nil
}
