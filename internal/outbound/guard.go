// Package outbound guards calls that a server makes to addresses others have
// named: an agent by http_request, an operator by a webhook. What lies inside,
// beside the server, is reached only where the configuration opens it.
package outbound

import (
	"cmp"
	"context"
	"net"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/internal/web"
)

// Config says where calls may lead.
type Config struct {
	// Allow lists what may be called: host, *.domain, host:port, or * for every
	// public address. An address that is not public needs an entry with its port.
	// Defaults to every public address.
	Allow []string
	// AllowAllPublic says that Allow opens what is inside and limits nothing: every public
	// address may be called beside it. Defaults to false.
	AllowAllPublic bool
	// Inside lists what may be called although its address is not public, beside Allow: host, *.domain, host:port,
	// an address, or a network such as 10.0.0.0/8. An entry without a port opens every port. Defaults to nothing.
	Inside []string
	// Setting is the key of picket.yaml that Allow comes from, for remedies.
	// Required.
	Setting string
	// Resolver finds addresses. Defaults to net.DefaultResolver.
	Resolver *net.Resolver
	// Public tells which addresses need no entry. Defaults to IsPublic.
	Public func(netip.Addr) bool
}

// Guard decides where calls may lead. It checks the address that is dialled at the moment
// it is dialled, because the owner of a name can let it point to any address, and to
// another one the next time.
type Guard struct {
	cfg    Config
	allow  []destination // empty: every public address
	inside []destination
}

// destination is an entry of the allow-list.
type destination struct {
	host       string // as in a URL, in lower case; * for any
	subdomains bool   // *.host: names below it
	port       string // "" for any; with a port, an address inside is allowed, too
	ip         netip.Addr
	network    netip.Prefix // of Config.Inside
}

// New reads the allow-list; an entry that names no destination is
// CodeValidation.
func New(cfg Config) (Guard, error) {
	if cfg.Public == nil {
		cfg.Public = IsPublic
	}
	cfg.Resolver = cmp.Or(cfg.Resolver, net.DefaultResolver)
	g := Guard{cfg: cfg}
	for _, text := range cfg.Allow {
		d, err := parseDestination(text)
		if err != nil {
			return g, err
		}
		if cfg.AllowAllPublic && (d.port == "" || d.host == "*") {
			return g, picket.Invalid("allow", "Write host:port.",
				"%q opens nothing: what is inside is opened by its name and port", text)
		}
		g.allow = append(g.allow, d)
	}
	for _, text := range cfg.Inside {
		d, err := parseInside(text)
		if err != nil {
			return g, err
		}
		g.inside = append(g.inside, d)
	}
	return g, nil
}

// parseInside reads an entry of Config.Inside.
func parseInside(text string) (d destination, err error) {
	if network, err := netip.ParsePrefix(text); err == nil {
		return destination{network: network.Masked()}, nil
	}
	if ip, err := netip.ParseAddr(text); err == nil && ip.Is6() {
		text = "[" + text + "]"
	}
	if d, err = parseDestination(text); err == nil && d.host != "*" {
		return d, nil
	}
	return d, picket.Invalid("allow", "Write a host, host:port, an address, or a network such as 10.0.0.0/8.",
		"%q is neither a host nor a network", text)
}

func parseDestination(text string) (d destination, err error) {
	u, err := url.Parse("//" + text)
	if err != nil || u.Host != text || u.Hostname() == "" || strings.Contains(u.Hostname(), ":") && text[0] != '[' {
		return d, picket.Invalid("allow", "Write a host, *.domain, host:port, or * for every public address.",
			"%q is not a destination", text)
	}
	d.host, d.port = CanonicalHost(u.Hostname()), u.Port()
	d.ip, _ = netip.ParseAddr(d.host)
	if below, ok := strings.CutPrefix(d.host, "*."); ok {
		d.host, d.subdomains = below, true
	}
	return d, nil
}

// CanonicalHost is a host as it is compared.
func CanonicalHost(host string) string { return strings.ToLower(strings.TrimSuffix(host, ".")) }

// covers reports whether the entry names host and port.
func (d destination) covers(host, port string) bool {
	if d.port != "" && d.port != port {
		return false
	}
	switch {
	case d.subdomains:
		return strings.HasSuffix(host, "."+d.host)
	case d.host == "*":
		return true
	case d.ip.IsValid():
		ip, err := netip.ParseAddr(host)
		return err == nil && ip.Unmap() == d.ip.Unmap()
	}
	return host == d.host
}

// Check refuses a URL that is not http or https, holds a user name, or is not on the
// allow-list. The error is a *picket.Error of code validation_failed or
// destination_refused.
func (g Guard) Check(u *url.URL) error {
	switch {
	case u.Scheme == "":
		return picket.Invalid("/url", "Send an absolute http or https URL, such as https://host/path.",
			"the URL has no scheme")
	case u.Scheme != "http" && u.Scheme != "https":
		return picket.Invalid("/url", "Send an http or https URL.", "%s is not a scheme that can be called",
			web.Shortened(u.Scheme))
	case u.Hostname() == "":
		return picket.Invalid("/url", "Send an absolute URL with a host.", "the URL has no host")
	case u.User != nil:
		return picket.Invalid("/url", "Send credentials in a header.", "the URL holds a user name or a password")
	}
	if len(g.allow) == 0 || g.cfg.AllowAllPublic {
		return nil
	}
	host, port := CanonicalHost(u.Hostname()), PortOf(u)
	for _, d := range g.allow {
		if d.covers(host, port) {
			return nil
		}
	}
	return g.refuse(net.JoinHostPort(host, port), "it is not on the allow-list")
}

// PortOf is the port of an http or https URL.
func PortOf(u *url.URL) string {
	switch {
	case u.Port() != "":
		return u.Port()
	case u.Scheme == "https":
		return "443"
	}
	return "80"
}

// Dial connects to an address of the web. Proxies named by the environment are
// not used: behind one nobody could see what is dialled.
func (g Guard) Dial(ctx context.Context, network, address string) (net.Conn, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	d := net.Dialer{
		Resolver:  g.cfg.Resolver,
		Timeout:   10 * time.Second,
		KeepAlive: 30 * time.Second,
		Control: func(_, dialled string, _ syscall.RawConn) error {
			return g.checkAddress(CanonicalHost(host), port, dialled)
		},
	}
	return d.DialContext(ctx, network, address)
}

// checkAddress decides about an address that is about to be dialled for host and port.
func (g Guard) checkAddress(host, port, dialled string) error {
	at, err := netip.ParseAddrPort(dialled)
	if err != nil || strconv.Itoa(int(at.Port())) != port {
		return g.refuse(host, "it leads to an address that cannot be judged")
	}
	ip := at.Addr().WithZone("").Unmap()
	if g.cfg.Public(ip) && at.Addr().Zone() == "" {
		return nil
	}
	for _, d := range g.allow {
		// A name on the list may point inside, but not to where clouds keep their
		// credentials. That needs an entry with the address itself.
		if d.port != "" && d.host != "*" && d.covers(host, port) && (d.ip.IsValid() || !isSpecial(ip)) {
			return nil
		}
	}
	for _, d := range g.inside {
		if d.opens(host, port, ip) {
			return nil
		}
	}
	return g.refuse(net.JoinHostPort(host, port), "it leads inside, to an address that is not public")
}

// NamedInside reports whether the host of a URL, as it is written, is one that Config.Inside names.
func (g Guard) NamedInside(u *url.URL) bool {
	host := CanonicalHost(u.Hostname())
	ip, _ := netip.ParseAddr(host)
	for _, d := range g.inside {
		if d.network.IsValid() && d.network.Contains(ip.Unmap()) || d.host != "" && d.covers(host, PortOf(u)) {
			return true
		}
	}
	return false
}

// opens reports whether an entry of Config.Inside lets host and port lead to an address. Where clouds keep their
// credentials, only an entry with the address itself does.
func (d destination) opens(host, port string, ip netip.Addr) bool {
	if d.network.IsValid() {
		return d.network.Contains(ip) && (!isSpecial(ip) || d.network.IsSingleIP())
	}
	return d.covers(host, port) && (d.ip.IsValid() || !isSpecial(ip))
}

func (g Guard) refuse(where, why string) error {
	return picket.Refuse(picket.CodeDestination,
		"Call another address, or ask an operator to put "+web.Shortened(where)+" on "+g.cfg.Setting+
			" in picket.yaml (host:port for an address that is not public).",
		"%s may not be called: %s", web.Shortened(where), why).With("destination", web.Shortened(where))
}

// isSpecial are addresses that no name on the allow-list may lead to.
func isSpecial(ip netip.Addr) bool {
	return ip.IsLinkLocalUnicast() || ip.IsMulticast() || ip.IsUnspecified() ||
		ip == netip.MustParseAddr("fd00:ec2::254") || ip == netip.MustParseAddr("100.100.100.200")
}

// specialRanges are the special-purpose ranges of IPv4, and of IPv6 within 2000::/3,
// as IANA lists them.
var specialRanges = prefixes("0.0.0.0/8 10.0.0.0/8 100.64.0.0/10 127.0.0.0/8 169.254.0.0/16 172.16.0.0/12 192.0.0.0/24 192.0.2.0/24 192.88.99.0/24 " +
	"192.168.0.0/16 198.18.0.0/15 198.51.100.0/24 203.0.113.0/24 224.0.0.0/3 2001::/23 2001:db8::/32 2002::/16 3fff::/20")

// publicIPv6 is where public IPv6 addresses are. What maps IPv4 into IPv6 (NAT64,
// IPv4-compatible) and everything local is outside of it.
var publicIPv6 = netip.MustParsePrefix("2000::/3")

func prefixes(text string) (list []netip.Prefix) {
	for p := range strings.FieldsSeq(text) {
		list = append(list, netip.MustParsePrefix(p))
	}
	return list
}

// IsPublic reports whether an address belongs to the public internet.
func IsPublic(ip netip.Addr) bool {
	if ip.Is6() && !publicIPv6.Contains(ip) {
		return false
	}
	for _, p := range specialRanges {
		if p.Contains(ip) {
			return false
		}
	}
	return ip.IsValid()
}
