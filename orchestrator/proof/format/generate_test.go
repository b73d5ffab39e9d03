package format

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/picket-dev/picket/internal/rig"
	"github.com/picket-dev/picket/orchestrator/proof/calls"
	"github.com/picket-dev/picket/orchestrator/proof/kit"
)

// TestWriteTheDataOfThisFormat writes the test data of the format of this build; see the
// documentation of the package.
func TestWriteTheDataOfThisFormat(t *testing.T) {
	dir := os.Getenv("PICKET_FORMAT_DATA")
	if dir == "" {
		t.Skip("PICKET_FORMAT_DATA names no directory")
	}
	where, _ := rig.RealServer(t, "--rdbcompression", "no")
	where.Redis.ReadTimeout = 20 * time.Second
	raw := redis.NewUniversalClient(&where.Redis)
	defer raw.Close()
	copyCases(t, raw)
	setClock(t, raw, clock(t, raw))
	s := open(t, where, []string{"team"})
	f := &kit.Fixture{Engine: s.Engine("team"), Store: s, Sealer: rig.Sealer(), Ctx: t.Context(), Raw: raw,
		RigStore: where}
	(&story{Fixture: f, t: t}).tell()
	library := s.Connection().Program().Library()
	kit.OK(t, s.Close())

	for keys := raw.Scan(t.Context(), 0, "*", 1000).Iterator(); keys.Next(t.Context()); {
		kit.OK(t, raw.Persist(t.Context(), keys.Val()).Err())
	}
	kit.OK(t, raw.FunctionFlush(t.Context()).Err())
	takeOver(t, raw)
	kit.OK(t, raw.Save(t.Context()).Err())
	format, err := raw.HGet(t.Context(), metaKey("team"), "format").Result()
	kit.OK(t, err)
	base := filepath.Join(dir, "format"+format)
	pack(t, base+".lua.gz", []byte(library.Loaded(time.Unix(0, 0))))
	pack(t, base+".rdb.gz", savedFile(t, raw))

	names := namespaces(t, raw)
	s = open(t, where, names)
	said := map[string]answers{}
	for _, name := range names {
		said[name] = askEverything(t, s.Engine(name), raw)
	}
	pack(t, base+".json.gz", text(said))
}

// copyCases makes a namespace of what a case of the package calls leaves, for one case of each
// verb that leave a task or an envelope. The key rig-cases has the name of the case of each namespace.
func copyCases(t *testing.T, to redis.UniversalClient) {
	from := rig.Real(t).Patient()
	copied := map[string]bool{}
	for i, c := range calls.All() {
		if copied[c.Script()] {
			continue
		}
		w := calls.Setup{T: t, Store: from}.NewEnv()
		c.Setup(w)
		_, err := c.Call(w, w.Via)
		kit.OK(t, err)
		if w.Raw.HExists(t.Context(), metaKey("default"), "store").Val() && len(recordKeys(t, w.Raw, "default")) > 0 {
			name := fmt.Sprintf("c%03d", i)
			copied[c.Script()] = true
			copyNamespace(t, w.Raw, to, name)
			kit.OK(t, to.HSet(t.Context(), "rig-cases", name, c.Name).Err())
			setClock(t, to, max(clock(t, to), clock(t, w.Raw)))
		}
		w.Close()
	}
}

// copyNamespace copies the namespace default to another server, under a name and without
// times at which keys expire.
func copyNamespace(t *testing.T, from, to redis.UniversalClient, name string) {
	t.Helper()
	keys := from.Scan(t.Context(), 0, "pk:{default}:*", 1000).Iterator()
	for keys.Next(t.Context()) {
		value, err := from.Dump(t.Context(), keys.Val()).Result()
		kit.OK(t, err)
		key := "pk:{" + name + "}:" + strings.TrimPrefix(keys.Val(), "pk:{default}:")
		kit.OK(t, to.RestoreReplace(t.Context(), key, 0, value).Err())
	}
	kit.OK(t, keys.Err())
}

// clock is the second at which the clock of the tests stands.
func clock(t *testing.T, raw redis.UniversalClient) int64 {
	t.Helper()
	s, _ := strconv.ParseInt(raw.HGet(t.Context(), "rig-clock", "s").Val(), 10, 64)
	return s
}

// setClock sets the clock of the tests to a second.
func setClock(t *testing.T, raw redis.UniversalClient, s int64) {
	t.Helper()
	kit.OK(t, raw.HSet(t.Context(), "rig-clock", "s", s, "us", 0).Err())
}

// savedFile is what SAVE has written.
func savedFile(t *testing.T, raw redis.UniversalClient) []byte {
	t.Helper()
	settings, err := raw.ConfigGet(t.Context(), "dir").Result()
	kit.OK(t, err)
	data, err := os.ReadFile(filepath.Join(settings["dir"], "dump.rdb"))
	kit.OK(t, err)
	return data
}
