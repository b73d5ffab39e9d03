package console

import (
	"context"
	"crypto/rand"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/internal/web"
)

// loginForm is what the login page shows.
type loginForm struct {
	Next      string // where to go afterwards
	Elsewhere string // where to sign in, if that is not here
	OwnName   bool   // the login gets a host name of its own
}

func (v *request) newLoginForm(next string) loginForm {
	f := loginForm{Next: next, OwnName: v.site.kind == signInSite}
	if v.site.kind == loginSite {
		f.Elsewhere = v.site.signInURL(next)
	}
	return f
}

func (v *request) loginPage(next string, problem error) error {
	if v.site.kind == signInSite {
		// Browsers hold the redirect after a form against this, too.
		v.Response().Header().Set(echo.HeaderContentSecurityPolicy,
			strings.Replace(contentPolicy, "form-action 'self'",
				"form-action 'self' "+v.site.urlFor("*.localhost", "", nil), 1))
	}
	return v.render(page{name: "login", title: "Sign in", body: v.newLoginForm(next), problem: problem})
}

func showLogin(v *request) error {
	next := localPath(v.QueryParam("next"))
	switch {
	case v.backend != nil:
		return v.Redirect(http.StatusSeeOther, next)
	case v.site.kind == loginSite:
		return v.redirectToSignIn(http.StatusOK, next)
	}
	return v.loginPage(next, nil)
}

const (
	// wrongKeysPerMinute is how many wrong keys an address may try a minute.
	wrongKeysPerMinute = 10
	// loginsPerMinute is how often a key may log in within a minute: each login
	// is written down, and so is its end.
	loginsPerMinute = 20
)

// refusalDelay is how long every wrong key takes to be refused, so that the time
// of the answer says nothing about why.
const refusalDelay = 300 * time.Millisecond

// signIn exchanges a key for a login. On a sign-in site it exchanges the key for
// a one-time code, and sends the browser to a new host name with it.
func signIn(v *request) error {
	next := localPath(v.formValue("next"))
	if err := v.signInRefusal(); err != nil {
		return v.loginPage(next, err)
	}
	host := v.site.host
	if v.site.kind == signInSite {
		host = strings.ToLower(rand.Text()) + ".localhost"
	}
	giveBack, wait := v.console.wrongKeys.Take(web.Network(v.Request().RemoteAddr))
	began := time.Now()
	backend, code, err := v.beginLogin(picket.Secret(strings.TrimSpace(v.formValue("key"))), host)
	if errors.Is(err, picket.CodeUnauthenticated) {
		sleepUntil(v.ctx(), began.Add(refusalDelay))
		return v.loginPage(next, tooManyAttempts(err, wait))
	}
	giveBack()
	if err != nil {
		return v.loginPage(next, err)
	}
	if v.site.kind == signInSite {
		v.Response().Header().Set(echo.HeaderReferrerPolicy, "no-referrer")
		return v.Redirect(http.StatusSeeOther,
			v.site.urlFor(host, enterPath, url.Values{"code": {code.Reveal()}, "next": {next}}))
	}
	if err := v.openLogin(backend, code); err != nil {
		return v.loginPage(next, err)
	}
	return v.Redirect(http.StatusSeeOther, next)
}

// redeemCode takes the code of a login on the host name that was made for it. Whether
// the name or the code is wrong, the answer is the same.
func redeemCode(v *request) error {
	next := localPath(v.QueryParam("next"))
	if v.backend != nil {
		return v.Redirect(http.StatusSeeOther, next) // the page was loaded again
	}
	if v.site.kind != loginSite {
		return v.redirectToSignIn(http.StatusOK, next)
	}
	code := picket.Secret(v.QueryParam("code"))
	bad := picket.Refuse(picket.CodeUnauthenticated, "Sign in again.", "the sign-in has expired or was used before")
	backend := v.backendFor(code)
	if backend == nil {
		return v.loginPage(next, bad)
	}
	err := v.openLogin(backend, code)
	if errors.Is(err, picket.CodeUnauthenticated) {
		err = bad
	}
	if err != nil {
		return v.loginPage(next, err)
	}
	// The page loads the next one automatically: after a redirect from another
	// host the strict cookie would not come along.
	return v.refreshTo(http.StatusOK, next)
}

// openLogin turns a code into a login of this site.
func (v *request) openLogin(backend *Backend, code picket.Secret) error {
	token, s, err := backend.Logins.OpenLogin(v.ctx(), code, v.site.host)
	if err != nil {
		return err
	}
	v.closeLogin() // of the key that was signed in before
	v.setLoginCookie(token.Reveal(), int(picket.LoginLifetime.Seconds()))
	v.console.log.InfoContext(v.Request().Context(), "a person signed in", "key", s.Principal.KeyID, "namespace",
		s.Principal.Namespace)
	return nil
}

// tooManyAttempts is the refusal of a wrong key where the address has no attempt left.
// A right key is let in all the same: an agent that shares the address must not
// be able to keep people from the stop button.
func tooManyAttempts(wrong error, wait time.Duration) error {
	if wait <= 0 {
		return wrong
	}
	refusal := picket.Refuse(picket.CodeRateLimited, "Wait a minute, then try again.",
		"too many wrong keys were tried from this address")
	refusal.RetryAfter = wait
	return refusal
}

// loginKey is a key of a namespace.
type loginKey struct {
	namespace string
	key       string
}

// beginLogin checks a key, and makes a one-time code for it on a host name.
func (v *request) beginLogin(key picket.Secret, host string) (backend *Backend, code picket.Secret, err error) {
	bad := picket.Refuse(picket.CodeUnauthenticated,
		"Check that all of the key was copied, or make a new one with: picket key create NAME --scope reviewer",
		"this key is not valid")
	if strings.HasPrefix(key.Reveal(), picket.LeaseTokenPrefix) ||
		strings.HasPrefix(key.Reveal(), picket.SessionCapabilityPrefix) {
		return nil, "", bad
	}
	namespace, ok := picket.KeyNamespace(key.Reveal())
	if !ok {
		return nil, "", bad
	}
	if backend = v.console.cfg.Backend(namespace); backend == nil {
		return nil, "", bad
	}
	who, err := backend.Logins.Authenticate(v.ctx(), key)
	switch {
	case errors.Is(err, picket.CodeUnauthenticated):
		return nil, "", bad
	case err != nil:
		return nil, "", err
	case !who.May(personScopes...):
		return nil, "", picket.Refuse(picket.CodeForbidden,
			"Make a key for people with: picket key create NAME --scope reviewer (or operator)",
			"this key is for a program, and the console is for people")
	}
	giveBack, wait := v.console.logins.Take(loginKey{namespace, who.KeyID})
	if wait > 0 {
		refusal := picket.Refuse(picket.CodeRateLimited,
			"Wait a minute, then sign in again; where you are signed in you go on as you are.",
			"this key has logged in %d times within a minute", loginsPerMinute)
		refusal.RetryAfter = wait
		return nil, "", refusal
	}
	code, _, err = backend.Logins.BeginLogin(v.ctx(), key, host, addressClass(v.Request()))
	if err != nil {
		giveBack()
	}
	if errors.Is(err, picket.CodeUnauthenticated) {
		err = bad
	}
	return backend, code, err
}

func sleepUntil(ctx context.Context, at time.Time) {
	t := time.NewTimer(time.Until(at))
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}

// closeLogin closes the login that the request came with, if any. One that cannot
// be closed now ends on its own; the browser forgets it in any case.
func (v *request) closeLogin() {
	if v.backend == nil {
		return
	}
	if err := v.backend.Logins.CloseLogin(v.ctx(), v.token, v.site.host); err != nil {
		v.console.log.WarnContext(v.Request().Context(), "close a login", "key", v.login.Principal.KeyID, "err", err)
	}
}

func signOut(v *request) error {
	v.closeLogin()
	v.setLoginCookie("", -1)
	return v.Redirect(http.StatusSeeOther, loginPath)
}

// themes are what a person may choose; "system" is what their device says.
var themes = []string{"system", "light", "dark"}

const themeCookie = "picket_theme"

func chooseTheme(v *request) error {
	chosen, age := v.formValue("theme"), 365*24*60*60
	if chosen != "light" && chosen != "dark" {
		chosen, age = "", -1
	}
	v.setCookie(themeCookie, chosen, v.site.tls, age)
	return v.Redirect(http.StatusSeeOther, localPath(v.formValue("back")))
}

func (v *request) theme() string {
	if c, err := v.Request().Cookie(themeCookie); err == nil && (c.Value == "light" || c.Value == "dark") {
		return c.Value
	}
	return "system"
}
