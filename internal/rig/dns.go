package rig

import (
	"context"
	"encoding/binary"
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"
)

// DNSServer answers DNS questions from a table; each question for a name takes the
// next of its answers, the last one stays.
type DNSServer struct {
	mu     sync.Mutex
	table  map[string][]string
	asked  map[string]int
	socket net.PacketConn
}

// StartDNSServer answers by a table until the test ends.
func StartDNSServer(t testing.TB, table map[string][]string) *DNSServer {
	t.Helper()
	socket, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	n := &DNSServer{table: table, asked: map[string]int{}, socket: socket}
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

// Resolver asks n.
func (n *DNSServer) Resolver() *net.Resolver {
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "udp", n.socket.LocalAddr().String())
	}}
}

// answer has one address record for a question of its family, none for others.
func (n *DNSServer) answer(query []byte) []byte {
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

func (n *DNSServer) next(name string, kind uint16) (netip.Addr, bool) {
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
