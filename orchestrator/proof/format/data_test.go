package format

import (
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/picket-dev/picket/internal/rig"
	"github.com/picket-dev/picket/orchestrator"
	"github.com/picket-dev/picket/orchestrator/proof/kit"
)

func metaKey(namespace string) string { return "pk:{" + namespace + "}:meta" }

// namespaces are those of a server, in order.
func namespaces(t *testing.T, raw redis.UniversalClient) (names []string) {
	t.Helper()
	keys := raw.Scan(t.Context(), 0, metaKey("*"), 1000).Iterator()
	for keys.Next(t.Context()) {
		names = append(names, keys.Val()[len("pk:{"):len(keys.Val())-len("}:meta")])
	}
	kit.OK(t, keys.Err())
	slices.Sort(names)
	return slices.Compact(names)
}

// recordKeys are the keys of a namespace that have a record of a task, a run or an envelope.
func recordKeys(t *testing.T, raw redis.UniversalClient, namespace string) (found []string) {
	t.Helper()
	for _, kind := range []string{"task:", "run:", "env:"} {
		keys := raw.Scan(t.Context(), 0, "pk:{"+namespace+"}:"+kind+"*", 1000).Iterator()
		for keys.Next(t.Context()) {
			found = append(found, keys.Val())
		}
		kit.OK(t, keys.Err())
	}
	slices.Sort(found)
	return slices.Compact(found)
}

var identity = regexp.MustCompile(`(?s)run_id:(\w+).*master_replid:(\w+)`)

// takeOver makes a server the one that all its namespaces were adopted on. Nothing is adopted then,
// and leases go on.
func takeOver(t *testing.T, raw redis.UniversalClient) {
	t.Helper()
	info, err := raw.Info(t.Context(), "server", "replication").Result()
	kit.OK(t, err)
	who := identity.FindStringSubmatch(info)
	for _, name := range namespaces(t, raw) {
		kit.OK(t, raw.HSet(t.Context(), metaKey(name), "identity", strings.Join(who[1:], " ")).Err())
	}
}

// startOn starts a server that has the data of a format.
func startOn(t *testing.T, format string) (rig.Store, redis.UniversalClient) {
	t.Helper()
	rig.SkipShort(t)
	dir := t.TempDir()
	kit.OK(t, os.WriteFile(filepath.Join(dir, "dump.rdb"), unpack(t, format+".rdb.gz"), 0o600))
	where, _ := rig.RealServer(t, "--dir", dir)
	where = where.Patient()
	raw := redis.NewUniversalClient(&where.Redis)
	t.Cleanup(func() { _ = raw.Close() })
	takeOver(t, raw)
	return where, raw
}

// open opens a store whose verbs read the clock of the tests.
func open(t *testing.T, where rig.Store, namespaces []string) *orchestrator.Store {
	t.Helper()
	s, err := orchestrator.Open(t.Context(), configOf(t, where, namespaces))
	kit.OK(t, err)
	t.Cleanup(func() { _ = s.Close() })
	kit.Rewrite(s, kit.UseTestClock)
	return s
}

func configOf(t *testing.T, where rig.Store, namespaces []string) orchestrator.Config {
	return orchestrator.Config{Redis: where.Redis, Namespaces: namespaces, Sealer: rig.Sealer(),
		ProxyURL: "http://proxy", Witness: t.TempDir(), Found: true, Log: slog.New(slog.DiscardHandler),
		Now: kit.FastClock()}
}
