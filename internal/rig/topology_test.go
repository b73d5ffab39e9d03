package rig

import (
	"testing"

	"github.com/redis/go-redis/v9"
)

// A failover with the link cut loses what the replica did not get; one with
// the link in order loses nothing.
func TestSentinelsFailOver(t *testing.T) {
	s := StartSentinels(t, SentinelConfig{Username: "app", Password: "secret"})
	store := s.Store()
	c := redis.NewUniversalClient(&store.Redis)
	defer c.Close()
	for _, cut := range []bool{true, false} {
		check(t, c.Set(t.Context(), "key", "early", 0).Err())
		check(t, s.WaitInSync())
		was := s.Primary()
		want := "late"
		if cut {
			want = "early"
			check(t, s.CutLinks(was))
		}
		check(t, was.Do(t.Context(), "SET", "key", "late").Err())
		if !cut {
			check(t, s.WaitInSync())
		}
		before, now, err := s.FailOver()
		check(t, err)
		check(t, s.RestoreLinks(was))
		check(t, s.WaitInSync())
		if got, err := now.Do(t.Context(), "GET", "key").Text(); got != want || now == was || before != was {
			t.Fatalf("link cut: %v: after a failover the key is %q (%v), want %q", cut, got, err, want)
		}
	}
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestClusterSpreadsNamespaces(t *testing.T) {
	c := StartCluster(t)
	store := c.Store()
	client := redis.NewUniversalClient(&store.Redis)
	defer client.Close()
	for _, ns := range c.Namespaces(t, 3) {
		key := "pk:{" + ns + "}:meta"
		check(t, client.Set(t.Context(), key, ns, 0).Err())
		for _, n := range c.Nodes {
			held, err := n.Do(t.Context(), "GET", key).Text()
			if owns := n == c.NodeOf(t, ns); owns != (err == nil && held == ns) {
				t.Errorf("%s on %s: %q, %v", key, n.Addr, held, err)
			}
		}
	}
}
