package rig

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
)

// Sentinels is a primary with its replicas under the watch of three Sentinels,
// all on loopback.
type Sentinels struct {
	Nodes     []*Node // the first one starts as the primary
	Sentinels []*Node
	cfg       SentinelConfig
}

// SentinelConfig of StartSentinels.
type SentinelConfig struct {
	// Replicas of the primary. Defaults to 1.
	Replicas int
	// Args of every redis-server; they win. Defaults to none.
	Args []string
	// Username and Password that the Sentinels ask of their clients. Defaults
	// to "": they ask for none.
	Username string
	Password string
}

// MasterName is what the Sentinels call the primary.
const MasterName = "picket"

// replicationUser is whom replicas log in as. Switching this user off is a cut
// link: nothing reaches the replicas any more, while clients and Sentinels go on.
const replicationUser, replicationPassword = "replication", "link"

// StartSentinels starts primary, replicas and Sentinels, and returns when each
// Sentinel knows all others and all replicas are in step; that takes about two
// seconds. Everything ends with the test.
func StartSentinels(tb testing.TB, cfg SentinelConfig) *Sentinels {
	tb.Helper()
	if cfg.Replicas == 0 {
		cfg.Replicas = 1
	}
	s := &Sentinels{cfg: cfg}
	args := append([]string{"--masteruser", replicationUser, "--masterauth", replicationPassword,
		"--user", replicationUser, "on", ">" + replicationPassword, "+psync", "+replconf", "+ping"}, cfg.Args...)
	s.Nodes = append(s.Nodes, StartNode(tb, args...))
	host, port := hostPort(s.Nodes[0].Addr)
	for range cfg.Replicas {
		s.Nodes = append(s.Nodes, StartNode(tb, append([]string{"--replicaof", host, port}, args...)...))
	}
	for range 3 {
		s.Sentinels = append(s.Sentinels, s.startSentinel(tb, host, port))
	}
	if err := s.WaitInSync(); err != nil {
		tb.Fatalf("start a Sentinel trio: %v", err)
	}
	return s
}

// startSentinel starts one Sentinel with short periods, so that a failover
// takes about a second instead of ten. A replica is good to be promoted while
// its INFO is younger than five pings; of a primary that is away it comes once
// a second only, so pings may not be much quicker.
func (s *Sentinels) startSentinel(tb testing.TB, host, port string) *Node {
	tb.Helper()
	n := newNode(tb)
	file := filepath.Join(n.Dir, "sentinel.conf")
	_, own := hostPort(n.Addr)
	lines := []string{"port " + own, "bind 127.0.0.1", "dir " + n.Dir, "logfile " + filepath.Join(n.Dir, "log"),
		fmt.Sprintf("sentinel monitor %s %s %s 2", MasterName, host, port),
		"sentinel down-after-milliseconds " + MasterName + " 1000", "sentinel failover-timeout " + MasterName + " 4000"}
	if s.cfg.Password != "" {
		lines = append(lines, "sentinel sentinel-pass inner", "requirepass inner",
			fmt.Sprintf("user %s on >%s allchannels +@all", s.cfg.Username, s.cfg.Password))
	}
	if err := os.WriteFile(file, []byte(strings.Join(lines, "\n")+"\n"), 0o600); err != nil {
		tb.Fatal(err)
	}
	n.args = []string{file, "--sentinel"}
	n.Start()
	c := s.client(n)
	defer c.Close()
	ctx := context.Background()
	periods := redis.NewStatusCmd(ctx, "SENTINEL", "DEBUG", "info-period", 200, "ping-period", 300, "ask-period", 200,
		"publish-period", 500, "min-link-reconnect-period", 100, "slave-reconf-timeout", 2000)
	if err := c.Process(ctx, periods); err != nil {
		tb.Fatalf("set the periods of a Sentinel: %v", err)
	}
	return n
}

func (s *Sentinels) client(n *Node) *redis.SentinelClient {
	return redis.NewSentinelClient(&redis.Options{
		Addr:       n.Addr,
		Username:   s.cfg.Username,
		Password:   s.cfg.Password,
		MaxRetries: -1,
	})
}

// Store is where the primary is, found by asking the Sentinels.
func (s *Sentinels) Store() Store {
	st := Store{
		Redis: redis.UniversalOptions{
			MasterName:       MasterName,
			SentinelUsername: s.cfg.Username,
			SentinelPassword: s.cfg.Password,
		},
	}
	for _, n := range s.Sentinels {
		st.Redis.Addrs = append(st.Redis.Addrs, n.Addr)
	}
	return st
}

// Primary is the node that all Sentinels call the primary; nil while they do
// not agree.
func (s *Sentinels) Primary() *Node {
	agreed := ""
	for _, sentinel := range s.Sentinels {
		c := s.client(sentinel)
		at, err := c.GetMasterAddrByName(context.Background(), MasterName).Result()
		_ = c.Close()
		if err != nil || len(at) != 2 {
			return nil
		}
		addr := net.JoinHostPort(at[0], at[1])
		if agreed != "" && agreed != addr {
			return nil
		}
		agreed = addr
	}
	return s.node(agreed)
}

func (s *Sentinels) node(addr string) *Node {
	for _, n := range s.Nodes {
		if n.Addr == addr {
			return n
		}
	}
	return nil
}

// WaitInSync waits until the Sentinels agree on the primary and know each other
// and all replicas, and the replicas have all of the primary's data.
func (s *Sentinels) WaitInSync() error {
	return eventually(func(ctx context.Context) error {
		primary := s.Primary()
		if primary == nil {
			return errors.New("the Sentinels do not agree on a primary")
		}
		for _, n := range s.Sentinels {
			if err := s.settled(ctx, n); err != nil {
				return err
			}
		}
		offset := primary.offset(ctx, "master_repl_offset")
		for _, n := range s.Nodes {
			if n != primary && (n.Info(ctx, "replication", "master_link_status") != "up" ||
				n.offset(ctx, "slave_repl_offset") < offset) {
				return fmt.Errorf("%s is not in step with %s", n.Addr, primary.Addr)
			}
		}
		return nil
	})
}

// settled says what a Sentinel still waits for.
func (s *Sentinels) settled(ctx context.Context, n *Node) error {
	c := s.client(n)
	defer c.Close()
	m, err := c.Master(ctx, MasterName).Result()
	if err != nil {
		return err
	}
	if m["flags"] != "master" || m["role-reported"] != "master" || m["num-slaves"] != strconv.Itoa(s.cfg.Replicas) ||
		m["num-other-sentinels"] != "2" {
		return fmt.Errorf("the Sentinel on %s is not settled: %v", n.Addr, m)
	}
	replicas, err := c.Replicas(ctx, MasterName).Result()
	for _, r := range replicas {
		if r["flags"] != "slave" || r["role-reported"] != "slave" {
			return fmt.Errorf("the Sentinel on %s does not see a replica: %v", n.Addr, r)
		}
	}
	return err
}

// FailOver asks the Sentinels for a failover and returns the old primary and
// the new one once it serves as one. The old one is made a replica some two
// seconds later: until then it goes on taking writes.
func (s *Sentinels) FailOver() (was, now *Node, err error) {
	was = s.Primary()
	now, err = s.AwaitFailover(func() error {
		c := s.client(s.Sentinels[0])
		defer c.Close()
		// A replica that a busy machine has kept from answering for a second is
		// not good enough, and is again when it has answered.
		return eventually(func(ctx context.Context) error { return c.Failover(ctx, MasterName).Err() })
	})
	return was, now, err
}

// AwaitFailover does something that makes the Sentinels choose another primary, such
// as [Node.Kill] of the one there is, and returns the new one once it serves.
func (s *Sentinels) AwaitFailover(cause func() error) (*Node, error) {
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	c := s.client(s.Sentinels[0])
	defer c.Close()
	sub := c.Subscribe(ctx, "+switch-master")
	defer sub.Close()
	if _, err := sub.Receive(ctx); err != nil {
		return nil, fmt.Errorf("listen to a Sentinel: %w", err)
	}
	if err := cause(); err != nil {
		return nil, fmt.Errorf("make a failover: %w", err)
	}
	m, err := sub.ReceiveMessage(ctx)
	if err != nil {
		return nil, fmt.Errorf("wait for a failover: %w", err)
	}
	words := strings.Fields(m.Payload) // name, old host, old port, new host, new port
	if len(words) != 5 {
		return nil, fmt.Errorf("the Sentinel said %q", m.Payload)
	}
	now := s.node(net.JoinHostPort(words[3], words[4]))
	return now, eventually(func(ctx context.Context) error {
		if role := now.Info(ctx, "replication", "role"); role != "master" {
			return fmt.Errorf("%s is a %s", now.Addr, role)
		}
		return nil
	})
}

// CutLinks cuts every replica off a primary, which goes on serving its
// clients: what is written from now on reaches no replica, also not from a
// socket's buffer.
func (s *Sentinels) CutLinks(primary *Node) error {
	ctx := context.Background()
	if err := primary.Do(ctx, "ACL", "SETUSER", replicationUser, "off").Err(); err != nil {
		return fmt.Errorf("cut the links of %s: %w", primary.Addr, err)
	}
	if err := primary.Do(ctx, "CLIENT", "KILL", "TYPE", "replica").Err(); err != nil {
		return fmt.Errorf("cut the links of %s: %w", primary.Addr, err)
	}
	return eventually(func(ctx context.Context) error {
		if n := primary.Info(ctx, "replication", "connected_slaves"); n != "0" {
			return fmt.Errorf("%s has %s replicas", primary.Addr, n)
		}
		return nil
	})
}

// RestoreLinks undoes CutLinks.
func (s *Sentinels) RestoreLinks(primary *Node) error {
	// The connections that the node has kept may be those of a process that was killed.
	c := primary.Client()
	defer c.Close()
	return c.Do(context.Background(), "ACL", "SETUSER", replicationUser, "on").Err()
}
