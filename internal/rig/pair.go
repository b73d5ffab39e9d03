package rig

import (
	"context"
	"fmt"
	"net"
	"testing"
)

// ReplicaPair is a primary and its replica whose link can be cut while both go on serving clients:
// what the primary acknowledges from then on never reaches the replica.
type ReplicaPair struct {
	tb    testing.TB
	nodes [2]*Node
	links [2]*FaultProxy // to each node, for the other one
	addrs [2]string
	first int // which of them is the primary
}

// StartReplicaPair starts both and returns when the replica is in step, which takes
// about a second. They end with the test. args go to both and win.
func StartReplicaPair(tb testing.TB, args ...string) *ReplicaPair {
	tb.Helper()
	p := &ReplicaPair{tb: tb}
	for i := range p.nodes {
		p.nodes[i] = StartNode(tb, args...)
		_, p.links[i] = p.nodes[i].BehindProxy(tb)
		p.addrs[i] = p.links[i].Listen(tb)
	}
	p.Follow()
	return p
}

// BehindProxy puts a proxy before the node, for one client or for the other node.
func (n *Node) BehindProxy(tb testing.TB) (Store, *FaultProxy) {
	tb.Helper()
	s := n.Store()
	s.Redis.Dialer = func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "tcp", n.Addr)
	}
	return s.Faulty(tb)
}

// Primary is the node that was started or promoted as one.
func (p *ReplicaPair) Primary() *Node { return p.nodes[p.first] }

// Replica is the other node.
func (p *ReplicaPair) Replica() *Node { return p.nodes[1-p.first] }

// CutLink cuts the replica off and returns when the primary knows it.
func (p *ReplicaPair) CutLink() {
	p.tb.Helper()
	p.links[p.first].Cut()
	p.eventually("cut the link", func(ctx context.Context) error {
		if n := p.Primary().Info(ctx, "replication", "connected_slaves"); n != "0" {
			return fmt.Errorf("%s has %s replicas", p.Primary().Addr, n)
		}
		return nil
	})
}

// Promote makes the replica a primary; the old one is told nothing and stays
// writable. From now on Primary is the new one.
func (p *ReplicaPair) Promote() (was, now *Node) {
	p.tb.Helper()
	p.do(p.Replica(), "REPLICAOF", "NO", "ONE")
	was, now = p.Primary(), p.Replica()
	p.first = 1 - p.first
	return was, now
}

// Follow repairs the link, lets the other node follow the primary, and returns
// when it has all of its data and nothing else.
func (p *ReplicaPair) Follow() {
	p.tb.Helper()
	p.links[p.first].Heal()
	host, port, err := net.SplitHostPort(p.addrs[p.first])
	if err != nil {
		p.tb.Fatal(err)
	}
	p.do(p.Replica(), "REPLICAOF", host, port)
	p.WaitInSync()
}

// WaitInSync waits until the replica has all that the primary has.
func (p *ReplicaPair) WaitInSync() {
	p.tb.Helper()
	p.eventually("follow the primary", func(ctx context.Context) error {
		offset := p.Primary().offset(ctx, "master_repl_offset")
		if p.Replica().Info(ctx, "replication", "master_link_status") != "up" ||
			p.Replica().offset(ctx, "slave_repl_offset") < offset {
			return fmt.Errorf("%s is not in step with %s", p.Replica().Addr, p.Primary().Addr)
		}
		return nil
	})
}

func (p *ReplicaPair) do(n *Node, args ...any) {
	p.tb.Helper()
	if err := n.Do(context.Background(), args...).Err(); err != nil {
		p.tb.Fatalf("%v on %s: %v", args, n.Addr, err)
	}
}

func (p *ReplicaPair) eventually(what string, attempt func(context.Context) error) {
	p.tb.Helper()
	if err := eventually(attempt); err != nil {
		p.tb.Fatalf("%s: %v", what, err)
	}
}
