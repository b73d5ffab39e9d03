package console_test

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/picket-dev/picket"
)

func TestAPersonSignsInAndOut(t *testing.T) {
	virtual(t, func(t *testing.T, o *fixture) {
		s := o.newBrowser()
		s.key = o.newKey(picket.ScopeReviewer)
		away := s.get("/console/handoffs?state=answered")
		if to := away.header.Get("Location"); away.status != http.StatusSeeOther ||
			to != "/console/login?next=%2Fconsole%2Fhandoffs%3Fstate%3Danswered" {
			t.Fatalf("without a session: %d to %s", away.status, to)
		}
		begun := s.sendKey("  "+s.key.Key.Reveal()+"\n", "/console/handoffs?state=answered")
		if begun.status != http.StatusSeeOther || len(s.cookies) != 0 || begun.header.Get("Set-Cookie") != "" {
			t.Fatalf("the key is taken: %d, cookies %v: %s", begun.status, s.cookies, begun.text())
		}
		in := s.followCode(begun)
		if in.status != http.StatusOK || in.refreshTarget() != "/console/handoffs?state=answered" {
			t.Fatalf("signed in: %d to %s: %s", in.status, in.refreshTarget(), in.text())
		}
		cookie := in.header.Get("Set-Cookie")
		for _, part := range []string{"picket_session_7070=default.", "Path=/", "HttpOnly", "SameSite=Strict",
			"Max-Age=43200"} {
			if !strings.Contains(cookie, part) {
				t.Errorf("the cookie has no %s: %s", part, strings.Split(cookie, "=")[0])
			}
		}
		if strings.Contains(cookie, "Secure") {
			t.Error("a cookie of plain HTTP would never come back")
		}
		if strings.Contains(strings.ToLower(cookie), "domain") {
			t.Error("the cookie is for more than its host")
		}
		if page := s.mustGet(in.refreshTarget()); !strings.Contains(page.text(), "[reviewer]") ||
			strings.Contains(page.body, s.key.Key.Reveal()) {
			t.Errorf("the person who is signed in: %s", page.text())
		}
		kept := s.cookies[sessionCookie]
		if out := s.post("/console/logout"); out.status != http.StatusSeeOther || len(s.cookies) != 0 {
			t.Errorf("signed out: %d, cookies %d", out.status, len(s.cookies))
		}
		s.cookies[sessionCookie] = kept
		if again := s.get("/console/"); !again.asksToSignIn() {
			t.Errorf("a session that was closed goes on: %d", again.status)
		}
	})
}

// Where the browser came by https the cookie never leaves it otherwise, also when
// a proxy in front speaks TLS for us. It is for one host, whatever other hosts of
// the domain try to set.
func TestTheCookieOfATLSProxyIsSecure(t *testing.T) {
	virtual(t, func(t *testing.T, o *fixture) {
		key := o.newKey(picket.ScopeReviewer).Key.Reveal()
		s := o.newBrowser()
		s.host = "picket.example"
		p := s.send("POST", "/console/login", url.Values{"key": {key}}, "Origin", "https://picket.example")
		cookie := p.header.Get("Set-Cookie")
		if p.status != http.StatusSeeOther || p.header.Get("Location") != "/console/" ||
			!strings.HasPrefix(cookie, "__Host-picket_session_=") {
			t.Fatalf("%d, %s", p.status, strings.Split(cookie, "=")[0])
		}
		for _, part := range []string{"; Secure", "Path=/;", "HttpOnly", "SameSite=Strict"} {
			if !strings.Contains(cookie+";", part) {
				t.Errorf("the cookie has no %s", part)
			}
		}
		s.mustGet("/console/")
		s.cookies["picket_session_"] = s.cookies["__Host-picket_session_"]
		delete(s.cookies, "__Host-picket_session_")
		if p := s.get("/console/"); !p.asksToSignIn() {
			t.Errorf("a cookie that any host of the domain can set is taken: %d", p.status)
		}
	})
}

// What ends a session, or its key, counts from the next request on.
func TestSessionsEnd(t *testing.T) {
	ends := map[string]func(o *fixture, s *browser){
		"by being idle": func(o *fixture, _ *browser) { o.advanceStoreTime(picket.LoginIdleTimeout + time.Minute) },
		"by their age": func(o *fixture, s *browser) {
			for range 6 {
				o.advanceStoreTime(picket.LoginIdleTimeout - time.Second)
				s.mustGet("/console/")
			}
			o.advanceStoreTime(time.Minute)
		},
		"with their key": func(o *fixture, s *browser) {
			_, err := o.RevokeKey(o.t.Context(), picket.Caller{Actor: "test"}, s.key.KeyID)
			must(o.t, err)
		},
		"by a forged cookie": func(_ *fixture, s *browser) {
			s.cookies[sessionCookie] = "default." + strings.Repeat("A", 43)
		},
		"elsewhere": func(_ *fixture, s *browser) {
			s.cookies[sessionCookie] = "nowhere" + s.cookies[sessionCookie][7:]
		},
		"in another namespace": func(_ *fixture, s *browser) {
			s.cookies[sessionCookie] = "other" + s.cookies[sessionCookie][7:]
		},
	}
	for how, end := range ends {
		t.Run(how, func(t *testing.T) {
			virtual(t, func(t *testing.T, o *fixture) {
				o.newKey(picket.ScopeAdmin)
				s := o.signedIn(picket.ScopeReviewer)
				_, handoff := o.addHandoff("x", picket.HelpRequest{Question: "Which?"})
				form := s.mustGet("/console/handoffs/" + handoff).nonce(t)
				end(o, s)
				if p := s.get("/console/handoffs"); !p.asksToSignIn() {
					t.Errorf("the session goes on: %d", p.status)
				}
				p := s.post("/console/handoffs/"+handoff+"/answer", "answer", "a", "once", form)
				if p.status != http.StatusUnauthorized || !strings.Contains(p.text(), "nothing was changed") ||
					!strings.Contains(p.body, `href="http://localhost:7070/console/login?next=`) {
					t.Errorf("a decision without a session: %d %s", p.status, p.text())
				}
				if h, err := o.Handoff(t.Context(), handoff); err != nil || h.State != picket.HandoffOpen {
					t.Errorf("the hand-off: %v %v", h.State, err)
				}
			})
		})
	}
}

// Every wrong key gets the same answer, after the same time.
func TestWrongKeysAreAllAlike(t *testing.T) {
	virtual(t, func(t *testing.T, o *fixture) {
		revoked, expired := o.newKey(picket.ScopeReviewer), picket.Secret("")
		o.newKey(picket.ScopeAdmin)
		_, err := o.RevokeKey(t.Context(), picket.Caller{Actor: "test"}, revoked.KeyID)
		must(t, err)
		late, err := o.CreateKey(t.Context(), picket.Caller{Actor: "test"},
			picket.KeyRequest{
				Name:      "late",
				Scopes:    []picket.Scope{picket.ScopeReviewer},
				ExpiresAt: picket.InstantOf(time.Now().Add(time.Second)),
			})
		must(t, err)
		expired = late.Key
		o.passTime(time.Minute)
		answers := map[string]string{}
		for i, key := range []string{"", "hunter2", revoked.Key.Reveal(), expired.Reveal(),
			"pkk_default_" + strings.Repeat("A", 43), "pkk_nowhere_" + strings.Repeat("A", 43),
			o.sealer.LeaseToken("default", "task_01JZZZZZZZZZZZZZZZZZZZZZZZ", "run_01JZZZZZZZZZZZZZZZZZZZZZZZ").
				Reveal(),
			strings.Repeat("x", 5000)} {
			s := o.newBrowser()
			s.from = fmt.Sprintf("10.0.0.%d:5000", i)
			began := time.Now()
			p := s.signIn(key)
			if took := time.Since(began); p.status != http.StatusUnauthorized || took != 300*time.Millisecond ||
				len(s.cookies) != 0 {
				t.Errorf("key %d: %d after %s", i, p.status, took)
			}
			if key != "" && strings.Contains(p.body, key) {
				t.Errorf("key %d is in the page", i)
			}
			answers[p.text()] = key
		}
		if len(answers) != 1 {
			t.Errorf("wrong keys can be told apart: %v", answers)
		}
	})
}

func TestTheKeyOfAProgramOpensNoPage(t *testing.T) {
	virtual(t, func(t *testing.T, o *fixture) {
		client, err := o.CreateKey(t.Context(), picket.Caller{Actor: "test"}, picket.KeyRequest{Name: "partner",
			Scopes: []picket.Scope{picket.ScopeClient}, Client: &picket.ClientLimits{Roles: []string{picket.AnyRole}}})
		must(t, err)
		for _, key := range []picket.NewKey{client, o.newKey(picket.ScopeAgent)} {
			s := o.newBrowser()
			p := s.signIn(key.Key.Reveal())
			if p.status != http.StatusForbidden || !strings.Contains(p.text(), "for a program") ||
				!strings.Contains(p.text(), "picket key create") || len(s.cookies) != 0 {
				t.Errorf("%d %s", p.status, p.text())
			}
		}
		if both := o.newBrowser().signIn(o.newKey(picket.ScopeAgent,
			picket.ScopeReviewer).Key.Reveal()); both.status != http.StatusSeeOther {
			t.Errorf("a key for both: %d", both.status)
		}
	})
}

// Ten wrong keys a minute from one address; others, and the next minute, are
// not touched, and right keys are not counted.
func TestWrongKeysAreCountedByAddress(t *testing.T) {
	virtual(t, func(t *testing.T, o *fixture) {
		good := o.newKey(picket.ScopeReviewer).Key.Reveal()
		s := o.newBrowser()
		s.from = "192.0.2.7:4000"
		for range 15 {
			s.signIn(good)
		}
		for i := range 10 {
			s.from = fmt.Sprintf("192.0.2.7:%d", 4000+i)
			if p := s.signIn("wrong"); p.status != http.StatusUnauthorized {
				t.Fatalf("attempt %d: %d", i+1, p.status)
			}
		}
		p := s.signIn("wrong")
		if p.status != http.StatusTooManyRequests || p.header.Get("Retry-After") == "" ||
			!strings.Contains(p.text(), "Wait a minute") {
			t.Errorf("attempt 11: %d, Retry-After %q", p.status, p.header.Get("Retry-After"))
		}
		for from, want := range map[string]int{"192.0.2.8:4000": 401, "[2001:db8::1]:4000": 401, "192.0.2.7:9": 429} {
			other := o.newBrowser()
			other.from = from
			if p := other.signIn("wrong"); p.status != want {
				t.Errorf("from %s: %d, want %d", from, p.status, want)
			}
		}
		// Anyone who tries keys all day keeps nobody out who has one.
		if p := s.signIn(good); p.status != http.StatusSeeOther {
			t.Errorf("a right key after wrong ones: %d", p.status)
		}
		o.passTime(time.Minute)
		if p := s.signIn("wrong"); p.status != http.StatusUnauthorized {
			t.Errorf("a minute later: %d", p.status)
		}
	})
}

// A key opens twenty sessions a minute and no more, from wherever and by however
// many at once: each is written into the log. Anyone who is signed in goes on.
func TestLoginsAreCountedByKey(t *testing.T) {
	virtual(t, func(t *testing.T, o *fixture) {
		mine, other := o.newKey(picket.ScopeReviewer).Key.Reveal(), o.newKey(picket.ScopeReviewer).Key.Reveal()
		first := o.newBrowser()
		if p := first.signIn(mine); p.status != http.StatusSeeOther {
			t.Fatalf("signed in: %d", p.status)
		}
		var group sync.WaitGroup
		var in, refused atomic.Int64
		for n := range 30 {
			group.Go(func() {
				s := o.newBrowser()
				s.from = fmt.Sprintf("192.0.2.%d:4000", n)
				p := s.signIn(mine)
				switch {
				case p.status == http.StatusSeeOther:
					in.Add(1)
				case p.status == http.StatusTooManyRequests && p.header.Get("Retry-After") != "" &&
					strings.Contains(p.text(), "Wait a minute") && len(s.cookies) == 0:
					refused.Add(1)
				default:
					t.Errorf("signed in: %d %s", p.status, p.text())
				}
			})
		}
		group.Wait()
		if in.Load() != 19 || refused.Load() != 11 {
			t.Errorf("%d signed in and %d were refused, want 19 and 11", in.Load(), refused.Load())
		}
		page, err := o.Events(t.Context(), picket.EventQuery{Types: []string{picket.EventLoginOpened}, Limit: 100})
		must(t, err)
		if len(page.Events) != 20 {
			t.Errorf("%d sessions are in the log", len(page.Events))
		}
		first.mustGet("/console/")
		if p := o.newBrowser().signIn(other); p.status != http.StatusSeeOther {
			t.Errorf("another key: %d", p.status)
		}
		o.passTime(time.Minute)
		if p := o.newBrowser().signIn(mine); p.status != http.StatusSeeOther {
			t.Errorf("a minute later: %d", p.status)
		}
	})
}

func TestWhereAPersonGoesOnIsOurs(t *testing.T) {
	virtual(t, func(t *testing.T, o *fixture) {
		key := o.newKey(picket.ScopeReviewer).Key.Reveal()
		for _, next := range []string{"", "https://evil.example/console/", "//evil.example", "/console//evil.example",
			"/console/../x", "/console/%2e%2E/x", "/console/a%2f%2fb", "/console/%zz", "/\\evil.example",
			"/console/\r\nSet-Cookie:a=b", "/api/v1/tasks", "javascript:alert(1)"} {
			s := o.newBrowser()
			p := s.followCode(s.sendKey(key, next))
			if to := p.refreshTarget(); p.status != http.StatusOK || to != "/console/" {
				t.Errorf("next %q goes to %q (%d)", next, to, p.status)
			}
			if to := o.newBrowser().post("/console/theme", "theme", "dark", "back",
				next).header.Get("Location"); to != "/console/" {
				t.Errorf("back %q goes to %q", next, to)
			}
		}
		// What is asked for leads nowhere: it may hold an address, or dots.
		for _, next := range []string{"/console/tasks?label=repo%3Dhttps://git.example/a",
			"/console/reviews?cursor=a..b//c", "/console/handoffs#..//x"} {
			s := o.newBrowser()
			p := s.followCode(s.sendKey(o.newKey(picket.ScopeReviewer).Key.Reveal(), next))
			if to := p.refreshTarget(); p.status != http.StatusOK || to != next {
				t.Errorf("next %q goes to %q (%d)", next, to, p.status)
			}
		}
	})
}

// A strict cookie is not sent when a link of another site is followed, as from a
// chat: the page asks for itself then, and gets it.
func TestALinkFromElsewhereNeedsNoSecondLogin(t *testing.T) {
	virtual(t, func(t *testing.T, o *fixture) {
		s := o.signedIn(picket.ScopeReviewer)
		stranger := o.newBrowser()
		stranger.host = s.host
		p := stranger.get("/console/reviews", "Sec-Fetch-Site", "cross-site")
		if p.status != http.StatusOK || p.refreshTarget() != "/console/reviews" {
			t.Errorf("%d %s", p.status, p.body)
		}
		s.mustGet("/console/reviews")
		const claim = "/console/reviews?did=approved&role=coder"
		if p := s.get(claim, "Sec-Fetch-Site", "same-origin"); !strings.Contains(p.body, "The task is completed.") {
			t.Error("a decision is not confirmed")
		}
		for _, site := range []string{"cross-site", "same-site", "none"} {
			if p := s.get(claim, "Sec-Fetch-Site", site); strings.Contains(p.body, "The task is completed.") {
				t.Errorf("a link claims a decision (%s)", site)
			}
		}
		if p := stranger.get(claim, "Sec-Fetch-Site",
			"cross-site"); p.refreshTarget() != "/console/reviews?role=coder" {
			t.Errorf("the way back: %s", p.body)
		}
	})
}

func TestTheRootIsForBrowsers(t *testing.T) {
	virtual(t, func(t *testing.T, o *fixture) {
		s := o.newBrowser()
		if p := s.get("/"); p.status != http.StatusSeeOther || p.header.Get("Location") != "/console/" {
			t.Errorf("a browser: %d %s", p.status, p.header.Get("Location"))
		}
		if p := s.get("/", "Accept", "application/json"); p.status != http.StatusNotFound ||
			!strings.Contains(p.header.Get("Content-Type"), "problem+json") {
			t.Errorf("a program: %d %s", p.status, p.header.Get("Content-Type"))
		}
	})
}

func TestColoursAreChosenWithoutScript(t *testing.T) {
	virtual(t, func(t *testing.T, o *fixture) {
		s := o.signedIn(picket.ScopeReviewer)
		if p := s.mustGet("/console/"); strings.Contains(p.body, "data-theme") {
			t.Error("colours are chosen before anybody has chosen")
		}
		for _, theme := range []string{"dark", "light"} {
			if p := s.follow(s.post("/console/theme", "theme", theme, "back",
				"/console/handoffs")); !strings.Contains(p.body, `data-theme="`+theme+`"`) {
				t.Errorf("%s is not in force", theme)
			}
		}
		if p := s.follow(s.post("/console/theme", "theme", "system", "back", "/console/")); strings.Contains(p.body,
			"data-theme") {
			t.Error("the system does not decide again")
		}
	})
}
