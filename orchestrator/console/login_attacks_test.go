package console_test

import (
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/internal/web"
	"github.com/picket-dev/picket/orchestrator/console"
)

// remount replaces the console by one with other settings, on the same store.
func (o *fixture) remount(change func(*console.Config)) {
	o.t.Helper()
	cfg := console.Config{
		Backend: func(namespace string) *console.Backend {
			if namespace != "default" {
				return nil
			}
			return backendOf(testBackend{o.Engine, o})
		},
		Stream: func(ec echo.Context, _ picket.Principal, admit func() error) error { return admit() },
	}
	change(&cfg)
	c, err := console.New(cfg)
	must(o.t, err)
	e := web.New(nil)
	c.Mount(e)
	o.handler = e
}

// A code signs one browser in. If it is used a second time, the login of the first ends, also when
// both come at once. Later, or on another host name, it has no effect.
func TestACodeIsTakenOnce(t *testing.T) {
	virtual(t, func(t *testing.T, o *fixture) {
		key := o.newKey(picket.ScopeReviewer).Key.Reveal()
		person, thief := o.newBrowser(), o.newBrowser()
		begun := person.sendKey(key, "/console/tasks")
		if p := person.followCode(begun); p.status != http.StatusOK || p.refreshTarget() != "/console/tasks" {
			t.Fatalf("the person: %d %s", p.status, p.text())
		}
		person.mustGet("/console/tasks")
		// The person's own browser may load the page again.
		to, err := url.Parse(begun.header.Get("Location"))
		must(t, err)
		if p := person.get(to.RequestURI()); p.status != http.StatusSeeOther ||
			p.header.Get("Location") != "/console/tasks" {
			t.Errorf("loaded again: %d", p.status)
		}
		person.mustGet("/console/tasks")
		if p := thief.followCode(begun); p.status != http.StatusUnauthorized || len(thief.cookies) != 0 {
			t.Errorf("the thief: %d, cookies %v", p.status, thief.cookies)
		}
		if p := person.get("/console/tasks"); !p.asksToSignIn() {
			t.Errorf("a session whose code two have goes on: %d", p.status)
		}

		begun = person.sendKey(key, "/console/")
		var group sync.WaitGroup
		browsers := make([]*browser, 8)
		for i := range browsers {
			browsers[i] = o.newBrowser()
			group.Go(func() { browsers[i].followCode(begun) })
		}
		group.Wait()
		in := slices.DeleteFunc(slices.Clone(browsers), func(s *browser) bool { return len(s.cookies) == 0 })
		if len(in) != 1 || !in[0].get("/console/").asksToSignIn() {
			t.Errorf("%d of 8 were let in at once, or one of them stays", len(in))
		}

		begun = person.sendKey(key, "/console/")
		elsewhere := o.newBrowser()
		at, err := url.Parse(begun.header.Get("Location"))
		must(t, err)
		for _, host := range []string{strings.Repeat("b", 26) + ".localhost:7070", signInHost, "127.0.0.1:7070",
			"picket.example"} {
			elsewhere.host = host
			if p := elsewhere.get(at.RequestURI()); len(elsewhere.cookies) != 0 || p.status == http.StatusOK {
				t.Errorf("on %s the code is taken: %d", host, p.status)
			}
		}
		o.advanceStoreTime(time.Minute)
		if p := person.followCode(begun); p.status != http.StatusUnauthorized || len(person.cookies) != 0 {
			t.Errorf("a minute later: %d", p.status)
		}
	})
}

// A session is worth nothing under another host name than its own.
func TestACookieCountsOnItsOwnHostOnly(t *testing.T) {
	virtual(t, func(t *testing.T, o *fixture) {
		person, other := o.signedIn(picket.ScopeAdmin), o.signedIn(picket.ScopeAdmin)
		stolen := person.cookies[sessionCookie]
		for _, host := range []string{signInHost, "127.0.0.1:7070", "[::1]:7070", "127.0.0.2:7070", other.host,
			strings.Repeat("c", 26) + ".localhost:7070", "picket.example:7070", "10.0.0.7:7070"} {
			for _, name := range []string{sessionCookie, "__Host-" + sessionCookie} {
				thief := o.newBrowser()
				thief.host, thief.cookies = host, map[string]string{name: stolen}
				if p := thief.get("/console/"); p.status == http.StatusOK || strings.Contains(p.text(), "[admin]") {
					t.Errorf("%s at %s opens the console", name, host)
				}
				if p := thief.post("/console/pause", "hard", "yes", "reason", "mine", "seen", "0", "once",
					console.NonceOf(stolen)); p.status != http.StatusUnauthorized {
					t.Errorf("%s at %s decides: %d", name, host, p.status)
				}
				thief.post("/console/logout")
			}
		}
		if s, err := o.Stats(t.Context()); err != nil || s.Pause.Paused {
			t.Errorf("everybody is stopped: %v", err)
		}
		person.mustGet("/console/") // and nobody has ended it
	})
}

// What a page has put into the browser before the sign-in counts for nothing.
func TestAPlantedCookieIsNotTaken(t *testing.T) {
	virtual(t, func(t *testing.T, o *fixture) {
		agent, person := o.signedIn(picket.ScopeReviewer), o.newBrowser()
		planted := agent.cookies[sessionCookie]
		begun := person.sendKey(o.newKey(picket.ScopeAdmin).Key.Reveal(), "/console/")
		to, err := url.Parse(begun.header.Get("Location"))
		must(t, err)
		person.host, person.cookies = to.Host,
			map[string]string{sessionCookie: planted, "__Host-" + sessionCookie: planted}
		if p := person.get(to.RequestURI()); p.status != http.StatusOK {
			t.Fatalf("signed in: %d", p.status)
		}
		if person.cookies[sessionCookie] == planted ||
			!strings.Contains(person.mustGet("/console/").text(), "[admin]") {
			t.Error("the person goes on in the session of somebody else")
		}
		agent.mustGet("/console/")
	})
}

// A page or a program on another port can add cookies of the session's name. They
// neither keep a person out nor speak for the person.
func TestPlantedCookiesKeepNobodyOut(t *testing.T) {
	virtual(t, func(t *testing.T, o *fixture) {
		person, elsewhere, agent := o.signedIn(picket.ScopeAdmin), o.signedIn(picket.ScopeAdmin), o.newBrowser()
		agent.host = person.host
		mine := sessionCookie + "=" + person.cookies[sessionCookie]
		unknown := sessionCookie + "=default." + strings.Repeat("A", 43)
		plants := map[string][]string{
			"garbage":                   {sessionCookie + "=x", sessionCookie + "=", sessionCookie + `="quoted"`},
			"an unknown session":        {unknown},
			"another namespace":         {sessionCookie + "=other." + strings.Repeat("A", 43)},
			"a session of another name": {sessionCookie + "=" + elsewhere.cookies[sessionCookie]},
			"a long one":                {sessionCookie + "=default." + strings.Repeat("A", 1000)},
			"many for longer paths":     slices.Repeat([]string{unknown}, 150),
		}
		for name, planted := range plants {
			cookies := strings.Join(append(planted, mine), "; ")
			if p := person.get("/console/", "Cookie", cookies); p.status != http.StatusOK ||
				!strings.Contains(p.text(), "[admin]") {
				t.Errorf("%s before the cookie: %d", name, p.status)
			}
			if p := agent.get("/console/", "Cookie", strings.Join(planted, "; ")); !p.asksToSignIn() {
				t.Errorf("%s alone: %d", name, p.status)
			}
		}
		after := strings.Join([]string{mine, unknown, unknown, unknown}, "; ")
		if p := person.get("/console/", "Cookie", after); p.status != http.StatusOK {
			t.Errorf("three unknown sessions after the cookie: %d", p.status)
		}
		form := url.Values{"reason": {"a test"}, "seen": {"0"}, "once": {person.newNonce()}}
		if p := person.send("POST", "/console/pause", form, "Cookie", unknown+"; "+mine, "Content-Type",
			"application/x-www-form-urlencoded", "Sec-Fetch-Site", "same-origin"); p.status != http.StatusSeeOther {
			t.Errorf("a decision beside a planted cookie: %d %s", p.status, p.text())
		}
		if s, err := o.Stats(t.Context()); err != nil || !s.Pause.Paused {
			t.Errorf("the decision was not made: %v", err)
		}
		if p := person.send("POST", "/console/logout", url.Values{}, "Cookie",
			unknown+"; "+mine); p.status != http.StatusSeeOther {
			t.Errorf("sign out: %d", p.status)
		}
		if p := agent.get("/console/", "Cookie", mine); !p.asksToSignIn() {
			t.Errorf("signing out beside a planted cookie ended nothing: %d", p.status)
		}
	})
}

// A proxy, or who pretends to be one, cannot say which host this is.
func TestForwardedHostsCountForNothing(t *testing.T) {
	virtual(t, func(t *testing.T, o *fixture) {
		person := o.signedIn(picket.ScopeAdmin)
		claims := []string{"X-Forwarded-Host", person.host, "X-Forwarded-Proto", "https", "X-Original-Host",
			person.host, "X-Host", person.host, "Forwarded", "host=" + person.host + ";proto=https"}
		thief := o.newBrowser()
		thief.cookies = map[string]string{sessionCookie: person.cookies[sessionCookie]}
		if p := thief.get("/console/", claims...); !p.asksToSignIn() {
			t.Errorf("a claimed host is believed: %d", p.status)
		}
		claims[1], claims[5], claims[7], claims[9] = "evil.example", "evil.example", "evil.example", "host=evil.example"
		key := o.newKey(picket.ScopeReviewer).Key.Reveal()
		p := o.newBrowser().send("POST", "/console/login", url.Values{"key": {key}}, claims...)
		if to := p.header.Get("Location"); p.status != http.StatusSeeOther ||
			!regexp.MustCompile(`^http://[a-z2-7]{26}\.localhost:7070/console/enter\?`).MatchString(to) {
			t.Errorf("the code goes to %.40s (%d)", to, p.status)
		}
		for _, host := range []string{"localhost:7070;script-src *", "localhost:evil.example",
			"localhost:7070@evil.example", "localhost:7070/evil"} {
			if p := o.newBrowser().send("POST", "/console/login", url.Values{"key": {key}}, "Host",
				host); p.status == http.StatusSeeOther ||
				strings.Contains(p.header.Get("Content-Security-Policy"), "evil") {
				t.Errorf("host %q: %d %s", host, p.status, p.header.Get("Location"))
			}
		}
	})
}

// Whether a login has a name can only be told with its cookie.
func TestNamesOfLoginsCannotBeGuessed(t *testing.T) {
	virtual(t, func(t *testing.T, o *fixture) {
		person := o.signedIn(picket.ScopeAdmin)
		_, handoff := o.addHandoff("x", twoOptions)
		ids := regexp.MustCompile(`req_[A-Z2-7]+`)
		wrong := strings.Repeat("d", 26) + ".localhost:7070"
		asked := []string{"POST /console/login", "GET /console/nowhere", "GET /"}
		for _, r := range console.Permissions() {
			asked = append(asked, r.Route)
		}
		for _, route := range asked {
			for _, headers := range [][]string{nil, {"Sec-Fetch-Site", "cross-site"},
				{"Sec-Fetch-Site", "same-site", "Sec-Fetch-Mode", "no-cors"}, {"Picket-Part", "main"}} {
				var answers []response
				for _, host := range []string{person.host, wrong} {
					guesser := o.newBrowser()
					guesser.host, guesser.cookies[sessionCookie] = host, "default."+strings.Repeat("A", 43)
					p := guesser.probe(route, headers...)
					p.header.Del("X-Request-Id")
					p.body = ids.ReplaceAllString(strings.ReplaceAll(p.body, host, "HOST"), "req")
					answers = append(answers, p)
				}
				a, b := answers[0], answers[1]
				if a.status != b.status || a.body != b.body || len(a.header) != len(b.header) ||
					a.header.Get("Location") != b.header.Get("Location") {
					t.Errorf("%s %v tells a right name from a wrong one: %d %d", route, headers, a.status, b.status)
				}
			}
		}
		person.mustGet("/console/handoffs/" + handoff)
		label, _, _ := strings.Cut(person.host, ".")
		page, err := o.Events(t.Context(), picket.EventQuery{Limit: 1000})
		must(t, err)
		for _, e := range page.Events {
			if strings.Contains(string(e.Data), label) {
				t.Errorf("%s names the host of a login", e.Type)
			}
		}
		if strings.Contains(o.log.String(), label) {
			t.Error("the log names the host of a login")
		}
	})
}

// A decision needs a number that the page made for this login: every route that
// decides refuses what has none, and what has that of somebody else.
func TestEveryDecisionNeedsANumberOfTheLogin(t *testing.T) {
	virtual(t, func(t *testing.T, o *fixture) {
		person, other := o.signedIn(picket.ScopeAdmin), o.signedIn(picket.ScopeAdmin)
		good := person.newNonce()
		random, seal, _ := strings.Cut(good, ".")
		numbers := map[string]string{
			"none":                            "",
			"invented":                        strings.Repeat("n", 26),
			"of another login":                other.newNonce(),
			"without its seal":                random,
			"with half a seal":                random + "." + seal[:11],
			"with another seal":               random + "." + strings.Repeat("A", len(seal)),
			"with the seal of another number": strings.Repeat("B", len(random)) + "." + seal,
		}
		task, handoff := o.addHandoff("x", twoOptions)
		review := o.addReview(picket.TaskSpec{Title: "y"}, picket.Completion{Output: picket.RawJSON(`1`)})
		o.registerAgent("agent-1", "coder", 1)
		session := o.addSession("keeper", "ann").id
		decisions := 0
		for _, r := range console.Permissions() {
			if !strings.HasPrefix(r.Route, "POST ") || len(r.Scopes) == 0 || strings.HasSuffix(r.Route, "/fix") ||
				strings.HasSuffix(r.Route, "/check") {
				continue // it signs in or out, chooses colours, or shows a form
			}
			decisions++
			_, path := withUnknownIDs(r.Route)
			path = strings.NewReplacer("handoff_"+aULID, handoff, "task_"+aULID, review, "agent_"+aULID, "agent-1",
				"asession_"+aULID, session).Replace(path)
			fields := []string{"answer", "yes", "reason", "r", "output", "done", "usd", "0.10", "title", "t", "count",
				"1", "task", review, "choice", "0", "seen", "0", "note", "n", "incarnation", "1", "text", "t"}
			for what, number := range numbers {
				if p := person.post(path, append(fields, "once", number)...); p.status != http.StatusForbidden ||
					!strings.Contains(p.text(), "the form does not belong to this login") {
					t.Errorf("%s with a number %s: %d %s", r.Route, what, p.status, p.text())
				}
			}
		}
		for id, want := range map[string]picket.TaskState{task: picket.TaskHandoff, review: picket.TaskReview} {
			if got, err := o.Task(t.Context(), id); err != nil || got.State != want {
				t.Errorf("the task is %s, want %s (%v)", got.State, want, err)
			}
		}
		if s, err := o.Stats(t.Context()); err != nil || s.Pause.Paused || s.Tasks[picket.TaskQueued] != 0 {
			t.Errorf("something was decided: %+v %v", s, err)
		}
		page := "/console/handoffs/" + handoff
		p := person.post(page+"/answer", "answer", "what I typed", "once", other.newNonce())
		if !strings.Contains(p.body, "what I typed") || p.nonce(t) == other.newNonce() {
			t.Error("what was typed is lost, or the page keeps the wrong number")
		}
		person.follow(person.post(page+"/answer", "answer", "what I typed", "once", p.nonce(t))).
			wantText(t, "Answered.")
		t.Logf("%d routes decide, %d wrong numbers each", decisions, len(numbers))
	})
}

// Nobody can sign in where every port of the host, or the network, would get the cookie, unless the
// settings allow it.
func TestWhereNobodySignsIn(t *testing.T) {
	signIn := func(o *fixture, host string, headers ...string) (p response, cookie string) {
		s := o.newBrowser()
		s.host = host
		p = s.send("POST", "/console/login", url.Values{"key": {o.newKey(picket.ScopeReviewer).Key.Reveal()}},
			headers...)
		return p, p.header.Get("Set-Cookie")
	}
	virtual(t, func(t *testing.T, o *fixture) {
		o.remount(func(c *console.Config) {
			c.AllowedHosts, c.PublicURL = []string{"lan.example"}, "https://public.example"
		})
		for host, origin := range map[string]string{
			"lan.example":    "http://lan.example",
			"10.0.0.7:7070":  "",
			"localhost:8443": "https://localhost:8443",
			"127.0.0.1:8443": "https://127.0.0.1:8443",
			"localhost:7070": "https://public.example",
			strings.Repeat("e", 26) + ".localhost:7070": "",
		} {
			if p, cookie := signIn(o, host, "Origin", origin); p.status != http.StatusForbidden || cookie != "" {
				t.Errorf("at %s (from %s): %d %s", host, origin, p.status, p.text())
			}
		}
		if p, _ := signIn(o, "evil.example"); p.status != http.StatusForbidden ||
			!strings.Contains(p.text(), "not served here") {
			t.Errorf("at a foreign name: %d", p.status)
		}
		for host, origin := range map[string]string{
			"public.example": "",
			"lan.example":    "https://lan.example",
			"10.0.0.7":       "https://10.0.0.7",
		} {
			if p, cookie := signIn(o, host, "Origin", origin); p.status != http.StatusSeeOther ||
				!strings.HasPrefix(cookie, "__Host-picket_session_=") || !strings.Contains(cookie, "Secure") {
				t.Errorf("at %s (from %s): %d %s", host, origin, p.status, p.text())
			}
		}
		// On a sign-in page nothing is ever stored in the browser.
		for _, host := range []string{"localhost:7070", "127.0.0.1:7070", "[::1]:7070"} {
			for _, r := range console.Permissions() {
				s := o.newBrowser()
				s.host = host
				if p := s.probe(r.Route); p.header.Get("Set-Cookie") != "" {
					t.Errorf("%s at %s sets a cookie", r.Route, host)
				}
			}
		}
	})
	virtual(t, func(t *testing.T, o *fixture) {
		o.remount(func(c *console.Config) { c.OneHost, c.PublicURL = true, "http://lan.example" })
		for _, host := range []string{"localhost:7070", "127.0.0.1:7070", "lan.example:7070", "10.0.0.7:7070"} {
			if p, cookie := signIn(o, host); p.status != http.StatusSeeOther ||
				p.header.Get("Location") != "/console/" || !strings.HasPrefix(cookie, "picket_session_7070=") {
				t.Errorf("with one host, at %s: %d %s", host, p.status, p.text())
			}
		}
		if p, cookie := signIn(o, strings.Repeat("e", 26)+".localhost:7070"); p.status != http.StatusForbidden ||
			cookie != "" {
			t.Errorf("a name that no login has: %d", p.status)
		}
	})
}
