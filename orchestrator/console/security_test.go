package console_test

import (
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/orchestrator/console"
)

const aULID = "01JZZZZZZZZZZZZZZZZZZZZZZZ"

var parameter = regexp.MustCompile(`:[a-z]+`)

// withUnknownIDs puts ids that name nothing into a route.
func withUnknownIDs(route string) (method, path string) {
	method, path, _ = strings.Cut(route, " ")
	kind := "task"
	for prefix, k := range map[string]string{"/console/handoffs": "handoff", "/console/agents": "agent",
		"/console/sessions": "asession"} {
		if strings.HasPrefix(path, prefix) {
			kind = k
		}
	}
	path = strings.NewReplacer(":part", "question", ":prompt", "prompt_"+aULID).Replace(path)
	return method, parameter.ReplaceAllString(path, kind+"_"+aULID)
}

// probe uses a route without knowing its parameters.
func (s *browser) probe(route string, headers ...string) response {
	method, path := withUnknownIDs(route)
	var form url.Values
	if method == "POST" {
		form = url.Values{"once": {s.newNonce()}}
	}
	return s.send(method, path, form, headers...)
}

// Every page, with every kind of key and without one: who may not gets a page
// that reports it, everybody else gets in; nothing is decided by asking.
func TestWhoMayOpenWhat(t *testing.T) {
	virtual(t, func(t *testing.T, o *fixture) {
		people := map[string]*browser{
			"nobody":   o.newBrowser(),
			"reviewer": o.signedIn(picket.ScopeReviewer),
			"operator": o.signedIn(picket.ScopeOperator),
			"admin":    o.signedIn(picket.ScopeAdmin),
			"revoked":  o.signedIn(picket.ScopeOperator),
		}
		_, err := o.RevokeKey(t.Context(), picket.Caller{Actor: "test"}, people["revoked"].key.KeyID)
		must(t, err)
		cells := 0
		for _, r := range console.Permissions() {
			method, _ := withUnknownIDs(r.Route)
			if r.Route == "POST /console/logout" {
				continue // it would end the sessions of this test
			}
			for who, s := range people {
				p := s.probe(r.Route)
				cells++
				signedIn, open := who != "nobody" && who != "revoked", len(r.Scopes) == 0
				may := open || signedIn && (who == "admin" || slices.Contains(r.Scopes, picket.Scope(who)))
				refused := p.status == http.StatusForbidden && strings.Contains(p.text(), "may not do this")
				toLogin := p.asksToSignIn() || method == "POST" && p.status == http.StatusUnauthorized
				switch {
				case p.status >= 500:
					t.Errorf("%s as %s: %d", r.Route, who, p.status)
				case may && !open && (refused || toLogin):
					t.Errorf("%s as %s is refused: %d %s", r.Route, who, p.status, p.text())
				case !may && signedIn && !refused:
					t.Errorf("%s as %s is let in: %d", r.Route, who, p.status)
				case !may && !signedIn && !toLogin:
					t.Errorf("%s as %s is let in: %d", r.Route, who, p.status)
				case !may && !signedIn && method == "POST" && p.status != http.StatusUnauthorized:
					t.Errorf("%s as %s: what was posted is lost without a word: %d", r.Route, who, p.status)
				}
			}
		}
		t.Logf("who may open what: %d routes x %d people: %d cells", len(console.Permissions())-1, len(people), cells)
	})
}

// Every answer, refusals and files included, tells the browser what it may do
// with it.
func TestEveryAnswerHasItsHeaders(t *testing.T) {
	virtual(t, func(t *testing.T, o *fixture) {
		admin := o.signedIn(picket.ScopeAdmin)
		papers := map[string]response{
			"unknown page":   admin.get("/console/nowhere"),
			"posted nowhere": admin.post("/console/nowhere"),
			"unknown file":   admin.get("/console/assets/none.css"),
		}
		for _, r := range console.Permissions() {
			papers[r.Route+" as admin"], papers[r.Route+" as nobody"] = admin.probe(r.Route), o.newBrowser().
				probe(r.Route)
			papers[r.Route+" of a foreign host"] = admin.probe(r.Route, "Host", "evil.example")
			if r.Route == "POST /console/logout" {
				admin = o.signedIn(picket.ScopeAdmin)
			}
		}
		for what, p := range papers {
			h, referrer, forms := p.header, "no-referrer", "form-action 'self'"
			if strings.HasSuffix(what, " as nobody") || strings.HasSuffix(what, " of a foreign host") {
				referrer = "same-origin" // not at the host name of a login
			}
			if referrer == "same-origin" && strings.Contains(p.body, `action="/console/login"`) {
				forms = "form-action 'self' http://*.localhost:7070" // where the answer to a key leads
			}
			if h.Get("Content-Security-Policy") != "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self' data:; connect-src 'self'; font-src 'self'; "+forms+"; base-uri 'none'; frame-ancestors 'none'" ||
				h.Get("X-Content-Type-Options") != "nosniff" || h.Get("Referrer-Policy") != referrer ||
				h.Get("X-Frame-Options") != "DENY" || h.Get("Cache-Control") != "no-store" {
				t.Errorf("%s (%d): %v", what, p.status, h)
			}
		}
		files := regexp.MustCompile(`"(/console/assets/[^"]+)"`).
			FindAllStringSubmatch(admin.mustGet("/console/").body, -1)
		if len(files) < 3 {
			t.Fatalf("the page loads %v", files)
		}
		for _, f := range files {
			p := admin.get(f[1])
			if p.status != 200 || p.header.Get("Cache-Control") != "public, max-age=31536000, immutable" ||
				p.header.Get("X-Content-Type-Options") != "nosniff" || len(p.body) == 0 {
				t.Errorf("%s: %d %v", f[1], p.status, p.header)
			}
		}
	})
}

// A page has nothing inline that the content policy would have to allow.
func TestPagesNeedNothingInline(t *testing.T) {
	virtual(t, func(t *testing.T, o *fixture) {
		o.addHandoff("x", twoOptions)
		o.addFullReview("y")
		admin := o.signedIn(picket.ScopeAdmin)
		inline := regexp.MustCompile(`(?i)<style|\sstyle=|\son[a-z]+=|javascript:|<script(>|[^>]* [^>]*>[^<])`)
		for _, r := range console.Permissions() {
			if strings.HasPrefix(r.Route, "GET ") {
				if p := admin.probe(r.Route); inline.MatchString(p.body) {
					t.Errorf("%s: %s", r.Route, inline.FindString(p.body))
				}
			}
		}
	})
}

func TestOtherSitesCannotPost(t *testing.T) {
	virtual(t, func(t *testing.T, o *fixture) {
		admin := o.signedIn(picket.ScopeAdmin)
		_, handoff := o.addHandoff("x", twoOptions)
		page := "/console/handoffs/" + handoff
		once := admin.mustGet(page).nonce(t)
		for _, headers := range [][]string{{"Sec-Fetch-Site", "cross-site"}, {"Sec-Fetch-Site", "same-site"},
			{"Sec-Fetch-Site", "", "Origin", "http://evil.example"},
			{"Sec-Fetch-Site", "", "Origin", "null"}, {"Sec-Fetch-Site", "", "Origin", "http://localhost:7070"},
			{"Sec-Fetch-Site", "", "Origin", "http://" + strings.TrimSuffix(admin.host, "7070") + "7071"}} {
			p := admin.send("POST", page+"/answer", url.Values{"answer": {"yes"}, "once": {once}}, headers...)
			if p.status != http.StatusForbidden || !strings.Contains(p.text(), "another site") {
				t.Errorf("%v: %d %s", headers, p.status, p.text())
			}
		}
		for _, r := range console.Permissions() {
			if strings.HasPrefix(r.Route, "POST ") {
				if p := admin.probe(r.Route, "Sec-Fetch-Site", "cross-site"); p.status != http.StatusForbidden {
					t.Errorf("%s: %d", r.Route, p.status)
				}
			}
		}
		if h, err := o.Handoff(t.Context(), handoff); err != nil || h.State != picket.HandoffOpen {
			t.Errorf("the hand-off is %s", h.State)
		}
		if p := admin.send("POST", page+"/answer", url.Values{"answer": {"yes"}, "once": {once}}, "Sec-Fetch-Site", "",
			"Origin", "http://"+admin.host); p.status != http.StatusSeeOther {
			t.Errorf("our own page: %d %s", p.status, p.text())
		}
	})
}

func TestForeignHostsAreNotServed(t *testing.T) {
	virtual(t, func(t *testing.T, o *fixture) {
		admin := o.signedIn(picket.ScopeAdmin)
		other := strings.Repeat("a", 26) + ".localhost:7070"
		for host, served := range map[string]bool{
			admin.host:                    true,
			strings.ToUpper(admin.host):   true,
			other:                         true,
			"localhost:7070":              true,
			"127.0.0.1:7070":              true,
			"[::1]:7070":                  true,
			"picket.example:7070":         true,
			"PICKET.example:7070":         true,
			"evil.example:7070":           false,
			"localhost.evil.example:7070": false,
			"x.localhost:7070":            false,
			"a." + other:                  false,
			"1" + other:                   false,
			strings.Repeat("a", 26) + ".localhost.:7070":        false,
			strings.Repeat("a", 26) + ".localhost.evil.example": false,
		} {
			p := admin.get("/console/", "Host", host)
			if refused := p.status == http.StatusForbidden; refused == served ||
				!served && !strings.Contains(p.text(), "is not served here") {
				t.Errorf("%s: %d", host, p.status)
			}
			if file := admin.get("/", "Host", host); (file.status == http.StatusSeeOther) != served {
				t.Errorf("the root of %s: %d", host, file.status)
			}
			if p.status == http.StatusOK != strings.EqualFold(host, admin.host) {
				t.Errorf("at %s the page says %d", host, p.status)
			}
		}
	})
}

func TestFormsAreBounded(t *testing.T) {
	virtual(t, func(t *testing.T, o *fixture) {
		admin := o.signedIn(picket.ScopeAdmin)
		task, handoff := o.addHandoff("x", twoOptions)
		page := "/console/handoffs/" + handoff
		once := admin.mustGet(page).nonce(t)
		if p := admin.post(page+"/answer", "answer", strings.Repeat("x", 2<<20), "once",
			once); p.status != http.StatusRequestEntityTooLarge {
			t.Errorf("2 MiB: %d", p.status)
		}
		if p := admin.post(page+"/answer", "answer", strings.Repeat("x", picket.MaxPayload), "once",
			once); p.status != http.StatusRequestEntityTooLarge {
			t.Errorf("more than a payload: %d", p.status)
		}
		if p := admin.post(page+"/cancel", "reason", strings.Repeat("x", 5000), "once",
			once); p.status != http.StatusBadRequest {
			t.Errorf("a long reason: %d", p.status)
		}
		if got, err := o.Task(t.Context(), task); err != nil || got.State != picket.TaskHandoff {
			t.Errorf("the task is %s", got.State)
		}
	})
}
