package outbound

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"time"
)

// Transport returns a transport that dials through the guard. The caller follows
// redirects, if it wants to, and closes idle connections. trust may be nil.
func (g Guard) Transport(trust *tls.Config) *http.Transport {
	return &http.Transport{
		DialContext:            g.Dial,
		TLSClientConfig:        trust,
		ForceAttemptHTTP2:      true,
		TLSHandshakeTimeout:    10 * time.Second,
		IdleConnTimeout:        30 * time.Second,
		MaxIdleConns:           64,
		MaxResponseHeaderBytes: 64 << 10,
	}
}

// CheckReachable refuses a URL that Dial would refuse now, so that a mistake is reported
// early. A name may lead elsewhere when it is called. A name that cannot be resolved
// passes. The error is a *picket.Error.
func (g Guard) CheckReachable(ctx context.Context, u *url.URL) error {
	if err := g.Check(u); err != nil {
		return err
	}
	host, port := CanonicalHost(u.Hostname()), PortOf(u)
	addresses := []netip.Addr{}
	if ip, err := netip.ParseAddr(host); err == nil {
		addresses = append(addresses, ip)
	} else {
		ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
		defer cancel()
		addresses, _ = g.cfg.Resolver.LookupNetIP(ctx, "ip", host)
	}
	for _, ip := range addresses {
		if err := g.checkAddress(host, port, net.JoinHostPort(ip.String(), port)); err != nil {
			return err
		}
	}
	return nil
}
