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

// seat is a person's browser, without JavaScript.
type seat struct {
	*office
	cookies map[string]string
	from    string // remote address
	host    string // of the address line: that of the login, once there is one
	key     picket.NewKey
}

func (o *office) browser() *seat {
	return &seat{office: o, cookies: map[string]string{}, from: "127.0.0.1:40000", host: signInHost}
}

// sit signs a person in with a new key of the scopes.
func (o *office) sit(scopes ...picket.Scope) *seat {
	o.t.Helper()
	s := o.browser()
	s.key = o.key(scopes...)
	if p := s.signIn(s.key.Key.Reveal()); p.status != http.StatusSeeOther {
		o.t.Fatalf("sign in: %d %s", p.status, p.text())
	}
	return s
}

// signInHost is where people sign in.
const signInHost = "localhost:7070"

// signIn signs in and goes to the host name of the login; the answer is that to
// the key.
func (s *seat) signIn(key string) paper {
	s.t.Helper()
	p := s.begin(key, "/console/")
	if p.status == http.StatusSeeOther {
		s.enter(p)
	}
	return p
}

// begin sends a key, from the sign-in page.
func (s *seat) begin(key, next string) paper {
	s.t.Helper()
	s.host = signInHost
	return s.post("/console/login", "key", key, "next", next)
}

// enter goes where the answer to a key leads, as a browser does: to another host
// with none of the cookies of this one.
func (s *seat) enter(p paper) paper {
	s.t.Helper()
	to, err := url.Parse(p.header.Get("Location"))
	must(s.t, err)
	s.host, s.cookies = to.Host, map[string]string{}
	return s.get(to.RequestURI(), "Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "navigate", "Sec-Fetch-Dest",
		"document")
}

var refresh = regexp.MustCompile(`http-equiv="refresh" content="0; url=([^"]+)"`)

// leadsTo is where a page sends the browser by itself.
func (p paper) leadsTo() string {
	if m := refresh.FindStringSubmatch(p.body); m != nil {
		return html.UnescapeString(m[1])
	}
	return ""
}

// asksToSignIn reports whether an answer leads to the sign-in page.
func (p paper) asksToSignIn() bool {
	return p.status == http.StatusSeeOther && strings.HasPrefix(p.header.Get("Location"), "/console/login") ||
		p.status == http.StatusUnauthorized &&
			strings.HasPrefix(p.leadsTo(), "http://"+signInHost+"/console/login?next=")
}

// number is one that a form of the login could have.
func (s *seat) number() string { return console.NumberOf(s.cookies[sessionCookie]) }

const sessionCookie = "picket_session_7070"

// paper is an answer.
type paper struct {
	status int
	header http.Header
	body   string
}

var (
	tags   = regexp.MustCompile(`(?s)<[^>]*>`)
	spaces = regexp.MustCompile(`\s+`)
)

// text is what a person reads.
func (p paper) text() string {
	return strings.TrimSpace(spaces.ReplaceAllString(html.UnescapeString(tags.ReplaceAllString(p.body, " ")), " "))
}

func (s *seat) get(path string, headers ...string) paper { return s.send("GET", path, nil, headers...) }

// post sends a form; fields come in pairs of name and value.
func (s *seat) post(path string, fields ...string) paper {
	form := url.Values{}
	for i := 0; i+1 < len(fields); i += 2 {
		form.Add(fields[i], fields[i+1])
	}
	return s.send("POST", path, form)
}

func (s *seat) send(method, path string, form url.Values, headers ...string) paper {
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
	s.face.ServeHTTP(w, r)
	for _, c := range w.Result().Cookies() {
		if s.cookies[c.Name] = c.Value; c.MaxAge < 0 {
			delete(s.cookies, c.Name)
		}
	}
	if w.Code >= 500 {
		s.t.Logf("%s %s: %s", method, path, s.log.String())
	}
	return paper{w.Code, w.Header(), w.Body.String()}
}

// want is get for a page that must be there.
func (s *seat) want(path string) paper {
	s.t.Helper()
	p := s.get(path)
	if p.status != http.StatusOK {
		s.t.Fatalf("GET %s: %d %s", path, p.status, p.text())
	}
	return p
}

var onceField = regexp.MustCompile(`name="once" value="([^"]+)"`)

// once is the number of the forms of a page.
func (p paper) once(t testing.TB) string {
	t.Helper()
	m := onceField.FindStringSubmatch(p.body)
	if m == nil {
		t.Fatalf("no form on this page: %s", p.text())
	}
	return m[1]
}

// submit opens a page and sends one of its forms, as a person does.
func (s *seat) submit(page, action string, fields ...string) paper {
	s.t.Helper()
	opened := s.want(page)
	if !strings.Contains(opened.body, `action="`+action+`"`) {
		s.t.Fatalf("%s has no form that goes to %s", page, action)
	}
	return s.post(action, append(fields, opened.hidden(action)...)...)
}

var hiddenField = regexp.MustCompile(`<input type="hidden" name="([^"]+)" value="([^"]*)">`)

// hidden are the fields of the first form that goes to action which nobody
// fills in.
func (p paper) hidden(action string) (fields []string) {
	_, form, _ := strings.Cut(p.body, `action="`+action+`"`)
	form, _, _ = strings.Cut(form, "</form>")
	for _, m := range hiddenField.FindAllStringSubmatch(form, -1) {
		fields = append(fields, m[1], html.UnescapeString(m[2]))
	}
	return fields
}

// follow checks that an answer sends the browser on, and follows it.
func (s *seat) follow(p paper) paper {
	s.t.Helper()
	if p.status != http.StatusSeeOther {
		s.t.Fatalf("it does not go on: %d %s", p.status, p.text())
	}
	return s.want(p.header.Get("Location"))
}

var nextPage = regexp.MustCompile(`<a href="([^"]+)" rel="next"`)

// nextOf is the address of the page after, empty on the last one.
func nextOf(p paper) string {
	if m := nextPage.FindStringSubmatch(p.body); m != nil {
		return html.UnescapeString(m[1])
	}
	return ""
}
