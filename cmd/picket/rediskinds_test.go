package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"testing"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/cmd/picket/settings"
	"github.com/picket-dev/picket/internal/rig"
	"github.com/picket-dev/picket/orchestrator"
)

// appUser are the arguments of a redis-server with a user for the server.
const appUser = "--user app on >pw ~* &* +@all"

// safeRedisArgs are settings of a Redis that no check complains about.
var safeRedisArgs = []string{"--appendonly", "yes", "--appendfsync", "always", "--min-replicas-to-write", "1",
	"--min-replicas-max-lag", "10"}

// A house stands on every kind of Redis that a URL can name: it checks it,
// founds its namespaces there and serves until it is closed.
func TestServerOnEveryKindOfRedis(t *testing.T) {
	sentinels := rig.StartSentinels(t,
		rig.SentinelConfig{Username: "watch", Password: "spw", Args: append(strings.Fields(appUser), safeRedisArgs...)})
	cluster := rig.StartCluster(t, append(strings.Fields(appUser), safeRedisArgs[:4]...)...)
	for kind, c := range map[string]struct {
		url        string
		namespaces []string
	}{
		"one server": {"redis://" + rig.StartNode(t, safeRedisArgs[:4]...).Addr, []string{"a", "b"}},
		"Sentinels": {"redis://app:pw@" + sentinels.Sentinels[0].Addr +
			"?master_name=picket&sentinel_username=watch&sentinel_password=spw", []string{"a", "b"}},
		"a Cluster": {"redis://app:pw@" + cluster.Nodes[0].Addr + "?cluster=true", cluster.Namespaces(t, 3)},
	} {
		t.Run(kind, func(t *testing.T) {
			cfg, err := loadTestSettings(t, "", "--redis", c.url, "--namespace", strings.Join(c.namespaces, ","))
			if err != nil {
				t.Fatal(err)
			}
			where, err := settings.ParseRedisURL(c.url)
			if err != nil {
				t.Fatal(err)
			}
			var log bytes.Buffer
			h := serverProcess{
				roles:         roles{true, true, true},
				cfg:           cfg,
				redis:         where,
				sealer:        rig.Sealer(),
				proxyURL:      "http://proxy",
				witnessDir:    t.TempDir(),
				createMissing: true,
				log:           slog.New(slog.NewTextHandler(&log, nil)),
			}
			store, err := h.openStore(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			serveAndComplete(t, h, store, c.namespaces)
			if !strings.Contains(log.String(), "the user may run FLUSHALL") {
				t.Errorf("no warning about the user in the log:\n%s", log.String())
			}
		})
	}
}

// serveAndComplete serves, takes one task of each namespace through its life, and stops.
func serveAndComplete(t *testing.T, h serverProcess, store *orchestrator.Store, namespaces []string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- h.serve(ctx, endpoints{{Listener: l, console: true}}, store) }()
	if err := awaitReady(t.Context(), store); err != nil {
		t.Error(err)
	}
	for _, ns := range namespaces {
		if err := oneTask(t.Context(), store.Engine(ns)); err != nil {
			t.Errorf("namespace %s: %v", ns, err)
		}
	}
	stop()
	if err := errors.Join(<-ended, store.Close()); err != nil {
		t.Errorf("stop: %v", err)
	}
}

func oneTask(ctx context.Context, e *orchestrator.Engine) error {
	by := picket.Caller{Actor: "test"}
	task, err := e.Submit(ctx, by, picket.TaskSpec{Title: "one", Review: picket.ReviewByNone})
	if err != nil {
		return err
	}
	leases, err := e.Acquire(ctx, by, picket.AcquireRequest{AgentID: "a"})
	if err != nil || len(leases) != 1 {
		return fmt.Errorf("%d leases: %w", len(leases), err)
	}
	held, err := rig.Sealer().OpenLeaseToken(leases[0].LeaseToken.Reveal())
	if err != nil {
		return err
	}
	if _, err := e.Complete(ctx, held, picket.Completion{}); err != nil {
		return err
	}
	task, err = e.Task(ctx, task.TaskID)
	if err == nil && (task.State != picket.TaskCompleted || task.FencingToken != 1) {
		err = fmt.Errorf("the task is %s with token %d", task.State, task.FencingToken)
	}
	return err
}
