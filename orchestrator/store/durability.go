package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// Finding is one thing about a Redis server that puts at risk what Picket has
// acknowledged.
type Finding struct {
	Node    string // address of the server; empty where there is only one
	Refused bool   // a start has to be refused; otherwise it is a warning
	Detail  string // what is wrong and what it can cost
	Remedy  string // what to do about it
}

// maxReplicaLag is how long, in seconds, a primary may go on taking writes that
// no replica has acknowledged. It is also Redis' own default.
const maxReplicaLag = 10

// CheckDurability asks every primary of a store how it keeps what it is told.
// No finding means that an acknowledged transition survives the end of a
// process, and with replicas that a primary without them stops taking writes.
// The error says that a server does not answer.
func CheckDurability(ctx context.Context, where redis.UniversalOptions) ([]Finding, error) {
	where.MaxRetries, where.DialerRetries, where.ContextTimeoutEnabled = -1, 1, true
	where.DialTimeout = cmp.Or(where.DialTimeout, time.Second)
	client := redis.NewUniversalClient(&where)
	defer client.Close()
	cluster, spread := client.(*redis.ClusterClient)
	if !spread {
		one, single := client.(*redis.Client)
		if !single {
			return nil, fmt.Errorf("check durability: %T is not a client of one server", client)
		}
		n := node{client: one, sentinel: where.MasterName != ""}
		return n.check(ctx)
	}
	var mu sync.Mutex
	var all []Finding
	err := cluster.ForEachMaster(ctx, func(ctx context.Context, c *redis.Client) error {
		n := node{client: c, name: c.Options().Addr, cluster: true}
		found, err := n.check(ctx)
		mu.Lock()
		defer mu.Unlock()
		all = append(all, found...)
		return err
	})
	if err != nil && strings.Contains(err.Error(), "cluster support disabled") {
		return []Finding{{Refused: true, Detail: "the server is not a node of a Redis Cluster",
			Remedy: "Leave addr and cluster out of the URL for one server; add master_name=NAME for Sentinels."}}, nil
	}
	slices.SortStableFunc(all, func(a, b Finding) int { return strings.Compare(a.Node, b.Node) })
	return all, err
}

// node is one primary under examination.
type node struct {
	client   *redis.Client
	name     string
	sentinel bool
	cluster  bool
	info     map[string]string
	config   map[string]string
	findings []Finding
}

func (n *node) refuse(remedy, detail string, a ...any) {
	n.findings = append(n.findings, Finding{n.name, true, fmt.Sprintf(detail, a...), remedy})
}

func (n *node) warn(remedy, detail string, a ...any) {
	n.findings = append(n.findings, Finding{n.name, false, fmt.Sprintf(detail, a...), remedy})
}

func (n *node) check(ctx context.Context) ([]Finding, error) {
	for _, ask := range []func(context.Context) (known bool, err error){n.readInfo, n.readConfig} {
		if known, err := ask(ctx); !known || err != nil {
			return n.findings, err
		}
	}
	n.checkMemory()
	n.checkFile()
	n.checkReplicas()
	if err := n.checkUser(ctx); err != nil {
		return n.findings, err
	}
	return n.findings, n.checkLoading(ctx)
}

// readInfo learns what kind of server this is; one of the wrong kind is not
// asked further.
func (n *node) readInfo(ctx context.Context) (bool, error) {
	text, err := n.client.Info(ctx).Result()
	if noPermission(err) {
		n.refuse("Allow the user INFO: ACL SETUSER … +info.", "the user may not ask what kind of server this is: %v",
			err)
		return false, nil
	}
	if err != nil {
		return false, err
	}
	n.info = parseInfo(text)
	version := n.info["redis_version"]
	major, _, _ := strings.Cut(version, ".")
	if v, err := strconv.Atoi(major); err != nil || v < 7 {
		n.refuse("Use Redis 7.0 or newer.", "the server is Redis %q", version)
		return false, nil
	}
	mode := n.info["redis_mode"]
	switch {
	case mode == "sentinel":
		n.refuse("Add ?master_name=NAME to the URL: the primary is found through the Sentinel.",
			"the server is a Sentinel, which keeps nothing")
	case mode == "cluster" && !n.cluster:
		n.refuse("Name its other nodes in the URL: ?addr=HOST:PORT&addr=HOST:PORT.",
			"the server is a node of a Redis Cluster")
	case n.info["role"] != "master":
		n.refuse("Name its primary, or the Sentinels that know it (?master_name=NAME&addr=HOST:PORT).",
			"the server is a replica of %s:%s", n.info["master_host"], n.info["master_port"])
	default:
		return true, nil
	}
	return false, nil
}

func (n *node) readConfig(ctx context.Context) (bool, error) {
	settings := redis.NewMapStringStringCmd(ctx, "CONFIG", "GET", "maxmemory-policy", "appendonly", "appendfsync",
		"no-appendfsync-on-rewrite", "min-replicas-to-write", "min-replicas-max-lag", "enable-debug-command")
	err := n.client.Process(ctx, settings)
	n.config = settings.Val()
	if refusal := redis.Error(nil); errors.As(err, &refusal) {
		n.refuse("Allow the user CONFIG GET: ACL SETUSER … +config|get. Where the service that runs it does not allow it, Picket cannot know what it keeps.",
			"the user may not ask how the server keeps its data: %v", err)
		return false, nil
	}
	return err == nil, err
}

func (n *node) checkMemory() {
	if policy := n.config["maxmemory-policy"]; policy != "noeviction" {
		n.refuse("CONFIG SET maxmemory-policy noeviction, and the same in redis.conf.",
			"maxmemory-policy is %s: an evicted key is a lost task", policy)
	}
}

func (n *node) checkFile() {
	if n.config["appendonly"] != "yes" {
		n.refuse("CONFIG SET appendonly yes, then appendfsync always, and the same in redis.conf.",
			"appendonly is %s: everything since the last snapshot is lost when the server ends", n.config["appendonly"])
		return
	}
	const always = "CONFIG SET appendfsync always, and the same in redis.conf."
	switch fsync := n.config["appendfsync"]; fsync {
	case "always":
	case "everysec":
		n.warn(always,
			"appendfsync is everysec: about a second of acknowledged transitions, two at most, is lost when the machine fails")
	default:
		n.refuse(always,
			"appendfsync is %s: half a minute of acknowledged transitions, or more, is lost when the machine fails",
			fsync)
	}
	if n.config["no-appendfsync-on-rewrite"] == "yes" {
		n.refuse("CONFIG SET no-appendfsync-on-rewrite no, and the same in redis.conf.",
			"no-appendfsync-on-rewrite is yes: while the file is rewritten, acknowledged transitions are not on the disk")
	}
	if status := n.info["aof_last_write_status"]; status != "" && status != "ok" {
		n.refuse("Free the server's disk or repair it; its log says what is wrong.",
			"the last write of the append-only file failed")
	}
}

// checkReplicas: a primary that was cut off its replicas must not go on taking
// writes while one of them is promoted.
func (n *node) checkReplicas() {
	replicas, _ := strconv.Atoi(n.info["connected_slaves"])
	if replicas == 0 && !n.sentinel {
		return
	}
	least, _ := strconv.Atoi(n.config["min-replicas-to-write"])
	lag, _ := strconv.Atoi(n.config["min-replicas-max-lag"])
	who := fmt.Sprintf("the server has %d replicas", replicas)
	if n.sentinel {
		who = "Sentinels fail over to a replica"
	}
	if least < 1 {
		n.refuse(fmt.Sprintf("CONFIG SET min-replicas-to-write 1 min-replicas-max-lag %d, and the same in redis.conf of every replica.", maxReplicaLag),
			"%s and min-replicas-to-write is %d: cut off, it goes on taking writes that a failover loses", who, least)
		return
	}
	if lag < 1 || lag > maxReplicaLag {
		n.refuse(fmt.Sprintf("CONFIG SET min-replicas-max-lag %d, and the same in redis.conf of every replica; 0 switches the check off.", maxReplicaLag),
			"%s and min-replicas-max-lag is %d: cut off, it goes on taking writes for too long", who, lag)
	}
}

// dangerousCommands are commands that end a store in one step, as they are called and
// as they are asked about. Picket needs none.
var dangerousCommands = []struct {
	name string
	line string
}{
	{"FLUSHALL", "FLUSHALL"}, {"FLUSHDB", "FLUSHDB"}, {"DEBUG", "DEBUG JMAP"}, {"CONFIG SET", "CONFIG SET maxmemory 0"},
	{"SHUTDOWN", "SHUTDOWN"},
}

// neededCommands are commands that access control lists for earlier versions lack: those that load and call the
// library, and those for several records and scores. Each has the name of its right, and a command line with which
// Redis is asked for it.
var neededCommands = []struct {
	right string
	line  string
}{
	{"fcall", "FCALL f 1 pk:{check}:meta"}, {"function|load", "FUNCTION LOAD code"},
	{"function|list", "FUNCTION LIST"}, {"function|delete", "FUNCTION DELETE picket"},
	{"mget", "MGET pk:{check}:k"}, {"mset", "MSET pk:{check}:k v"},
	{"zmscore", "ZMSCORE pk:{check}:k m"},
}

// checkUser asks without trying: a probe of FLUSHALL that somebody's Redis
// understands differently would be the accident itself.
func (n *node) checkUser(ctx context.Context) error {
	const script = `local may = {}
for i, line in ipairs(ARGV) do
  local words = {}
  for word in string.gmatch(line, '%S+') do words[#words + 1] = word end
  local known, allowed = pcall(redis.acl_check_cmd, unpack(words)) -- a renamed command is unknown
  may[i] = known and allowed and 1 or 0
end
return may`
	args := []any{"EVAL", script, 0}
	for _, command := range dangerousCommands {
		args = append(args, command.line)
	}
	for _, command := range neededCommands {
		args = append(args, command.line)
	}
	may, err := n.client.Do(ctx, args...).Int64Slice()
	if noPermission(err) {
		n.refuse("Allow the user EVAL and what the ACL file in docs/redis.md lists.",
			"the user may not run scripts: %v", err)
		return nil
	}
	if err != nil {
		return err
	}
	var lacks []string
	for i, command := range neededCommands {
		if at := len(dangerousCommands) + i; at < len(may) && may[at] == 0 {
			lacks = append(lacks, "+"+command.right)
		}
	}
	if len(lacks) > 0 {
		n.refuse(fmt.Sprintf("ACL SETUSER … %s, and the same in the ACL file; docs/redis.md has the whole list.",
			strings.Join(lacks, " ")),
			"the user may not load or call the functions of Picket: it lacks %s", strings.Join(lacks, " "))
		return nil
	}
	var names []string
	for i, command := range dangerousCommands {
		switchedOff := command.name == "DEBUG" && n.config["enable-debug-command"] == "no"
		if i < len(may) && may[i] == 1 && !switchedOff {
			names = append(names, command.name)
		}
	}
	if len(names) > 0 {
		n.warn("Give Picket a user of its own with the ACL file in docs/redis.md, and name it in the URL: redis://USER:PASSWORD@HOST.",
			"the user may run %s: one such command ends the store", strings.Join(names, ", "))
	}
	return nil
}

func noPermission(err error) bool { return err != nil && redis.HasErrorPrefix(err, "NOPERM") }

// replayUser is the user as which Redis replays its append-only file. What is in a
// transaction there, as all that a script has changed is, it leaves out where
// this user may not do it, reports it in its own log alone, and serves what is left.
const replayUser = "default"

// replayedWrites are the writes of transitions, as they stand in the file.
var replayedWrites = []string{
	"SET k v", "DEL k", "PEXPIREAT k 1", "HSET k f v", "HDEL k f", "HINCRBY k f 1", "SADD k m", "ZADD k 1 m",
	"ZREM k m", "ZREMRANGEBYSCORE k 0 1",
	"LPUSH k v", "RPUSH k v", "LPOP k", "LTRIM k 0 1", "XADD k 1-1 f v", "XDEL k 1-1", "XTRIM k MAXLEN 1", "MSET k v",
}

// checkLoading asks whether the server would load at its next start what it
// keeps now.
func (n *node) checkLoading(ctx context.Context) error {
	const remedy = "ACL SETUSER default ~* &* +@all, and the same in the ACL file; with off nobody can sign in as this user."
	var lacks []string
	for _, write := range replayedWrites {
		may, err := n.mayDefault(ctx, strings.Fields(strings.Replace(write, " k", " pk:{check}:k", 1)))
		if refusal := redis.Error(nil); errors.As(err, &refusal) {
			n.refuse("Allow the user to ask: ACL SETUSER … +acl|dryrun. And see to it that the user default has all rights, as in the ACL file in docs/redis.md.",
				"the user may not ask whether the server loads all that it keeps: %v", err)
			return nil
		}
		if err != nil {
			return err
		}
		if !may {
			name, _, _ := strings.Cut(write, " ")
			lacks = append(lacks, name)
		}
	}
	if more := len(lacks) - 4; more > 0 {
		lacks = append(lacks[:4], fmt.Sprintf("%d more", more))
	}
	if len(lacks) > 0 {
		n.refuse(remedy,
			"Redis loads its append-only file as the user default, and that one may not %s: its next start loses what was acknowledged, without an error",
			strings.Join(lacks, ", "))
	}
	return nil
}

// mayDefault asks without trying.
func (n *node) mayDefault(ctx context.Context, write []string) (bool, error) {
	args := []any{"ACL", "DRYRUN", replayUser}
	for _, word := range write {
		args = append(args, word)
	}
	said, err := n.client.Do(ctx, args...).Text()
	return said == "OK", err
}
