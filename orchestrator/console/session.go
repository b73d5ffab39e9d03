package console

import (
	"errors"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"

	"github.com/picket-dev/picket"
)

// cookieName has the port in it: cookies of a host are shared by all its
// ports, and a person may have several servers on this machine.
func cookieName(r *http.Request) string { return "picket_session_" + port(r) }

func port(r *http.Request) string {
	if _, p, err := net.SplitHostPort(r.Host); err == nil {
		return p
	}
	if r.TLS != nil {
		return "443"
	}
	return "80"
}

// overTLS reports whether the browser came by https: here, or at the TLS proxy
// in front, which the Origin of a form tells.
func overTLS(r *http.Request) bool {
	return r.TLS != nil || strings.HasPrefix(r.Header.Get("Origin"), "https://")
}

func (v *visit) setCookie(name, value string, maxAge int) {
	v.SetCookie(&http.Cookie{Name: name, Value: value, Path: "/", HttpOnly: true, Secure: overTLS(v.Request()),
		SameSite: http.SameSiteStrictMode, MaxAge: maxAge})
}

// identify reads the session of the request and asks the engine whether it is
// still good; the key behind it is asked again every time.
func (v *visit) identify() (signedIn bool, err error) {
	cookie, err := v.Request().Cookie(cookieName(v.Request()))
	if err != nil || len(cookie.Value) > 256 {
		return false, nil
	}
	namespace, _, ok := strings.Cut(cookie.Value, ".")
	if !ok || picket.CheckNamespace("namespace", namespace) != nil {
		return false, nil
	}
	desk := v.console.cfg.Desk(namespace)
	if desk == nil {
		return false, nil
	}
	token := picket.Secret(cookie.Value)
	ask := desk.Session
	if v.Request().Header.Get(partHeader) != "" {
		ask = desk.SessionHolds // the page asks by itself
	}
	s, err := ask(v.ctx(), token)
	switch {
	case errors.Is(err, picket.CodeUnauthenticated):
		return false, nil
	case err != nil:
		return false, err
	case !s.Principal.May(people...):
		return false, nil // its key has no scope for people
	}
	v.desk, v.session, v.token = desk, s, token
	return true, nil
}

// askToSignIn sends a person to the login page, and afterwards back to where
// they wanted to go. What was posted is not done.
func (v *visit) askToSignIn() error {
	r := v.Request()
	if v.Request().Header.Get(partHeader) != "" || r.Method != get {
		return v.console.refuse(v, picket.Refuse(picket.CodeUnauthenticated, "Sign in again; nothing was changed.", "your session has ended"))
	}
	// A strict cookie does not come along when another site's link was followed;
	// it does when this page asks for itself.
	back := localPath(asked(r.URL))
	if r.Header.Get("Sec-Fetch-Site") == "cross-site" {
		return v.show(http.StatusOK, page{name: "knock", title: "Picket", body: back})
	}
	return v.Redirect(http.StatusSeeOther, loginPath+"?next="+url.QueryEscape(back))
}

// asked is the page of an address, without what its last decision had to say.
func asked(u *url.URL) string {
	q := u.Query()
	if !q.Has("did") {
		return u.RequestURI()
	}
	q.Del("did")
	return (&url.URL{Path: u.Path, RawQuery: q.Encode()}).RequestURI()
}

// remoteAddr is who is counted: an address, or the network of one household for
// IPv6. What a proxy says of its clients is not believed.
func remoteAddr(r *http.Request) netip.Prefix {
	ap, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return netip.Prefix{}
	}
	addr, bits := ap.Addr().Unmap(), 32
	if addr.Is6() {
		bits = 64
	}
	p, _ := addr.WithZone("").Prefix(bits)
	return p
}

// addressClass is all that is written down of where a person came from.
func addressClass(r *http.Request) string {
	ap, err := netip.ParseAddrPort(r.RemoteAddr)
	switch addr := ap.Addr().Unmap(); {
	case err != nil:
		return "unknown"
	case addr.IsLoopback():
		return "loopback"
	case addr.IsPrivate(), addr.IsLinkLocalUnicast():
		return "private"
	}
	return "public"
}
