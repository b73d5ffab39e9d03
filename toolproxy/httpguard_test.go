package toolproxy_test

import (
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"sync/atomic"
	"testing"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/internal/rig"
	"github.com/picket-dev/picket/toolproxy"
	"github.com/picket-dev/picket/toolproxy/tools"
)

// serveInner is a server that nobody outside may reach; it counts who does.
func serveInner(t *testing.T, address string) (port string, hits *atomic.Int64) {
	t.Helper()
	hits = &atomic.Int64{}
	l, err := net.Listen("tcp", address)
	if err != nil {
		t.Skipf("cannot listen on %s: %v", address, err)
	}
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		hits.Add(1)
		_, _ = w.Write([]byte("inner secret"))
	}))
	s.Listener.Close()
	s.Listener = l
	s.Config.SetKeepAlivesEnabled(false) // each call dials
	s.Start()
	t.Cleanup(s.Close)
	_, port, _ = net.SplitHostPort(l.Addr().String())
	return port, hits
}

// However an address inside is written, and whatever name leads to it, nothing
// is sent there, and nothing is charged.
func TestPrivateAddressesAreRefused(t *testing.T) {
	port, hits := serveInner(t, "127.0.0.1:0")
	six, hits6 := serveInner(t, "[::1]:"+port)
	dns := rig.StartDNSServer(t, map[string][]string{
		"loop.test":     {"127.0.0.1"},
		"six.test":      {"::1"},
		"mapped.test":   {"::ffff:127.0.0.1"},
		"nat64.test":    {"64:ff9b::7f00:1"},
		"zero.test":     {"0.0.0.0"},
		"metadata.test": {"169.254.169.254"},
		"ten.test":      {"10.0.0.1"},
	})
	p, door := newHTTPProxy(t, func(c *tools.HTTPConfig) { c.Resolver = dns.Resolver() }), newFakeEnvelope(100*cent)
	for _, host := range []string{"127.0.0.1", "127.1.2.3", "[::1]", "[::ffff:127.0.0.1]", "[::ffff:7f00:1]",
		"[::7f00:1]", "[64:ff9b::7f00:1]", "0.0.0.0", "[::]",
		"[fe80::1%25lo]", "169.254.169.254", "10.0.0.1", "192.168.0.1", "100.64.0.1", "224.0.0.1", "255.255.255.255",
		"loop.test", "LOOP.test.", "six.test", "mapped.test", "nat64.test", "zero.test", "metadata.test", "ten.test"} {
		_, err := p.Invoke(t.Context(), door, aHeld, "http_request",
			[]byte(`{"url":"http://`+host+`:`+port+`/latest/meta-data"}`), "")
		if picket.CodeOf(err) != picket.CodeDestination {
			t.Errorf("%s: %v", host, err)
		}
	}
	if hits.Load()+hits6.Load() != 0 {
		t.Errorf("the inside was reached %d times (port %s)", hits.Load()+hits6.Load(), six)
	}
	door.expectSettled(t, 0)
}

// A name that is public when it is looked at first and leads inside when it is
// called next gets nowhere: what is judged is the address that is dialled.
func TestRebindingANameDoesNotHelp(t *testing.T) {
	port, hits := serveInner(t, "127.0.0.1:0")
	_, outside := serveInner(t, "127.0.0.2:"+port) // stands in for an address outside
	dns := rig.StartDNSServer(t, map[string][]string{"rebind.test": {"127.0.0.2", "127.0.0.1"}})
	p, door := newHTTPProxy(t, func(c *tools.HTTPConfig) {
		c.Resolver = dns.Resolver()
		c.Public = func(ip netip.Addr) bool { return ip == netip.MustParseAddr("127.0.0.2") }
	}), newFakeEnvelope(100*cent)
	call := func() error {
		_, err := p.Invoke(t.Context(), door, aHeld, "http_request", []byte(`{"url":"http://rebind.test:`+port+`/"}`),
			"")
		return err
	}
	if err := call(); err != nil || outside.Load() != 1 {
		t.Fatalf("while it is outside: %v", err)
	}
	if err := call(); picket.CodeOf(err) != picket.CodeDestination || hits.Load() != 0 {
		t.Errorf("when it leads inside: %v, %d hits", err, hits.Load())
	}
}

// An allow-list is a limit to what can be called, and its entries with a port
// open the inside; never by name what holds a cloud's credentials.
func TestTheAllowList(t *testing.T) {
	port, hits := serveInner(t, "127.0.0.1:0")
	dns := rig.StartDNSServer(t,
		map[string][]string{
			"db.test":    {"127.0.0.1"},
			"a.sub.test": {"127.0.0.1"},
			"meta.test":  {"169.254.169.254"},
			"bare.test":  {"127.0.0.1"},
		})
	p, door := newHTTPProxy(t, func(c *tools.HTTPConfig) {
		c.Resolver = dns.Resolver()
		c.Allow = []string{"127.0.0.1:" + port, "DB.test:" + port, "*.sub.test:" + port, "meta.test:" + port,
			"bare.test", "localhost:1"}
	}), newFakeEnvelope(100*cent)
	for host, allowed := range map[string]bool{
		"127.0.0.1":          true,
		"[::ffff:127.0.0.1]": true,
		"db.test":            true,
		"a.sub.test":         true,
		"sub.test":           false,
		"evil-sub.test":      false,
		"other.test":         false,
		"meta.test":          false,
		"bare.test":          false,
		"127.0.0.2":          false,
	} {
		before := hits.Load()
		_, err := p.Invoke(t.Context(), door, aHeld, "http_request", []byte(`{"url":"http://`+host+`:`+port+`/"}`), "")
		if allowed && (err != nil || hits.Load() != before+1) ||
			!allowed && (picket.CodeOf(err) != picket.CodeDestination || hits.Load() != before) {
			t.Errorf("%s, allowed %t: %v, %d hits", host, allowed, err, hits.Load()-before)
		}
	}
	for _, bad := range []string{"", "http://x", "a b", "user@host", "host:port:1"} {
		if _, err := toolproxy.New(toolproxy.Config{
			Sealer:  newSealer(t),
			Backend: func(string) toolproxy.Backend { return nil },
			Parts:   []toolproxy.Part{tools.HTTP(tools.HTTPConfig{Allow: []string{bad}})},
		}); err == nil {
			t.Errorf("%q is taken as a destination", bad)
		}
	}
}
