package console

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/picket-dev/picket"
)

// entrance are the routes that are open to everybody.
func entrance() []route {
	return []route{
		{name: "login", method: get, path: loginPath, handle: loginPage},
		{name: "login.send", method: post, path: loginPath, handle: login},
		{name: "logout", method: post, path: "/console/logout", handle: logout},
		{name: "theme", method: post, path: "/console/theme", handle: chooseTheme},
	}
}

// loginForm is what the login page shows: where to go afterwards.
type loginForm struct{ Next string }

func loginPage(v *visit) error {
	next := localPath(v.QueryParam("next"))
	if v.desk != nil {
		return v.Redirect(http.StatusSeeOther, next)
	}
	return v.show(http.StatusOK, page{name: "login", title: "Sign in", body: loginForm{next}})
}

// refusalTime is how long every wrong key takes to be refused, so that the time
// of the answer says nothing about why.
const refusalTime = 300 * time.Millisecond

// login exchanges a key for a session.
func login(v *visit) error {
	next := localPath(v.form("next"))
	failed := func(err error) error {
		return v.show(picket.CodeOf(err).Status(), page{name: "login", title: "Sign in", body: loginForm{next}, problem: err})
	}
	giveBack, wait := v.console.attempts.begin(remoteAddr(v.Request()))
	began := time.Now()
	token, s, err := v.openSession(picket.Secret(strings.TrimSpace(v.form("key"))))
	if errors.Is(err, picket.CodeUnauthenticated) {
		pauseUntil(v.ctx(), began.Add(refusalTime))
		return failed(tooOften(err, wait))
	}
	giveBack()
	if err != nil {
		return failed(err)
	}
	v.endSession() // of the key that was signed in before
	v.setCookie(cookieName(v.Request()), token.Reveal(), int(picket.SessionLife.Seconds()))
	v.console.log.InfoContext(v.Request().Context(), "a person signed in", "key", s.Principal.KeyID, "namespace", s.Principal.Namespace)
	return v.Redirect(http.StatusSeeOther, next)
}

// tooOften is the refusal of a wrong key where the address has no attempt left.
// A right key is let in all the same: an agent that shares the address must not
// be able to keep people from the stop button.
func tooOften(wrong error, wait time.Duration) error {
	if wait <= 0 {
		return wrong
	}
	refusal := picket.Refuse(picket.CodeRateLimited, "Wait a minute, then try again.", "too many wrong keys were tried from this address")
	refusal.RetryAfter = wait
	return refusal
}

// person is a key of a namespace.
type person struct{ namespace, key string }

func (v *visit) openSession(key picket.Secret) (picket.Secret, picket.Session, error) {
	none := picket.Session{}
	bad := picket.Refuse(picket.CodeUnauthenticated, "Check that all of the key was copied, or make a new one with: picket key create NAME --scope reviewer", "this key is not valid")
	if strings.HasPrefix(key.Reveal(), picket.CapabilityPrefix) {
		return "", none, bad
	}
	namespace, ok := picket.KeyNamespace(key.Reveal())
	if !ok {
		return "", none, bad
	}
	desk := v.console.cfg.Desk(namespace)
	if desk == nil {
		return "", none, bad
	}
	who, err := desk.Authenticate(v.ctx(), key)
	switch {
	case errors.Is(err, picket.CodeUnauthenticated):
		return "", none, bad
	case err != nil:
		return "", none, err
	case !who.May(people...):
		return "", none, picket.Refuse(picket.CodeForbidden, "Make a key for people with: picket key create NAME --scope reviewer (or operator)",
			"this key is for an agent, and the console is for people")
	}
	giveBack, wait := v.console.logins.begin(person{namespace, who.KeyID})
	if wait > 0 {
		refusal := picket.Refuse(picket.CodeRateLimited, "Wait a minute, then sign in again; where you are signed in you go on as you are.",
			"this key has opened %d sessions within a minute", maxLogins)
		refusal.RetryAfter = wait
		return "", none, refusal
	}
	token, s, err := desk.OpenSession(v.ctx(), key, addressClass(v.Request()))
	if err != nil {
		giveBack()
	}
	if errors.Is(err, picket.CodeUnauthenticated) {
		err = bad
	}
	return token, s, err
}

func pauseUntil(ctx context.Context, at time.Time) {
	t := time.NewTimer(time.Until(at))
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}

// endSession closes the session the request came with, if any. One that cannot
// be closed now ends by itself; the browser forgets it in any case.
func (v *visit) endSession() {
	if v.desk == nil {
		return
	}
	if err := v.desk.CloseSession(v.ctx(), v.token); err != nil {
		v.console.log.WarnContext(v.Request().Context(), "close a session", "key", v.session.Principal.KeyID, "err", err)
	}
}

func logout(v *visit) error {
	v.endSession()
	v.setCookie(cookieName(v.Request()), "", -1)
	return v.Redirect(http.StatusSeeOther, loginPath)
}

// themes are what a person may choose; "system" is what their device says.
var themes = []string{"system", "light", "dark"}

const themeCookie = "picket_theme"

func chooseTheme(v *visit) error {
	chosen, age := v.form("theme"), 365*24*60*60
	if chosen != "light" && chosen != "dark" {
		chosen, age = "", -1
	}
	v.setCookie(themeCookie, chosen, age)
	return v.Redirect(http.StatusSeeOther, localPath(v.form("back")))
}

func (v *visit) theme() string {
	if c, err := v.Request().Cookie(themeCookie); err == nil && (c.Value == "light" || c.Value == "dark") {
		return c.Value
	}
	return "system"
}
