package topology

import (
	"bufio"
	"cmp"
	"context"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/picket-dev/picket/internal/rig"
	"github.com/picket-dev/picket/orchestrator/proof/kit"
	"github.com/picket-dev/picket/orchestrator/store"
)

// findings of a store in one line each: "refused: …" or "warning: …".
func findings(t *testing.T, s rig.Store) []string {
	t.Helper()
	found, err := store.CheckDurability(t.Context(), s.Redis)
	kit.OK(t, err)
	var out []string
	for _, f := range found {
		grade := "warning: "
		if f.Refused {
			grade = "refused: "
		}
		if f.Remedy == "" {
			t.Errorf("no remedy for %q", f.Detail)
		}
		out = append(out, grade+f.Detail)
	}
	return out
}

// wantFinding checks that there is one finding with this beginning, or none for "".
func wantFinding(t *testing.T, s rig.Store, want string) {
	t.Helper()
	got := findings(t, s)
	if want == "" && len(got) == 0 || len(got) == 1 && want != "" && strings.HasPrefix(got[0], want) {
		return
	}
	t.Errorf("found %q, want %q", got, want)
}

// picketUser is a user without the commands that end a store.
const picketUser, picketPassword = "picket", "pw"

func asPicketUser(s rig.Store) rig.Store {
	s.Redis.Username, s.Redis.Password = picketUser, picketPassword
	return s
}

func addUser(t *testing.T, n *rig.Node, rules ...any) {
	t.Helper()
	kit.OK(t, n.Do(t.Context(), append([]any{"ACL", "SETUSER", picketUser, "reset", "on", ">" + picketPassword, "~*",
		"&*"},
		rules...)...).Err())
}

func TestDurabilityOfOneServer(t *testing.T) {
	n := rig.StartNode(t, kit.DurableSettings...)
	addUser(t, n, "+@all", "-@dangerous", "-@admin", "+info", "+config|get", "+acl|dryrun")
	s := asPicketUser(n.Store())
	wantFinding(t, s, "")
	for _, c := range []struct {
		parameter string
		value     string
		want      string
	}{
		{"maxmemory-policy", "allkeys-lru", "refused: maxmemory-policy is allkeys-lru"},
		{"maxmemory-policy", "volatile-ttl", "refused: maxmemory-policy is volatile-ttl"},
		{"appendfsync", "everysec", "warning: appendfsync is everysec: about a second"},
		{"appendfsync", "no", "refused: appendfsync is no"},
		{"no-appendfsync-on-rewrite", "yes", "refused: no-appendfsync-on-rewrite is yes"},
		{"appendonly", "no", "refused: appendonly is no"},
		{"min-replicas-to-write", "0", ""}, // it has none
	} {
		was, err := n.Do(t.Context(), "CONFIG", "GET", c.parameter).Result()
		kit.OK(t, err)
		kit.OK(t, n.Do(t.Context(), "CONFIG", "SET", c.parameter, c.value).Err())
		wantFinding(t, s, c.want)
		kit.OK(t, n.Do(t.Context(), "CONFIG", "SET", c.parameter, was.(map[any]any)[c.parameter]).Err())
	}
	wantFinding(t, s, "")
}

func TestDurabilityAsksAsAUser(t *testing.T) {
	n := rig.StartNode(t, kit.DurableSettings...)
	wantFinding(t, n.Store(), "warning: the user may run FLUSHALL, FLUSHDB, CONFIG SET, SHUTDOWN")
	wantFinding(t, rig.StartNode(t, append([]string{"--enable-debug-command", "local"},
		kit.DurableSettings...)...).Store(),
		"warning: the user may run FLUSHALL, FLUSHDB, DEBUG, CONFIG SET, SHUTDOWN")
	for rules, want := range map[string]string{
		"+@all":                            "warning: the user may run FLUSHALL, FLUSHDB, CONFIG SET, SHUTDOWN",
		"+@all -flushall -debug -shutdown": "warning: the user may run FLUSHDB, CONFIG SET:",
		"+@all -@dangerous +config|get":    "refused: the user may not ask what kind of server this is",
		"+@all -@dangerous +info":          "refused: the user may not ask how the server keeps its data",
		"+info +config|get +eval +fcall +function +mget +mset +zmscore +debug": "refused: the user may not ask whether the " +
			"server loads all that it keeps",
		"+info +config|get +eval +fcall +function +mget +mset +zmscore +debug +acl|dryrun": "",
		"+info +config|get +ping +acl|dryrun":                                              "refused: the user may not run scripts",
		"+info +config|get +eval +evalsha +acl|dryrun": "refused: the user may not load or call the functions of Picket: " +
			"it lacks +fcall +function|load +function|list +function|delete +mget +mset +zmscore",
		"+info +config|get +eval +fcall +function|load +function|list +mset +acl|dryrun": "refused: the user may not " +
			"load or call the functions of Picket: it lacks +function|delete +mget +zmscore",
		"+info +config|get +eval +fcall +function +mget +mset +zmscore " +
			"+@dangerous -flushall -flushdb -debug -shutdown -config +config|get": "",
	} {
		var words []any
		for _, w := range strings.Fields(rules) {
			words = append(words, w)
		}
		addUser(t, n, words...)
		t.Run(rules, func(t *testing.T) { wantFinding(t, asPicketUser(n.Store()), want) })
	}
	// Anyone who may not even say its name is not a finding: the store cannot be reached.
	s := asPicketUser(n.Store())
	s.Redis.Password = "wrong"
	if found, err := store.CheckDurability(t.Context(), s.Redis); err == nil {
		t.Errorf("a wrong password found %v", found)
	}
	n.Kill()
	if found, err := store.CheckDurability(t.Context(), n.Store().Redis); err == nil {
		t.Errorf("a server that is away found %v", found)
	}
}

func TestDurabilityWithReplicas(t *testing.T) {
	s := rig.StartSentinels(t,
		rig.SentinelConfig{
			Args: append([]string{"--user", picketUser, "on", ">" + picketPassword, "~*", "&*", "+@all", "-@dangerous",
				"+info", "+config|get", "+acl|dryrun"}, kit.DurableSettings...),
		})
	primary, replica := s.Nodes[0], s.Nodes[1]
	wantFinding(t, asPicketUser(replica.Store()), "refused: the server is a replica of 127.0.0.1:")
	wantFinding(t, s.Sentinels[0].Store(), "refused: the server is a Sentinel")
	for _, c := range []struct {
		least string
		lag   string
		want  string
	}{
		{"0", "10", "and min-replicas-to-write is 0"},
		{"1", "0", "and min-replicas-max-lag is 0"},
		{"1", "600", "and min-replicas-max-lag is 600"},
		{"1", "10", ""},
		{"2", "1", ""},
	} {
		kit.OK(t, primary.Do(t.Context(), "CONFIG", "SET", "min-replicas-to-write", c.least, "min-replicas-max-lag",
			c.lag).
			Err())
		for who, where := range map[string]rig.Store{
			"the server has 1 replicas ":        primary.Store(),
			"Sentinels fail over to a replica ": s.Store(),
		} {
			want := c.want
			if want != "" {
				want = "refused: " + who + want
			}
			wantFinding(t, asPicketUser(where), want)
		}
	}
	// Sentinels alone are reason enough, also while no replica is there.
	kit.OK(t, primary.Do(t.Context(), "CONFIG", "SET", "min-replicas-to-write", "0").Err())
	kit.OK(t, s.CutLinks(primary))
	wantFinding(t, asPicketUser(primary.Store()), "")
	wantFinding(t, asPicketUser(s.Store()), "refused: Sentinels fail over")
}

// Redis loads its file as the user default: what that one may not do is gone
// after the next start, no matter who wrote it.
func TestDurabilityAsksWhatIsLoaded(t *testing.T) {
	n := rig.StartNode(t, kit.DurableSettings...)
	addUser(t, n, "+@all")
	const asked = "warning: the user may run "
	s := asPicketUser(n.Store())
	wantFinding(t, s, asked)
	admin := redis.NewUniversalClient(&s.Redis)
	defer admin.Close()
	for _, c := range []struct {
		rules string
		lacks string
	}{
		{"reset off", "SET, DEL, PEXPIREAT, HSET, 14 more:"},
		{"reset off +@all", "SET, DEL"},
		{"reset off ~* -@all", "SET, DEL"},
		{"reset off ~pk:* +@all -xadd", "XADD:"},
		{"reset off ~* &* +@all", ""},
		{"reset on nopass ~pk:* +@write", ""},
	} {
		kit.OK(t, admin.Do(t.Context(), append([]any{"ACL", "SETUSER", "default"}, commandArgs(c.rules)...)...).Err())
		got := findings(t, s)
		switch {
		case c.lacks == "" && len(got) == 1:
		case c.lacks != "" && len(got) == 2 &&
			strings.HasPrefix(got[1],
				"refused: Redis loads its append-only file as the user default, and that one may not "+c.lacks):
		default:
			t.Errorf("with %q: %q", c.rules, got)
		}
	}
}

// On a Cluster every primary is asked.
func TestDurabilityOfACluster(t *testing.T) {
	c := rig.StartCluster(t, kit.DurableSettings...)
	for _, n := range c.Nodes {
		addUser(t, n, "+@all", "-@dangerous", "+info", "+config|get", "+acl|dryrun")
	}
	wantFinding(t, asPicketUser(c.Store()), "")
	wantFinding(t, asPicketUser(c.Nodes[1].Store()), "refused: the server is a node of a Redis Cluster")
	for _, n := range c.Nodes {
		kit.OK(t, n.Do(t.Context(), "CONFIG", "SET", "maxmemory-policy", "allkeys-lfu").Err())
		wantFinding(t, asPicketUser(c.Store()), "refused: maxmemory-policy is allkeys-lfu")
		found, err := store.CheckDurability(t.Context(), asPicketUser(c.Store()).Redis)
		kit.OK(t, err)
		if len(found) != 1 || found[0].Node != n.Addr {
			t.Errorf("found %+v, want one on %s", found, n.Addr)
		}
		kit.OK(t, n.Do(t.Context(), "CONFIG", "SET", "maxmemory-policy", "noeviction").Err())
	}
	alone := rig.StartNode(t, kit.DurableSettings...).Store()
	alone.Redis.IsClusterMode = true
	wantFinding(t, alone, "refused: the server is not a node of a Redis Cluster")
	c.Nodes[2].Kill()
	if found, err := store.CheckDurability(t.Context(), asPicketUser(c.Store()).Redis); err == nil {
		t.Errorf("with a node away: %v", found)
	}
}

func TestAnOldServerIsRefused(t *testing.T) {
	for version, want := range map[string]string{
		"6.2.14": `refused: the server is Redis "6.2.14"`,
		"5.0.3":  `refused: the server is Redis "5.0.3"`,
		"":       "refused: the server is Redis",
	} {
		wantFinding(t, fakeRedis(t, version, "ok"), want)
	}
	wantFinding(t, fakeRedis(t, "7.0.0", "ok"), "")
	wantFinding(t, fakeRedis(t, "8.2.1", "ok"), "")
}

// Some services that run a Redis for others know no CONFIG at all.
func TestAServerThatDoesNotTellIsRefused(t *testing.T) {
	wantFinding(t, fakeRedis(t, "7.0.15", "ok", "CONFIG"),
		"refused: the user may not ask how the server keeps its data: ERR unknown command")
}

func TestAFileThatCannotBeWrittenIsSeen(t *testing.T) {
	wantFinding(t, fakeRedis(t, "7.0.15", "err"), "refused: the last write of the append-only file failed")
}

// fakeRedis answers what the checks ask as a durable server of that version would.
func fakeRedis(t *testing.T, version, written string, unknown ...string) rig.Store {
	t.Helper()
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", path)
	kit.OK(t, err)
	t.Cleanup(func() { _ = l.Close() })
	info := "redis_version:" + version + "\r\nredis_mode:standalone\r\nrole:master\r\naof_last_write_status:" +
		written + "\r\n"
	answers := map[string]string{
		"INFO":   fmt.Sprintf("$%d\r\n%s\r\n", len(info), info),
		"CONFIG": "*6\r\n+appendonly\r\n+yes\r\n+appendfsync\r\n+always\r\n+maxmemory-policy\r\n+noeviction\r\n",
		"EVAL":   "*0\r\n",
		"ACL":    "+OK\r\n",
	}
	for _, command := range unknown {
		delete(answers, command)
	}
	go func() {
		for c, err := l.Accept(); err == nil; c, err = l.Accept() {
			go answerCommands(c, answers)
		}
	}()
	return rig.Store{
		Redis: redis.UniversalOptions{
			Addrs: []string{"fake"},
			Dialer: func(ctx context.Context, _, _ string) (net.Conn, error) {
				return new(net.Dialer).DialContext(ctx, "unix", path)
			},
		},
	}
}

// answerCommands answers commands by their first word until the other side hangs up.
func answerCommands(c net.Conn, answers map[string]string) {
	defer c.Close()
	for in := bufio.NewReader(c); ; {
		count := 0
		if _, err := fmt.Fscanf(in, "*%d\r\n", &count); err != nil {
			return
		}
		words := make([]string, count)
		for i := range words {
			size := 0
			if _, err := fmt.Fscanf(in, "$%d\r\n", &size); err != nil {
				return
			}
			word := make([]byte, size+2)
			if _, err := io.ReadFull(in, word); err != nil {
				return
			}
			words[i] = string(word[:size])
		}
		if _, err := io.WriteString(c,
			cmp.Or(answers[strings.ToUpper(words[0])], "-ERR unknown command\r\n")); err != nil {
			return
		}
	}
}
