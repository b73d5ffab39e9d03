package toolproxy

import (
	"context"
	"net"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/picket-dev/picket"
)

// guard decides where calls may lead. Names are no protection: whoever owns a
// name can let it point to any address, and to another one the next time. So it
// looks at the address that is dialled, at the moment it is dialled.
type guard struct {
	allow    []destination // empty: every public address
	resolver *net.Resolver
	public   func(netip.Addr) bool
}

// destination is an entry of the allow-list.
type destination struct {
	host  string // as in a URL, in lower case; * for any
	under bool   // *.host: names below it
	port  string // "" for any; with a port, an address inside is allowed, too
	ip    netip.Addr
}

func newGuard(allow []string, resolver *net.Resolver) (guard, error) {
	g := guard{resolver: resolver, public: isPublic}
	for _, text := range allow {
		d, err := parseDestination(text)
		if err != nil {
			return g, err
		}
		g.allow = append(g.allow, d)
	}
	return g, nil
}

func parseDestination(text string) (d destination, err error) {
	u, err := url.Parse("//" + text)
	if err != nil || u.Host != text || u.Hostname() == "" || strings.Contains(u.Hostname(), ":") && text[0] != '[' {
		return d, picket.Invalid("allow", "Write a host, *.domain, host:port, or * for every public address.", "%q is not a destination", text)
	}
	d.host, d.port = canonicalHost(u.Hostname()), u.Port()
	d.ip, _ = netip.ParseAddr(d.host)
	if below, ok := strings.CutPrefix(d.host, "*."); ok {
		d.host, d.under = below, true
	}
	return d, nil
}

func canonicalHost(host string) string { return strings.ToLower(strings.TrimSuffix(host, ".")) }

// covers reports whether the entry names host and port.
func (d destination) covers(host, port string) bool {
	if d.port != "" && d.port != port {
		return false
	}
	switch {
	case d.under:
		return strings.HasSuffix(host, "."+d.host)
	case d.host == "*":
		return true
	case d.ip.IsValid():
		ip, err := netip.ParseAddr(host)
		return err == nil && ip.Unmap() == d.ip.Unmap()
	}
	return host == d.host
}

// check refuses a URL that is no address of the web or not on the allow-list.
func (g guard) check(u *url.URL) error {
	switch {
	case u.Scheme != "http" && u.Scheme != "https":
		return picket.Invalid("/url", "Send an http or https URL.", "%s is not a scheme that can be called", clip(u.Scheme))
	case u.Hostname() == "":
		return picket.Invalid("/url", "Send an absolute URL with a host.", "the URL has no host")
	case u.User != nil:
		return picket.Invalid("/url", "Send credentials in a header.", "the URL holds a user name or a password")
	}
	if len(g.allow) == 0 {
		return nil
	}
	host, port := canonicalHost(u.Hostname()), portOf(u)
	for _, d := range g.allow {
		if d.covers(host, port) {
			return nil
		}
	}
	return unreachable(net.JoinHostPort(host, port), "it is not on the allow-list")
}

func portOf(u *url.URL) string {
	switch {
	case u.Port() != "":
		return u.Port()
	case u.Scheme == "https":
		return "443"
	}
	return "80"
}

// dial connects to an address of the web. Proxies named by the environment are
// not used: behind one nobody could see what is dialled.
func (g guard) dial(ctx context.Context, network, address string) (net.Conn, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	d := net.Dialer{Resolver: g.resolver, Timeout: 10 * time.Second, KeepAlive: 30 * time.Second,
		Control: func(_, dialled string, _ syscall.RawConn) error { return g.admit(canonicalHost(host), port, dialled) }}
	return d.DialContext(ctx, network, address)
}

// admit decides about an address that is about to be dialled for host and port.
func (g guard) admit(host, port, dialled string) error {
	at, err := netip.ParseAddrPort(dialled)
	if err != nil || strconv.Itoa(int(at.Port())) != port {
		return unreachable(host, "it leads to an address that cannot be judged")
	}
	ip := at.Addr().WithZone("").Unmap()
	if g.public(ip) && at.Addr().Zone() == "" {
		return nil
	}
	for _, d := range g.allow {
		// A name on the list may point inside, but never to where clouds keep their
		// credentials: whoever wants that writes the address itself.
		if d.port != "" && d.host != "*" && d.covers(host, port) && (d.ip.IsValid() || !special(ip)) {
			return nil
		}
	}
	return unreachable(net.JoinHostPort(host, port), "it leads inside, to an address that is not public")
}

func unreachable(where, why string) error {
	return picket.Refuse(picket.CodeDestination,
		"Call another address, or ask an operator to put "+clip(where)+" on tools.http_request.allow in picket.yaml (host:port for an address that is not public).",
		"%s may not be called: %s", clip(where), why).With("destination", clip(where))
}

// special are addresses that no name on the allow-list may lead to.
func special(ip netip.Addr) bool {
	return ip.IsLinkLocalUnicast() || ip.IsMulticast() || ip.IsUnspecified() || ip == netip.MustParseAddr("fd00:ec2::254") || ip == netip.MustParseAddr("100.100.100.200")
}

// inside are the special-purpose ranges of IPv4, and of IPv6 within 2000::/3,
// as IANA lists them.
var inside = prefixes("0.0.0.0/8 10.0.0.0/8 100.64.0.0/10 127.0.0.0/8 169.254.0.0/16 172.16.0.0/12 192.0.0.0/24 192.0.2.0/24 192.88.99.0/24 " +
	"192.168.0.0/16 198.18.0.0/15 198.51.100.0/24 203.0.113.0/24 224.0.0.0/3 2001::/23 2001:db8::/32 2002::/16 3fff::/20")

// global is where public IPv6 addresses are. What maps IPv4 into IPv6 (NAT64,
// IPv4-compatible) and everything local is outside of it.
var global = netip.MustParsePrefix("2000::/3")

func prefixes(text string) (list []netip.Prefix) {
	for p := range strings.FieldsSeq(text) {
		list = append(list, netip.MustParsePrefix(p))
	}
	return list
}

// isPublic reports whether an address belongs to the public internet.
func isPublic(ip netip.Addr) bool {
	if ip.Is6() && !global.Contains(ip) {
		return false
	}
	for _, p := range inside {
		if p.Contains(ip) {
			return false
		}
	}
	return ip.IsValid()
}
