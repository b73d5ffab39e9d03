package console

import (
	"errors"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"github.com/picket-dev/picket"
)

// cookieName has the port in it: cookies of a host are shared by all its
// ports, and a person may have several servers on this machine. Browsers take a
// __Host- cookie only by https, for one host and for all of its paths.
func (s site) cookieName(secure bool) string {
	name := "picket_session_" + s.port
	if secure {
		return "__Host-" + name
	}
	return name
}

// maxCookies bounds how many cookies of one name a request is asked about.
const maxCookies = 8

// loginCookies are the cookies that can hold the login on this site, in the
// order in which they are tried. Other programs and pages of this host can add
// cookies of the same name. Browsers send cookies of longer paths first, and the
// console's own is for all paths, so the last of a name is tried first.
func (v *request) loginCookies() (tokens []picket.Secret) {
	var names []string
	switch v.site.kind {
	case loginSite, sharedSite:
		names = []string{v.site.cookieName(false)}
	case secureSite:
		names = []string{v.site.cookieName(true)}
	}
	if v.site.kind == sharedSite && !loopbackName(v.site.host) {
		names = append(names, v.site.cookieName(true)) // a proxy in front may speak TLS
	}
	for _, name := range names {
		all := v.Request().CookiesNamed(name)
		for _, c := range slices.Backward(all[max(0, len(all)-maxCookies):]) {
			if len(c.Value) <= 256 {
				tokens = append(tokens, picket.Secret(c.Value))
			}
		}
	}
	return tokens
}

// setLoginCookie stores the token of the login in the browser; an empty value removes it.
func (v *request) setLoginCookie(value string, maxAge int) {
	secure := v.site.kind == secureSite
	v.setCookie(v.site.cookieName(secure), value, secure, maxAge)
}

// setCookie stores a cookie. A sign-in site has none.
func (v *request) setCookie(name, value string, secure bool, maxAge int) {
	if v.site.kind == signInSite || v.site.kind == closedSite {
		return
	}
	v.SetCookie(&http.Cookie{
		Name:     name,
		Value:    value,
		Path:     "/",
		HttpOnly: true,
		Secure:   secure,
		SameSite: http.SameSiteStrictMode,
		MaxAge:   maxAge,
	})
}

// authenticate finds the login of the request: the first of its cookies with which
// the engine knows an open one. The key behind it is asked again every time.
func (v *request) authenticate() (signedIn bool, err error) {
	for _, token := range v.loginCookies() {
		if signedIn, err = v.authenticateWith(token); signedIn || err != nil {
			return signedIn, err
		}
	}
	return false, nil
}

func (v *request) authenticateWith(token picket.Secret) (signedIn bool, err error) {
	backend := v.backendFor(token)
	if backend == nil {
		return false, nil
	}
	ask := backend.Logins.Login
	if v.Request().Header.Get(partHeader) != "" {
		ask = backend.Logins.CheckLogin // the page asks automatically
	}
	s, err := ask(v.ctx(), token, v.site.host)
	switch {
	case errors.Is(err, picket.CodeUnauthenticated):
		return false, nil
	case err != nil:
		return false, err
	case !s.Principal.May(personScopes...):
		return false, nil // its key has no scope for people
	}
	v.backend, v.login, v.token = backend, s, token
	return true, nil
}

// backendFor is the engine that knows the token or the one-time code of a login; nil
// if this process serves none.
func (v *request) backendFor(secret picket.Secret) *Backend {
	namespace, _, ok := strings.Cut(secret.Reveal(), ".")
	if !ok || picket.CheckNamespace("namespace", namespace) != nil {
		return nil
	}
	return v.console.cfg.Backend(namespace)
}

// requireLogin sends a person to the login page, and afterwards back to where
// they wanted to go. What was posted is not done.
func (v *request) requireLogin() error {
	r := v.Request()
	if v.Request().Header.Get(partHeader) != "" || r.Method != get {
		return v.console.renderError(v,
			picket.Refuse(picket.CodeUnauthenticated, "Sign in again; nothing was changed.", "your login has ended"))
	}
	// A strict cookie does not come along when another site's link was followed;
	// it does when this page asks for itself.
	back := localPath(withoutFlash(r.URL))
	if v.site.kind != signInSite && r.Header.Get("Sec-Fetch-Site") == "cross-site" {
		return v.refreshTo(http.StatusOK, back)
	}
	return v.redirectToSignIn(http.StatusUnauthorized, back)
}

// redirectToSignIn sends the browser to the sign-in page. On the host name of a login it
// does so with a page, because after a form the browser would not follow a
// redirect to another host.
func (v *request) redirectToSignIn(status int, next string) error {
	if v.site.kind == loginSite {
		return v.refreshTo(status, v.site.signInURL(next))
	}
	return v.Redirect(http.StatusSeeOther, v.site.signInURL(next))
}

// refreshTo answers with a page that loads another one automatically.
func (v *request) refreshTo(status int, to string) error {
	return v.render(page{status: status, name: "redirect", title: "Picket", body: to})
}

// withoutFlash is the page of an address, without what its last decision had to say.
func withoutFlash(u *url.URL) string {
	q := u.Query()
	if !q.Has("did") {
		return u.RequestURI()
	}
	q.Del("did")
	return (&url.URL{Path: u.Path, RawQuery: q.Encode()}).RequestURI()
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
