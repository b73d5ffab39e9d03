package toolproxy_test

import (
	"context"
	"encoding/binary"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/toolproxy"
)

func TestWhatIsPublic(t *testing.T) {
	for text, want := range map[string]bool{
		"8.8.8.8": true, "1.1.1.1": true, "93.184.216.34": true, "2606:4700:4700::1111": true, "100.63.255.255": true, "100.128.0.1": true, "172.32.0.1": true,
		"127.0.0.1": false, "127.255.0.1": false, "0.0.0.0": false, "0.1.2.3": false, "10.1.2.3": false, "172.16.0.1": false, "172.31.255.255": false, "192.168.1.1": false,
		"169.254.169.254": false, "100.64.0.1": false, "100.100.100.200": false, "192.0.0.192": false, "198.18.0.1": false, "224.0.0.1": false, "255.255.255.255": false, "240.0.0.1": false,
		"::": false, "::1": false, "::7f00:1": false, "fe80::1": false, "fc00::1": false, "fd00:ec2::254": false, "ff02::1": false, "fec0::1": false,
		"64:ff9b::7f00:1": false, "64:ff9b::808:808": false, "64:ff9b:1::a00:1": false, "2002:7f00:1::": false, "2001::1": false, "2001:db8::1": false, "100::1": false,
	} {
		if got := toolproxy.IsPublic(netip.MustParseAddr(text)); got != want {
			t.Errorf("%s is public: %t", text, got)
		}
	}
	if toolproxy.IsPublic(netip.Addr{}) {
		t.Error("no address is public")
	}
}

// names answers DNS questions from a table; each question for a name takes the
// next of its answers, the last one stays.
type names struct {
	mu     sync.Mutex
	table  map[string][]string
	asked  map[string]int
	socket net.PacketConn
}

func serveNames(t *testing.T, table map[string][]string) *names {
	t.Helper()
	socket, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	n := &names{table: table, asked: map[string]int{}, socket: socket}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for buf := make([]byte, 512); ; {
			size, from, err := socket.ReadFrom(buf)
			if err != nil {
				return
			}
			_, _ = socket.WriteTo(n.answer(buf[:size]), from)
		}
	}()
	t.Cleanup(func() { socket.Close(); <-done })
	return n
}

func (n *names) resolver() *net.Resolver {
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "udp", n.socket.LocalAddr().String())
	}}
}

// answer has one address record for a question of its family, none for others.
func (n *names) answer(query []byte) []byte {
	var labels []string
	at := 12
	for size := int(query[at]); size > 0; size = int(query[at]) {
		labels = append(labels, string(query[at+1:at+1+size]))
		at += 1 + size
	}
	question := query[12 : at+5]
	name, kind := strings.ToLower(strings.Join(labels, ".")), binary.BigEndian.Uint16(query[at+1:])
	out := append([]byte{}, query[0], query[1], 0x81, 0x80, 0, 1, 0, 0, 0, 0, 0, 0)
	out = append(out, question...)
	ip, ok := n.next(name, kind)
	if !ok {
		return out
	}
	out[7] = 1
	raw := ip.AsSlice()
	out = append(out, 0xc0, 12, byte(kind>>8), byte(kind), 0, 1, 0, 0, 0, 0, 0, byte(len(raw)))
	return append(out, raw...)
}

func (n *names) next(name string, kind uint16) (netip.Addr, bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	answers := n.table[name]
	if len(answers) == 0 {
		return netip.Addr{}, false
	}
	i := min(n.asked[name], len(answers)-1)
	ip := netip.MustParseAddr(answers[i])
	const a, aaaa = 1, 28
	if kind == a && !ip.Is4() || kind == aaaa && ip.Is4() {
		return netip.Addr{}, false
	}
	n.asked[name]++
	return ip, true
}

// inner is a server that nobody outside may reach; it counts who does.
func inner(t *testing.T, address string) (port string, hits *atomic.Int64) {
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
	s.Start()
	t.Cleanup(s.Close)
	_, port, _ = net.SplitHostPort(l.Addr().String())
	return port, hits
}

// However an address inside is written, and whatever name leads to it, nothing
// is sent there, and nothing is charged.
func TestNoWayLeadsInside(t *testing.T) {
	port, hits := inner(t, "127.0.0.1:0")
	six, hits6 := inner(t, "[::1]:"+port)
	dns := serveNames(t, map[string][]string{
		"loop.test": {"127.0.0.1"}, "six.test": {"::1"}, "mapped.test": {"::ffff:127.0.0.1"}, "nat64.test": {"64:ff9b::7f00:1"}, "zero.test": {"0.0.0.0"},
		"metadata.test": {"169.254.169.254"}, "ten.test": {"10.0.0.1"},
	})
	p, door := shop(t, func(c *toolproxy.HTTPTool) { c.Resolver = dns.resolver() }), newPurse(100*cent)
	for _, host := range []string{"127.0.0.1", "127.1.2.3", "[::1]", "[::ffff:127.0.0.1]", "[::ffff:7f00:1]", "[::7f00:1]", "[64:ff9b::7f00:1]", "0.0.0.0", "[::]",
		"[fe80::1%25lo]", "169.254.169.254", "10.0.0.1", "192.168.0.1", "100.64.0.1", "224.0.0.1", "255.255.255.255",
		"loop.test", "LOOP.test.", "six.test", "mapped.test", "nat64.test", "zero.test", "metadata.test", "ten.test"} {
		_, err := p.Invoke(t.Context(), door, aHeld, "http_request", []byte(`{"url":"http://`+host+`:`+port+`/latest/meta-data"}`), "")
		if picket.CodeOf(err) != picket.CodeDestination {
			t.Errorf("%s: %v", host, err)
		}
	}
	if hits.Load()+hits6.Load() != 0 {
		t.Errorf("the inside was reached %d times (port %s)", hits.Load()+hits6.Load(), six)
	}
	door.quiet(t, 0)
}

// A name that is public when it is looked at first and leads inside when it is
// called next gets nowhere: what is judged is the address that is dialled.
func TestRebindingANameDoesNotHelp(t *testing.T) {
	port, hits := inner(t, "127.0.0.1:0")
	_, outside := inner(t, "127.0.0.2:"+port) // stands in for an address outside
	dns := serveNames(t, map[string][]string{"rebind.test": {"127.0.0.2", "127.0.0.1"}})
	p, door := shop(t, func(c *toolproxy.HTTPTool) { c.Resolver = dns.resolver() }), newPurse(100*cent)
	p.TakeAsPublic(netip.MustParseAddr("127.0.0.2"))
	call := func() error {
		_, err := p.Invoke(t.Context(), door, aHeld, "http_request", []byte(`{"url":"http://rebind.test:`+port+`/"}`), "")
		return err
	}
	if err := call(); err != nil || outside.Load() != 1 {
		t.Fatalf("while it is outside: %v", err)
	}
	p.ForgetConnections()
	if err := call(); picket.CodeOf(err) != picket.CodeDestination || hits.Load() != 0 {
		t.Errorf("when it leads inside: %v, %d hits", err, hits.Load())
	}
}

// An allow-list is a limit to what can be called, and its entries with a port
// open the inside; never by name what holds a cloud's credentials.
func TestTheAllowList(t *testing.T) {
	port, hits := inner(t, "127.0.0.1:0")
	dns := serveNames(t, map[string][]string{"db.test": {"127.0.0.1"}, "a.sub.test": {"127.0.0.1"}, "meta.test": {"169.254.169.254"}, "bare.test": {"127.0.0.1"}})
	p, door := shop(t, func(c *toolproxy.HTTPTool) {
		c.Resolver = dns.resolver()
		c.Allow = []string{"127.0.0.1:" + port, "DB.test:" + port, "*.sub.test:" + port, "meta.test:" + port, "bare.test", "localhost:1"}
	}), newPurse(100*cent)
	for host, allowed := range map[string]bool{"127.0.0.1": true, "[::ffff:127.0.0.1]": true, "db.test": true, "a.sub.test": true, "sub.test": false, "evil-sub.test": false, "other.test": false,
		"meta.test": false, "bare.test": false, "127.0.0.2": false} {
		before := hits.Load()
		_, err := p.Invoke(t.Context(), door, aHeld, "http_request", []byte(`{"url":"http://`+host+`:`+port+`/"}`), "")
		if allowed && (err != nil || hits.Load() != before+1) || !allowed && (picket.CodeOf(err) != picket.CodeDestination || hits.Load() != before) {
			t.Errorf("%s, allowed %t: %v, %d hits", host, allowed, err, hits.Load()-before)
		}
	}
	for _, bad := range []string{"", "http://x", "a b", "user@host", "host:port:1"} {
		if _, err := toolproxy.New(toolproxy.Config{Sealer: newSealer(t), Door: func(string) toolproxy.Door { return nil }, HTTP: toolproxy.HTTPTool{Allow: []string{bad}}}); err == nil {
			t.Errorf("%q is taken as a destination", bad)
		}
	}
}
