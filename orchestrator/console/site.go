package console

import (
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/internal/lazyregexp"
	"github.com/picket-dev/picket/internal/web"
)

// Browsers send a cookie to every port of its host. Any program on this machine
// can listen on another port, so a cookie of localhost or 127.0.0.1 is not secret.
// Therefore each login has its own host name below localhost, which browsers
// resolve to this machine. Only the person who signed in learns the name.

// A siteKind is what the console does on a host name.
type siteKind int

const (
	// signInSite is localhost or a loopback address. It shows only the sign-in
	// page, and sets no cookie.
	signInSite siteKind = iota
	// loginSite has the form of a host name of one login. The site answers the
	// same whether or not such a login exists, unless its cookie comes along.
	loginSite
	// secureSite is a name or an address beyond this machine. The cookie is a
	// __Host- cookie, so people must reach the site by https.
	secureSite
	// sharedSite has a cookie that every port of its host gets. It is for
	// browsers that do not resolve names below localhost, see [Config.OneHost].
	sharedSite
	// closedSite lets nobody sign in: localhost by https, where browsers send
	// even Secure cookies to servers on other ports that do not use TLS.
	closedSite
)

// site is where a request was sent to.
type site struct {
	kind siteKind
	host string // in lower case, without the port
	port string // as the browser wrote it; empty for the usual one
	tls  bool   // the browser came by https, as far as the request shows it
}

// loginHostPattern is the form of a host name of a login: 130 random bits.
var loginHostPattern = lazyregexp.New(`^[a-z2-7]{26}\.localhost$`)

// siteOf returns the site that a request was sent to. It refuses host names that
// are not served here. Headers such as X-Forwarded-Host are ignored.
func (c *Console) siteOf(r *http.Request) (site, error) {
	s := site{host: web.HostName(r), tls: r.TLS != nil || strings.HasPrefix(r.Header.Get("Origin"), "https://")}
	if _, port, err := net.SplitHostPort(r.Host); err == nil {
		s.port = port
	}
	if strings.Trim(s.port, "0123456789") != "" {
		return s, picket.Refuse(picket.CodeForbidden, "Send a Host header with a port number, or without a port.",
			"the host header has no valid port")
	}
	if !c.cfg.OneHost && loginHostPattern().MatchString(s.host) {
		s.kind = loginSite
		return s, nil
	}
	if err := web.CheckHost(r, c.hosts); err != nil {
		return s, err
	}
	s.tls = s.tls || s.host == c.publicHost
	switch {
	case loopbackName(s.host) && c.cfg.OneHost, c.cfg.OneHost && !s.tls:
		s.kind = sharedSite
	case loopbackName(s.host) && s.tls:
		s.kind = closedSite
	case loopbackName(s.host):
		s.kind = signInSite
	default:
		s.kind = secureSite
	}
	return s, nil
}

// loopbackName reports whether browsers resolve a name to this machine.
func loopbackName(host string) bool {
	if host == "localhost" || strings.HasSuffix(host, ".localhost") {
		return true
	}
	addr, err := netip.ParseAddr(host)
	return err == nil && addr.Unmap().IsLoopback()
}

// httpsHost is the host name of an https URL, else empty.
func httpsHost(address string) string {
	u, err := url.Parse(address)
	if err != nil || u.Scheme != "https" {
		return ""
	}
	return strings.ToLower(u.Hostname())
}

// urlFor is a path of the console on another host name of this machine, on the
// same port.
func (s site) urlFor(host, path string, query url.Values) string {
	if s.port != "" {
		host += ":" + s.port
	}
	return (&url.URL{Scheme: "http", Host: host, Path: path, RawQuery: query.Encode()}).String()
}

// signInURL is where a person signs in to come back to next.
func (s site) signInURL(next string) string {
	q := url.Values{"next": {next}}
	if s.kind != loginSite {
		return loginPath + "?" + q.Encode()
	}
	return s.urlFor("localhost", loginPath, q)
}

// signInRefusal returns the reason if nobody can sign in on the site, else nil.
func (v *request) signInRefusal() error {
	origin := v.Request().Header.Get("Origin")
	u, err := url.Parse(origin)
	switch changed := origin != "" && origin != "null" &&
		(err != nil || !strings.EqualFold(u.Host, v.Request().Host)); {
	case changed:
		return picket.Refuse(picket.CodeForbidden, "Configure the proxy to pass the Host header on unchanged.",
			"the proxy in front of the server has changed the Host header")
	case v.site.kind == loginSite:
		return picket.Refuse(picket.CodeForbidden,
			"Open "+v.site.urlFor("localhost", loginPath, nil)+" and sign in there.",
			"nobody can sign in at this host name")
	case v.site.kind == closedSite:
		return picket.Refuse(picket.CodeForbidden,
			"Open the console at the host name of the certificate, and set public_url to it.",
			"nobody can sign in at localhost over https, because browsers send its cookies to every port")
	case v.site.kind == secureSite && !v.site.tls:
		return picket.Refuse(picket.CodeForbidden,
			"Use https and set public_url, or open the console on the machine of the server.",
			"nobody can sign in at this host name over http, because the cookie would be sent without encryption")
	}
	return nil
}
