package rig

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// Cluster is a Redis Cluster of three primaries on loopback, a third of the
// slots each.
type Cluster struct {
	Nodes []*Node // the primaries
	args  []string
}

const clusterSlots = 16384

// StartCluster starts a cluster and returns when every node can write; that
// takes about three seconds. args go to every node and win.
func StartCluster(tb testing.TB, args ...string) *Cluster {
	tb.Helper()
	c := &Cluster{args: append([]string{"--cluster-enabled", "yes", "--cluster-node-timeout", "5000"}, args...)}
	for range 3 {
		c.Nodes = append(c.Nodes, StartNode(tb, c.args...))
	}
	ctx := context.Background()
	for i, n := range c.Nodes {
		from, to := clusterSlots*i/3, clusterSlots*(i+1)/3-1
		c.do(tb, n, "CLUSTER", "SET-CONFIG-EPOCH", i+1)
		c.do(tb, n, "CLUSTER", "ADDSLOTSRANGE", from, to)
		if i > 0 {
			host, port := hostPort(c.Nodes[0].Addr)
			c.do(tb, n, "CLUSTER", "MEET", host, port)
		}
	}
	for _, n := range c.Nodes {
		c.await(tb, n, func(context.Context) error {
			text, err := n.Do(ctx, "CLUSTER", "INFO").Text()
			if err == nil && (valueOf(text, "cluster_state") != "ok" || valueOf(text, "cluster_known_nodes") != "3") {
				err = fmt.Errorf("%s is not ready:\n%s", n.Addr, text)
			}
			return err
		})
	}
	return c
}

func (c *Cluster) do(tb testing.TB, n *Node, args ...any) {
	tb.Helper()
	if err := n.Do(context.Background(), args...).Err(); err != nil {
		tb.Fatalf("%v on %s: %v", args, n.Addr, err)
	}
}

// Store is where the cluster is.
func (c *Cluster) Store() Store {
	s := Store{Redis: redis.UniversalOptions{IsClusterMode: true}}
	for _, n := range c.Nodes {
		s.Redis.Addrs = append(s.Redis.Addrs, n.Addr)
	}
	return s
}

// NodeOf is the primary that a namespace was given to when the cluster began.
func (c *Cluster) NodeOf(tb testing.TB, namespace string) *Node {
	tb.Helper()
	slot := c.slotOf(tb, namespace)
	for i := range c.Nodes {
		if slot < clusterSlots*(i+1)/3 {
			return c.Nodes[i]
		}
	}
	tb.Fatalf("slot %d is nowhere", slot)
	return nil
}

func (c *Cluster) slotOf(tb testing.TB, namespace string) int {
	tb.Helper()
	slot, err := c.Nodes[0].Do(context.Background(), "CLUSTER", "KEYSLOT", "pk:{"+namespace+"}:meta").Int()
	if err != nil {
		tb.Fatalf("find the slot of %s: %v", namespace, err)
	}
	return slot
}

// Namespaces are n namespaces on n different nodes, at most three.
func (c *Cluster) Namespaces(tb testing.TB, n int) []string {
	tb.Helper()
	var names []string
	taken := map[*Node]bool{}
	for i := 0; len(names) < n; i++ {
		name := "ns" + strconv.Itoa(i)
		if node := c.NodeOf(tb, name); !taken[node] {
			taken[node] = true
			names = append(names, name)
		}
	}
	return names
}

// AddReplica gives a primary a replica and returns when it follows.
func (c *Cluster) AddReplica(tb testing.TB, of *Node) *Node {
	tb.Helper()
	n := StartNode(tb, c.args...)
	host, port := hostPort(of.Addr)
	c.do(tb, n, "CLUSTER", "MEET", host, port)
	id := c.id(tb, of)
	c.await(tb, n, func(ctx context.Context) error {
		return n.Do(ctx, "CLUSTER", "REPLICATE", id).Err() // refused until it has met the primary
	})
	c.awaitReplica(tb, n, of)
	return n
}

// failoverWindow is a little more than the 5 s after which Redis drops a
// failover that was asked for and did not come about, without a word.
const failoverWindow = 6 * time.Second

// FailOver makes a replica the primary in place of another node, with nothing
// lost, and returns when that one follows it.
func (c *Cluster) FailOver(tb testing.TB, from, to *Node) {
	tb.Helper()
	var asked time.Time
	c.await(tb, to, func(ctx context.Context) error {
		role := to.Info(ctx, "replication", "role")
		if role == "master" {
			return nil
		}
		if time.Since(asked) > failoverWindow {
			c.do(tb, to, "CLUSTER", "FAILOVER")
			asked = time.Now()
		}
		return fmt.Errorf("%s is a %s", to.Addr, role)
	})
	c.awaitReplica(tb, from, to)
}

// awaitReplica waits until a replica follows a primary and all nodes know it.
func (c *Cluster) awaitReplica(tb testing.TB, n, of *Node) {
	tb.Helper()
	c.await(tb, n, func(ctx context.Context) error {
		if up := n.Info(ctx, "replication", "master_link_status"); up != "up" {
			return fmt.Errorf("the link to %s is %q", of.Addr, up)
		}
		return nil
	})
	id := c.id(tb, of)
	for _, other := range append([]*Node{of, n}, c.Nodes...) {
		c.await(tb, other, func(ctx context.Context) error {
			text, err := other.Do(ctx, "CLUSTER", "NODES").Text()
			for line := range strings.Lines(text) {
				if strings.Contains(line, n.Addr) && strings.Contains(line, "slave "+id) {
					return nil
				}
			}
			return fmt.Errorf("%s does not know that %s follows %s (%v)", other.Addr, n.Addr, of.Addr, err)
		})
	}
}

func (c *Cluster) id(tb testing.TB, n *Node) string {
	tb.Helper()
	id, err := n.Do(context.Background(), "CLUSTER", "MYID").Text()
	if err != nil {
		tb.Fatal(err)
	}
	return id
}

// MoveSlot takes the slot of a namespace, with all of its keys, to another
// node. Nobody may use the namespace meanwhile.
func (c *Cluster) MoveSlot(tb testing.TB, namespace string, to *Node) {
	tb.Helper()
	ctx := context.Background()
	from, slot := c.NodeOf(tb, namespace), c.slotOf(tb, namespace)
	c.do(tb, to, "CLUSTER", "SETSLOT", slot, "IMPORTING", c.id(tb, from))
	c.do(tb, from, "CLUSTER", "SETSLOT", slot, "MIGRATING", c.id(tb, to))
	keys, err := from.Do(ctx, "CLUSTER", "GETKEYSINSLOT", slot, 100_000).StringSlice()
	if err != nil {
		tb.Fatal(err)
	}
	host, port := hostPort(to.Addr)
	for _, key := range keys {
		c.do(tb, from, "MIGRATE", host, port, key, 0, 10_000)
	}
	for _, n := range append([]*Node{to, from}, c.Nodes...) {
		c.do(tb, n, "CLUSTER", "SETSLOT", slot, "NODE", c.id(tb, to))
	}
}

func (c *Cluster) await(tb testing.TB, n *Node, attempt func(context.Context) error) {
	tb.Helper()
	if err := eventually(attempt); err != nil {
		tb.Fatalf("wait for %s: %v", n.Addr, err)
	}
}
