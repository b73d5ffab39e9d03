package topology

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/picket-dev/picket/internal/rig"
	"github.com/picket-dev/picket/orchestrator/proof/branches"
	"github.com/picket-dev/picket/orchestrator/proof/kit"
	"github.com/picket-dev/picket/orchestrator/store"
)

// docBlock is a code block of docs/redis.md, named on its first line.
func docBlock(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile("../../../docs/redis.md")
	kit.OK(t, err)
	found := regexp.MustCompile("(?s)\n```"+name+"\n(.*?)```").FindAllStringSubmatch(string(text), -1)
	if len(found) != 1 {
		t.Fatalf("docs/redis.md has %d blocks %q", len(found), name)
	}
	return found[0][1]
}

func aclFile(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "users.acl")
	kit.OK(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

// With the rights of the documentation every script runs and no check finds
// anything; what ends a store does not run.
func TestACLOfTheDocuments(t *testing.T) {
	n := rig.StartNode(t, append([]string{"--aclfile", aclFile(t, docBlock(t, "acl"))}, kit.DurableSettings...)...)
	where := n.Store()
	where.Redis.Username, where.Redis.Password = "admin", "CHANGE-THIS"
	admin := rig.Hashes(redis.NewUniversalClient(&where.Redis))
	defer admin.Close()
	where.Redis.Username, where.Redis.Password = "picket", "CHANGE-THIS-TOO"
	wantFinding(t, where, "")
	kit.OK(t, admin.ConfigSet(t.Context(), "appendfsync", "no").Err()) // this test is not about that
	f := kit.OpenWith(t, where.Patient(), false)
	defer f.Close()
	own := f.Raw
	defer own.Close()
	f.Raw = rig.Hashes(admin) // the calls plant damage past the engine
	branches.Cover(t, f)
	_, err := kit.ToFormat1(f.Ctx, admin, "default")
	kit.OK(t, err)
	states, err := store.CheckFormat(f.Ctx, f.Ctx, where.Redis, []string{"default"}, func(int64) {})
	kit.OK(t, err)
	if len(states) != 1 || !states[0].Old() || states[0].Records == 0 {
		t.Errorf("the format is %v", states)
	}
	refusals, err := admin.Do(f.Ctx, "ACL", "LOG").Slice()
	kit.OK(t, err)
	if len(refusals) > 0 {
		t.Errorf("Picket was refused: %v", refusals)
	}
	for _, line := range []string{"FLUSHALL", "FLUSHDB", "CONFIG SET maxmemory 1", "CONFIG REWRITE", "SHUTDOWN NOSAVE",
		"KEYS *", "MEMORY USAGE other",
		"SCRIPT FLUSH", "REPLICAOF NO ONE", "ACL SETUSER x", "MONITOR", "SAVE", "BGREWRITEAOF", "SWAPDB 0 1",
		"MIGRATE h 1 k 0 1", "RESTORE k 0 v",
		"SET other 1", "GET other", "PUBLISH other x", "SUBSCRIBE other", "CLIENT KILL TYPE normal", "FAILOVER",
		"CLUSTER RESET", "FUNCTION FLUSH"} {
		if err := own.Do(f.Ctx, commandArgs(line)...).Err(); !redis.HasErrorPrefix(err, "NOPERM") {
			t.Errorf("%s answers %v", line, err)
		}
	}
	// DEBUG is switched off besides, so there the rights alone are asked.
	may, err := admin.Do(f.Ctx, commandArgs("ACL DRYRUN picket DEBUG JMAP")...).Text()
	if err == nil && may == "OK" || own.Do(f.Ctx, "DEBUG", "JMAP").Err() == nil {
		t.Errorf("DEBUG is allowed: %s, %v", may, err)
	}
	anonymous := redis.NewClient(&redis.Options{Addr: n.Addr})
	defer anonymous.Close()
	if err := anonymous.Ping(t.Context()).Err(); err == nil {
		t.Error("the default user may do something")
	}
	// All of it is there again when Redis was: it loads its file as that user.
	kept := func() []string {
		keys, err := admin.Keys(f.Ctx, "*:task:*").Result()
		kit.OK(t, err)
		slices.Sort(keys)
		return keys
	}
	before := kept()
	n.Kill()
	n.Start()
	kit.WaitFor(t, "the file is loaded", func() bool { return admin.DBSize(f.Ctx).Err() == nil })
	if after := kept(); len(before) == 0 || !slices.Equal(after, before) {
		t.Errorf("of %d tasks %d are left after a restart of Redis", len(before), len(after))
	}
}

func commandArgs(line string) []any {
	var out []any
	for _, word := range strings.Fields(line) {
		out = append(out, word)
	}
	return out
}

// The same rights do on a Cluster.
func TestACLOfTheDocumentsOnACluster(t *testing.T) {
	text := strings.Replace(docBlock(t, "acl"), "user default off", "user default on nopass", 1) // for the rig
	c := rig.StartCluster(t, append([]string{"--aclfile", aclFile(t, text)}, kit.DurableSettings...)...)
	where := c.Store()
	where.Redis.Username, where.Redis.Password = "picket", "CHANGE-THIS-TOO"
	wantFinding(t, where, "")
	names := c.Namespaces(t, 2)
	workers := kit.OpenWith(t, where, false, names...)
	defer workers.Close()
	people := kit.OpenWith(t, where, true, names...)
	defer people.Close()
	for _, ns := range names {
		kit.OK(t, kit.RunOneTask(t.Context(), people.Store.Engine(ns), workers.Store.Engine(ns), workers.Sealer))
	}
	for _, n := range c.Nodes {
		refusals, err := n.Do(t.Context(), "ACL", "LOG").Slice()
		kit.OK(t, err)
		if len(refusals) > 0 {
			t.Errorf("Picket was refused on %s: %v", n.Addr, refusals)
		}
	}
}

// usedByGo are the rights that the driver and the code around the scripts use.
var usedByGo = []string{"eval", "fcall", "function|load", "function|list", "function|delete", "info", "config|get",
	"acl|dryrun", "select", "command", "cluster|slots",
	"ping", "subscribe", "unsubscribe", "xrange", "xrevrange", "hget"}

// The documented rights are exactly those in use. If a script uses another command, add it here.
func TestACLGrantsWhatIsUsed(t *testing.T) {
	used := slices.Clone(usedByGo)
	calls := regexp.MustCompile(`\b(?:call|call_now|redis_p?call|write|write_values|pcall|call_for_keys)\('([A-Z]+)'`)
	for _, f := range kit.LuaSources(t) {
		for _, m := range calls.FindAllStringSubmatch(f.Code(), -1) {
			used = append(used, strings.Replace(strings.ToLower(m[1]), "memory", "memory|usage", 1))
		}
	}
	slices.Sort(used)
	used = slices.Compact(used)
	if len(used) < 40 {
		t.Fatalf("found %d commands only", len(used))
	}
	var granted []string
	for line := range strings.Lines(docBlock(t, "acl")) {
		if strings.HasPrefix(line, "user picket ") {
			for _, word := range strings.Fields(line) {
				if right, ok := strings.CutPrefix(word, "+"); ok {
					granted = append(granted, right)
				}
			}
		}
	}
	for _, right := range used {
		if !slices.Contains(granted, right) {
			t.Errorf("the user of docs/redis.md lacks +%s", right)
		}
	}
	for _, right := range granted {
		if !slices.Contains(used, right) {
			t.Errorf("the user of docs/redis.md has +%s, which nothing uses", right)
		}
	}
}
