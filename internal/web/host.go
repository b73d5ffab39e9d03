package web

import (
	"mime"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"

	"github.com/labstack/echo/v4"

	"github.com/picket-dev/picket"
)

// CheckHost refuses names that were not configured: a foreign name resolving
// to this server is how a web page reaches a loopback port. A literal address
// cannot be re-pointed, so it passes, as localhost does; "*" among the allowed
// names lets every name in.
func CheckHost(r *http.Request, allowed []string) error {
	host := HostName(r)
	if _, err := netip.ParseAddr(host); err == nil || host == "localhost" {
		return nil
	}
	for _, name := range allowed {
		if name == "*" || strings.EqualFold(name, host) {
			return nil
		}
	}
	return picket.Refuse(picket.CodeForbidden,
		"Use localhost or the server's address, or add the name to the allowed hosts of the server.",
		"the host name %.100q is not served here", host)
}

// Accepts reports whether a client asks for the media type by name.
func Accepts(r *http.Request, want string) bool {
	accepted := strings.Split(strings.Join(r.Header.Values(echo.HeaderAccept), ","), ",")
	return slices.ContainsFunc(accepted, func(a string) bool {
		t, _, err := mime.ParseMediaType(a)
		return err == nil && t == want
	})
}

// Network is the address of a client, or its /64 network of IPv6, which is that of one
// household. remote is host:port; the result is empty if it is not.
func Network(remote string) string {
	ap, err := netip.ParseAddrPort(remote)
	if err != nil {
		return ""
	}
	addr := ap.Addr().Unmap().WithZone("")
	if addr.Is4() {
		return addr.String()
	}
	p, _ := addr.Prefix(64)
	return p.String()
}

// HostName is the name or the address that a request was sent to, in lower case
// and without the port.
func HostName(r *http.Request) string {
	host := r.Host
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	return strings.ToLower(strings.Trim(host, "[]"))
}
