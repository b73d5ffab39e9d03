package rig

import (
	"context"
	"fmt"
	"strconv"
	"testing"

	"github.com/redis/go-redis/v9"
)

// Cluster is a Redis Cluster of three primaries on loopback, a third of the
// slots each.
type Cluster struct{ Nodes []*Node }

const clusterSlots = 16384

// StartCluster starts a cluster and returns when every node can write; that
// takes about three seconds. args go to every node and win.
func StartCluster(tb testing.TB, args ...string) *Cluster {
	tb.Helper()
	c := &Cluster{}
	for range 3 {
		c.Nodes = append(c.Nodes, StartNode(tb, append([]string{"--cluster-enabled", "yes", "--cluster-node-timeout", "5000"}, args...)...))
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
		err := eventually(func(context.Context) error {
			text, err := n.Do(ctx, "CLUSTER", "INFO").Text()
			if err == nil && (valueOf(text, "cluster_state") != "ok" || valueOf(text, "cluster_known_nodes") != "3") {
				err = fmt.Errorf("%s is not ready:\n%s", n.Addr, text)
			}
			return err
		})
		if err != nil {
			tb.Fatalf("start a cluster: %v", err)
		}
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

// NodeOf is the node that holds a namespace.
func (c *Cluster) NodeOf(tb testing.TB, namespace string) *Node {
	tb.Helper()
	slot, err := c.Nodes[0].Do(context.Background(), "CLUSTER", "KEYSLOT", "pk:{"+namespace+"}:meta").Int()
	if err != nil {
		tb.Fatalf("find the slot of %s: %v", namespace, err)
	}
	for i := range c.Nodes {
		if slot < clusterSlots*(i+1)/3 {
			return c.Nodes[i]
		}
	}
	tb.Fatalf("slot %d is nowhere", slot)
	return nil
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
