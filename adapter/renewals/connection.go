package renewals

import (
	"net"
	"net/url"
	"strings"
)

// AsPrivate reports whether a credential that is sent to one server can be sent to another one without showing it
// to more people on the network: over TLS, within this machine, or without encryption if that is so for the first
// one, too.
func AsPrivate(server, first string) bool { return !inClear(server) || inClear(first) }

// inClear reports whether requests to a server cross a network without encryption. A URL that cannot be read
// counts as such.
func inClear(server string) bool {
	if strings.HasPrefix(server, "unix:") {
		return false
	}
	u, err := url.Parse(server)
	if err != nil || u.Scheme != "https" && u.Scheme != "http" {
		return true
	}
	ip := net.ParseIP(u.Hostname())
	local := u.Hostname() == "localhost" || ip != nil && ip.IsLoopback()
	return u.Scheme == "http" && !local
}
