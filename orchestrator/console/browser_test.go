package console_test

import (
	"html"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/orchestrator/console"
)

// browser is a person's browser, without JavaScript.
type browser struct {
	*fixture
	cookies map[string]string
	from    string // remote address
	host    string // of the address line: that of the login, once there is one
	key     picket.NewKey
}

func (o *fixture) newBrowser() *browser {
	return &browser{fixture: o, cookies: map[string]string{}, from: "127.0.0.1:40000", host: signInHost}
}

// signedIn signs a person in with a new key of the scopes.
func (o *fixture) signedIn(scopes ...picket.Scope) *browser {
	o.t.Helper()
	s := o.newBrowser()
	s.key = o.newKey(scopes...)
	if p := s.signIn(s.key.Key.Reveal()); p.status != http.StatusSeeOther {
		o.t.Fatalf("sign in: %d %s", p.status, p.text())
	}
	return s
}

// signInHost is where people sign in.
const signInHost = "localhost:7070"

// signIn signs in and goes to the host name of the login; the answer is that to
// the key.
func (s *browser) signIn(key string) response {
	s.t.Helper()
	p := s.sendKey(key, "/console/")
	if p.status == http.StatusSeeOther {
		s.followCode(p)
	}
	return p
}

// sendKey sends a key, from the sign-in page.
func (s *browser) sendKey(key, next string) response {
	s.t.Helper()
	s.host = signInHost
	return s.post("/console/login", "key", key, "next", next)
}

// followCode goes where the answer to a key leads, as a browser does: to another host
// with none of the cookies of this one.
func (s *browser) followCode(p response) response {
	s.t.Helper()
	to, err := url.Parse(p.header.Get("Location"))
	must(s.t, err)
	s.host, s.cookies = to.Host, map[string]string{}
	return s.get(to.RequestURI(), "Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "navigate", "Sec-Fetch-Dest",
		"document")
}

var refresh = regexp.MustCompile(`http-equiv="refresh" content="0; url=([^"]+)"`)

// refreshTarget is where a page sends the browser on its own.
func (p response) refreshTarget() string {
	if m := refresh.FindStringSubmatch(p.body); m != nil {
		return html.UnescapeString(m[1])
	}
	return ""
}

// asksToSignIn reports whether an answer leads to the sign-in page.
func (p response) asksToSignIn() bool {
	return p.status == http.StatusSeeOther && strings.HasPrefix(p.header.Get("Location"), "/console/login") ||
		p.status == http.StatusUnauthorized &&
			strings.HasPrefix(p.refreshTarget(), "http://"+signInHost+"/console/login?next=")
}

// newNonce is one that a form of the login could have.
func (s *browser) newNonce() string { return console.NonceOf(s.cookies[sessionCookie]) }

const sessionCookie = "picket_session_7070"

// response is an answer.
type response struct {
	status int
	header http.Header
	body   string
}

var (
	tags   = regexp.MustCompile(`(?s)<[^>]*>`)
	spaces = regexp.MustCompile(`\s+`)
)

// text is what a person reads.
func (p response) text() string {
	return strings.TrimSpace(spaces.ReplaceAllString(html.UnescapeString(tags.ReplaceAllString(p.body, " ")), " "))
}

func (s *browser) get(path string, headers ...string) response {
	return s.send("GET", path, nil, headers...)
}

// post sends a form; fields come in pairs of name and value.
func (s *browser) post(path string, fields ...string) response {
	form := url.Values{}
	for i := 0; i+1 < len(fields); i += 2 {
		form.Add(fields[i], fields[i+1])
	}
	return s.send("POST", path, form)
}

func (s *browser) send(method, path string, form url.Values, headers ...string) response {
	s.t.Helper()
	var body io.Reader = http.NoBody
	if form != nil {
		body = strings.NewReader(form.Encode())
	}
	r := httptest.NewRequestWithContext(s.t.Context(), method, "http://"+s.host+path, body)
	r.RemoteAddr = s.from
	r.Header.Set("Accept", "text/html,application/xhtml+xml")
	if form != nil {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		r.Header.Set("Sec-Fetch-Site", "same-origin")
	}
	for name, value := range s.cookies {
		r.AddCookie(&http.Cookie{Name: name, Value: value})
	}
	for i := 0; i+1 < len(headers); i += 2 {
		if headers[i] == "Host" {
			r.Host = headers[i+1]
		}
		r.Header.Set(headers[i], headers[i+1])
	}
	w := httptest.NewRecorder()
	s.handler.ServeHTTP(w, r)
	for _, c := range w.Result().Cookies() {
		if s.cookies[c.Name] = c.Value; c.MaxAge < 0 {
			delete(s.cookies, c.Name)
		}
	}
	if w.Code >= 500 {
		s.t.Logf("%s %s: %s", method, path, s.log.String())
	}
	return response{w.Code, w.Header(), w.Body.String()}
}

// mustGet is get for a page that must be there.
func (s *browser) mustGet(path string) response {
	s.t.Helper()
	p := s.get(path)
	if p.status != http.StatusOK {
		s.t.Fatalf("GET %s: %d %s", path, p.status, p.text())
	}
	return p
}

var onceField = regexp.MustCompile(`name="once" value="([^"]+)"`)

// nonce is the number of the forms of a page.
func (p response) nonce(t testing.TB) string {
	t.Helper()
	m := onceField.FindStringSubmatch(p.body)
	if m == nil {
		t.Fatalf("no form on this page: %s", p.text())
	}
	return m[1]
}

// submit opens a page and sends one of its forms, as a person does.
func (s *browser) submit(page, action string, fields ...string) response {
	s.t.Helper()
	opened := s.mustGet(page)
	if !strings.Contains(opened.body, `action="`+action+`"`) {
		s.t.Fatalf("%s has no form that goes to %s", page, action)
	}
	return s.post(action, append(fields, opened.hidden(action)...)...)
}

var hiddenField = regexp.MustCompile(`<input type="hidden" name="([^"]+)" value="([^"]*)">`)

// hidden are the fields of the first form that goes to action which nobody
// fills in.
func (p response) hidden(action string) (fields []string) {
	_, form, _ := strings.Cut(p.body, `action="`+action+`"`)
	form, _, _ = strings.Cut(form, "</form>")
	for _, m := range hiddenField.FindAllStringSubmatch(form, -1) {
		fields = append(fields, m[1], html.UnescapeString(m[2]))
	}
	return fields
}

// follow checks that an answer sends the browser on, and follows it.
func (s *browser) follow(p response) response {
	s.t.Helper()
	if p.status != http.StatusSeeOther {
		s.t.Fatalf("it does not go on: %d %s", p.status, p.text())
	}
	return s.mustGet(p.header.Get("Location"))
}

var nextPage = regexp.MustCompile(`<a href="([^"]+)" rel="next"`)

// nextOf is the address of the page after, empty on the last one.
func nextOf(p response) string {
	if m := nextPage.FindStringSubmatch(p.body); m != nil {
		return html.UnescapeString(m[1])
	}
	return ""
}
