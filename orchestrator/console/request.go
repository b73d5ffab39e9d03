package console

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"unicode/utf8"

	"github.com/labstack/echo/v4"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/internal/web"
)

// maxForm bounds a posted form, in bytes: a payload of 256 KiB may take three
// times that when it is encoded.
const maxForm = 1 << 20

// request is one request of a person: who it is and the engine of their
// namespace. The backend is nil on pages that are open to everybody.
type request struct {
	echo.Context
	console     *Console
	site        site
	route       route
	backend     *Backend
	login       picket.Login
	token       picket.Secret
	stats       picket.Stats
	statsLoaded bool  // stats are there
	submitting  bool  // a form is being carried out
	problem     error // why the form that was sent is refused
}

func (v *request) ctx() context.Context { return v.Request().Context() }

func (v *request) may(name string) bool {
	r, known := v.console.routes[name]
	return known && (r.isPublic() || v.backend != nil && v.login.Principal.May(r.scopes...))
}

// handler finds out who asks, checks that they may, and turns what went wrong
// into a page.
func (c *Console) handler(r route) func(*request) error {
	return func(v *request) error {
		v.route = r
		if r.method == post {
			v.Request().Body = http.MaxBytesReader(v.Response(), v.Request().Body, maxForm)
			if err := v.readForm(); err != nil {
				return c.renderError(v, err)
			}
		}
		signedIn, err := v.authenticate()
		if signedIn {
			err = web.MarkAuthenticated(v.Context, web.KindLogin, v.login.Principal.KeyID)
		}
		switch {
		case err != nil && r.name != "logout": // the browser forgets its login anyway
			return c.renderError(v, err)
		case !signedIn && !r.isPublic():
			return v.requireLogin()
		case !r.isPublic() && !v.login.Principal.May(r.scopes...):
			return c.renderError(v, picket.Refuse(picket.CodeForbidden,
				"Sign in with a key that may, or ask somebody who has one.",
				"the key %s may not do this", v.login.Principal.Name))
		}
		v.submitting = r.method == post
		if err := r.handle(v); err != nil {
			return c.renderError(v, err)
		}
		return nil
	}
}

func (v *request) readForm() error {
	err := v.Request().ParseForm()
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &tooLarge):
		return picket.Refuse(picket.CodeTooLarge, "Write less; long texts belong into the repository.",
			"the form is larger than %d KiB", maxForm>>10)
	case err != nil:
		return picket.Invalid("", "Send the form from the page again.", "the form cannot be read")
	}
	for name, values := range v.Request().PostForm {
		if !utf8.ValidString(name + strings.Join(values, "")) {
			return picket.Invalid("", "Send the form from the page again.", "the form is not encoded as UTF-8")
		}
		for i, text := range values {
			values[i] = strings.ReplaceAll(text, "\r\n", "\n") // as it was before the browser sent it
		}
	}
	return nil
}

// A pageBuilder makes the page that answers a request.
type pageBuilder func(*request) (page, error)

// show answers with the page that build makes. The stats are loaded first: the page
// is then at least as new as the sequence number that it carries, and no event
// between the two is missed.
func (v *request) show(build pageBuilder) error {
	if err := v.loadStats(); err != nil {
		return err
	}
	p, err := build(v)
	if err != nil {
		return err
	}
	return v.render(p)
}

// A decision does what a form asks for. It returns the address of the page that the
// person is sent to afterwards.
type decision func(v *request, by picket.Caller, reason string) (to string, err error)

// decide carries out a form. If it is refused, the page of again is shown as things
// stand now, with the problem and with what was typed.
func (v *request) decide(again pageBuilder, do decision) error {
	to, err := v.try(do)
	if err != nil {
		v.problem = err
		return v.show(again)
	}
	return v.Redirect(http.StatusSeeOther, to)
}

func (v *request) try(do decision) (to string, err error) {
	reason, err := v.shortText("reason")
	if err != nil {
		return "", err
	}
	by, err := v.caller()
	if err != nil {
		return "", err
	}
	return do(v, by, reason)
}

// maxReason bounds a reason in bytes, as the API does: it goes into events.
const maxReason = 4096

// shortText is a field of the posted form with at most maxReason bytes.
func (v *request) shortText(name string) (string, error) {
	text := v.formValue(name)
	if len(text) > maxReason {
		return "", picket.Invalid("/"+name, "Write less; details belong into the task.",
			"the %s has %d bytes, at most %d are allowed", name, len(text), maxReason)
	}
	return text, nil
}

// isChecked reports whether a box or a button of the posted form was chosen.
func (v *request) isChecked(name string) bool { return v.formValue(name) != "" }

// formValue is a field of the posted form.
func (v *request) formValue(name string) string { return v.Request().PostForm.Get(name) }

// formWord is the same without the blanks around it.
func (v *request) formWord(name string) string { return strings.TrimSpace(v.formValue(name)) }

// The fields of every form that decides something: its number, and the page that
// it is on. Sending the form twice has one effect.
const (
	nonceField = "once"
	fromField  = "from"
)

// newNonce returns a number for the forms of a page. It is bound to the login, so
// no page of another server can make one and send a form.
func (v *request) newNonce() string {
	random := rand.Text()
	return random + "." + v.nonceMAC(random)
}

// nonceMAC is the part of a number that proves to which login it belongs.
func (v *request) nonceMAC(random string) string {
	mac := hmac.New(sha256.New, []byte(v.token.Reveal()))
	mac.Write([]byte("form of the console\x00" + random))
	return base64.RawURLEncoding.EncodeToString(mac.Sum(nil)[:16])
}

// ownsNonce reports whether a number was made for this login.
func (v *request) ownsNonce(number string) bool {
	random, seal, _ := strings.Cut(number, ".")
	return v.token != "" && len(random) == len(rand.Text()) && hmac.Equal([]byte(seal), []byte(v.nonceMAC(random)))
}

// caller is who decides. The key of a decision is the form's own number, so that
// a second press of the button, or of the same button after a lost answer, is
// the same decision. Without a number of this login nothing is decided.
func (v *request) caller() (picket.Caller, error) {
	who := v.login.Principal
	by := picket.Caller{Actor: who.KeyID, Operator: who.May(picket.ScopeOperator)}
	nonce := v.formValue(nonceField)
	if !v.ownsNonce(nonce) {
		return by, picket.Refuse(picket.CodeForbidden, "Load the page again, then press the button there.",
			"the form does not belong to this login")
	}
	rest := url.Values{}
	for name, values := range v.Request().PostForm {
		if name != nonceField && name != fromField {
			rest[name] = values
		}
	}
	by.Idempotency = picket.Idempotency{
		Key:  digest("console", who.KeyID, v.Request().URL.Path, nonce),
		Body: digest(rest.Encode()),
	}
	return by, nil
}

// currentPath is the page the person is on: a form says on which it stood.
func (v *request) currentPath() string {
	if r := v.Request(); r.Method == get {
		return localPath(r.URL.RequestURI())
	}
	return localPath(v.formValue(fromField))
}

// digest is the hex SHA-256 of the parts, kept apart by NUL.
func digest(parts ...string) string {
	h := sha256.New()
	for _, p := range parts {
		h.Write([]byte(p))
		h.Write([]byte{0})
	}
	return hex.EncodeToString(h.Sum(nil))
}
