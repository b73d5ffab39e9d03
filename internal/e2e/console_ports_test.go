//go:build linux

package e2e

import (
	"context"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/picket-dev/picket"
)

// trapServer is an agent's web server on this machine. It keeps every request, and
// serves a page that tries to decide in the name of anyone who opens it.
type trapServer struct {
	port string
	mu   sync.Mutex
	seen []*http.Request
	page string
}

// startTrapServer starts the server on a free port of 127.0.0.1 and of ::1.
func startTrapServer(t *testing.T) *trapServer {
	t.Helper()
	n := &trapServer{}
	four, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_, n.port, _ = net.SplitHostPort(four.Addr().String())
	for _, l := range []net.Listener{four, listenIfFree("[::1]:" + n.port)} {
		if l == nil {
			continue
		}
		srv := &http.Server{Handler: n}
		go func() { _ = srv.Serve(l) }()
		t.Cleanup(func() { _ = srv.Close() })
	}
	return n
}

func listenIfFree(addr string) net.Listener {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return nil
	}
	return l
}

func (n *trapServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.seen = append(n.seen, r.Clone(context.Background()))
	w.Header().Set("Content-Type", "text/html")
	_, _ = io.WriteString(w, n.page)
}

// take returns the requests since the last time.
func (n *trapServer) take() []*http.Request {
	n.mu.Lock()
	defer n.mu.Unlock()
	seen := n.seen
	n.seen = nil
	return seen
}

// trap is a page that sends each form to each server in every way that a page
// can: by fetch, in a frame, as an image, and by a form into a frame.
func trap(servers []string, forms map[string]url.Values) string {
	var b strings.Builder
	b.WriteString("<!doctype html><title>harmless</title><body><script>window.sent = 0; const all = [];\n")
	for _, server := range servers {
		for path, form := range forms {
			to := server + path
			fmt.Fprintf(&b,
				"all.push(fetch(%q, {method: 'POST', credentials: 'include', mode: 'no-cors', headers: {'Content-Type': 'application/x-www-form-urlencoded'}, body: %q}).catch(() => 0));\n", to, form.Encode())
			fmt.Fprintf(&b, "all.push(fetch(%q, {credentials: 'include'}).then((a) => a.text()).catch(() => 0));\n", to)
			fmt.Fprintf(&b,
				"{const f = document.createElement('iframe'); f.name = %q; f.src = %q; document.body.append(f);}\n",
				"of "+to, to)
			fmt.Fprintf(&b, "{const i = new Image(); i.src = %q; document.body.append(i);}\n", to)
			fmt.Fprintf(&b,
				"{const f = document.createElement('iframe'); f.name = %q; document.body.append(f); const form = document.createElement('form'); form.method = 'post'; form.target = f.name; form.action = %q;\n", "to "+to, to)
			for name, values := range form {
				fmt.Fprintf(&b,
					"{const i = document.createElement('input'); i.name = %q; i.value = %q; form.append(i);}\n", name,
					values[0])
			}
			b.WriteString("document.body.append(form); form.submit();}\n")
		}
	}
	b.WriteString("Promise.all(all).then(() => setTimeout(() => window.sent = 1, 500));\n</script>")
	return b.String()
}

// forgiveRefusals is for pages that a test opens to see them fail.
func (b *tab) forgiveRefusals() {
	b.forgive("Failed to load resource", "CORS", "frame-ancestors", "X-Frame-Options", "Cross-Origin", "ERR_BLOCKED",
		"Refused to", "status of 403", "status of 401")
}

// beside opens a second tab of the same browser.
func (b *tab) beside() *tab {
	b.t.Helper()
	ctx, end := chromedp.NewContext(b.ctx,
		chromedp.WithExistingBrowserContext(chromedp.FromContext(b.ctx).BrowserContextID),
		chromedp.WithListener(b.listen))
	b.t.Cleanup(end)
	if err := chromedp.Do(ctx, chromedp.EmulateViewport(800, 600)); err != nil {
		b.t.Fatal(err)
	}
	return &tab{t: b.t, w: b.w, ctx: ctx, console: b.console}
}

// Somebody who is signed in opens an agent's page on another port of this
// machine. The page gets no cookie of the console and decides nothing. Even on
// another port of the login's own host, whose name nobody else knows, the page
// decides nothing.
func TestConsoleCookieStaysFromOtherPorts(t *testing.T) {
	s := newConsoleFixture(t, asWritten)
	s.startWorker()
	task := s.result("Approve me from elsewhere")
	b := s.w.browse(t)
	b.forgiveRefusals()
	b.signIn("/console/reviews/" + task)
	b.reads("#result", "Guarded the counter")

	agent := startTrapServer(t)
	port := strings.TrimPrefix(s.w.url, "http://127.0.0.1:")
	guess := strings.Repeat("guess", 5) + "a.localhost"
	own, err := url.Parse(b.console)
	if err != nil {
		t.Fatal(err)
	}
	forms := map[string]url.Values{
		"/console/pause": {
			"hard":   {"yes"},
			"reason": {"it was me"},
			"seen":   {"0"},
			"once":   {strings.Repeat("n", 26)},
		},
		"/console/reviews/" + task + "/approve": {"note": {"it was me"}, "once": {strings.Repeat("n", 26)}},
	}
	untouched := func(from string) {
		t.Helper()
		if got := s.w.task(task); got.State != picket.TaskReview {
			t.Fatalf("a page of %s has decided: the task is %s", from, got.State)
		}
		var stats picket.Stats
		s.w.into(&stats, http.MethodGet, "/stats", nil)
		if stats.Pause.Paused {
			t.Fatalf("a page of %s has stopped everybody", from)
		}
	}
	other := b.beside()
	for _, host := range []string{"127.0.0.1", "localhost", guess, own.Hostname()} {
		agent.page = trap([]string{"http://127.0.0.1:" + port, "http://localhost:" + port,
			"http://" + guess + ":" + port, b.console}, forms)
		if host != own.Hostname() { // it cannot know that name
			agent.page = trap([]string{"http://127.0.0.1:" + port, "http://localhost:" + port,
				"http://" + guess + ":" + port}, forms)
		}
		other.do(chromedp.Navigate("http://" + host + ":" + agent.port + "/"))
		other.until("all was sent", "window.sent === 1")
		untouched(host)
		requests := agent.take()
		if len(requests) == 0 {
			t.Fatalf("the agent at %s was asked nothing", host)
		}
		sent := slices.ContainsFunc(requests,
			func(r *http.Request) bool { return strings.Contains(r.Header.Get("Cookie"), "picket_session") })
		if host == own.Hostname() && !sent {
			t.Error("cookies go to every port of a host no more: this test shows nothing")
		}
		for _, r := range requests {
			for name, values := range r.Header {
				all := strings.Join(values, " ")
				if host != own.Hostname() && strings.Contains(all, own.Hostname()) {
					t.Errorf("the agent at %s learns the name of the login by %s", host, name)
				}
				if host != own.Hostname() && strings.Contains(all, "picket_session") {
					t.Errorf("the agent at %s gets the session by %s", host, name)
				}
			}
			// What it got it shows, as the person's browser would.
			for _, at := range []string{"127.0.0.1:" + port, "localhost:" + port, guess + ":" + port} {
				replayCookie(t, s.w.url, at, r.Header.Get("Cookie"), forms)
			}
			untouched(host + ", with its cookies")
		}
	}
	// A page that leads here by a form, in the place of its own.
	for path, form := range forms {
		agent.page = trap(nil, nil) + topForm(b.console+path, form)
		other.do(chromedp.Navigate("http://" + own.Hostname() + ":" + agent.port + "/"))
		other.reads("[role=alert]", "sent by another site")
		untouched("the login's own host, by a form")
	}
	// The person can all the same.
	b.fill("#note", "well done")
	b.click(`#decide button.primary`)
	b.reads("[role=status]", "Approved.")
}

// topForm sends a form in the place of the page.
func topForm(to string, form url.Values) string {
	var b strings.Builder
	fmt.Fprintf(&b, `<form method="post" action="%s" id="f">`, to)
	for name, values := range form {
		fmt.Fprintf(&b, `<input type="hidden" name="%s" value="%s">`, name, values[0])
	}
	return b.String() + `</form><script>document.getElementById("f").submit()</script>`
}

var numberField = regexp.MustCompile(`name="once" value="([^"]+)"`)

// replayCookie is what an agent does with a cookie that it was sent: it opens the
// page of each form, takes its number, and sends it.
func replayCookie(t *testing.T, server, host, cookie string, forms map[string]url.Values) {
	t.Helper()
	for path, form := range forms {
		page := strings.TrimSuffix(strings.Replace(path, "/pause", "/stop", 1), "/approve")
		if found := numberField.FindSubmatch(askAs(t, host, http.MethodGet, server+page, nil, "Cookie",
			cookie).body); found != nil {
			form = maps.Clone(form)
			form.Set("once", string(found[1]))
		}
		askAs(t, host, http.MethodPost, server+path, form, "Cookie", cookie, "Sec-Fetch-Site", "same-origin")
	}
}

// askAs asks a server under a host name, and goes nowhere else.
func askAs(t *testing.T, host, method, address string, form url.Values, header ...string) answer {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, address, strings.NewReader(form.Encode()))
	if err != nil {
		t.Fatal(err)
	}
	req.Host = host
	req.Header.Set("Accept", "text/html")
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	for pair := range slices.Chunk(header, 2) {
		req.Header.Set(pair[0], pair[1])
	}
	res, err := http.DefaultTransport.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer{res.StatusCode, res.Header, body}
}

// The address of the login is told to nobody: it stands in no log, in no event,
// in no metric and in no list, and a wrong name answers as a right one does.
func TestConsoleTellsNobodyTheNameOfALogin(t *testing.T) {
	s := newConsoleFixture(t, asWritten)
	b := s.w.browse(t)
	b.forgiveRefusals()
	b.signIn("/console/")
	b.live()
	own, err := url.Parse(b.console)
	if err != nil {
		t.Fatal(err)
	}
	label, _, _ := strings.Cut(own.Hostname(), ".")
	if len(label) != 26 || !strings.HasSuffix(own.Hostname(), ".localhost") {
		t.Fatalf("the login is at %s", b.console)
	}
	code, err := eval[string](b,
		`[...performance.getEntriesByType("navigation")].map((e) => e.name).join(" ") + " " + document.referrer + " " + document.cookie`)
	if err != nil || strings.Contains(code, "code=") || strings.Contains(code, "picket_session") {
		t.Errorf("the page can read %s (%v)", code, err)
	}
	// Strangers ask at the right name, at a wrong one, and with the wrong cookie.
	answers := map[string][]string{}
	for _, name := range []string{own.Hostname(), strings.Repeat("a", 26) + ".localhost", label[1:] + "a.localhost"} {
		for _, path := range []string{"/", "/console/", "/console/login",
			"/console/enter?code=default." + strings.Repeat("A", 43), "/console/assets/none.css", "/api/v1/stats",
			"/healthz"} {
			got := askAs(t, name+":"+own.Port(), http.MethodGet, s.w.url+path, nil, "Cookie",
				"picket_session_"+own.Port()+"=default."+strings.Repeat("A", 43))
			got.header.Del("Date")
			got.header.Del("X-Request-Id")
			said := fmt.Sprint(path, got.status, got.header, strings.ReplaceAll(string(got.body), name, "NAME"))
			answers[path] = append(answers[path], regexp.MustCompile(`req_[A-Z0-9]+`).ReplaceAllString(said, "req"))
		}
	}
	for path, all := range answers {
		if len(slices.Compact(slices.Clone(all))) != 1 {
			t.Errorf("%s tells a right name from a wrong one:\n%s", path, strings.Join(all, "\n"))
		}
	}
	for what, text := range map[string]string{
		"the log":     s.w.processes[0].err.text() + s.w.processes[0].out.text(),
		"the events":  string(s.w.api(http.MethodGet, "/events?limit=1000", nil).body),
		"the metrics": string(s.w.call(s.w.key, http.MethodGet, s.w.url+"/metrics", nil).body),
		"the keys":    string(s.w.api(http.MethodGet, "/keys", nil).body),
		"the stats":   string(s.w.api(http.MethodGet, "/stats", nil).body),
	} {
		if text == "" || strings.Contains(text, label) {
			t.Errorf("%s (%d bytes) name the host of a login", what, len(text))
		}
	}
}

// Browsers look for names below localhost at ::1, too. The server holds its port
// there, and does not start where somebody else does.
func TestConsoleHoldsItsPortOnEveryLoopbackAddress(t *testing.T) {
	w := newTestEnv(t)
	free, err := net.Listen("tcp", "[::1]:0")
	if err != nil {
		t.Skip("this machine has no ::1")
	}
	_, port, _ := net.SplitHostPort(free.Addr().String())
	w.refused(4, picket.CodeStateConflict, "up", "--listen", "127.0.0.1:"+port)
	free.Close()
	w.up()
	port = strings.TrimPrefix(w.url, "http://127.0.0.1:")
	if l := listenIfFree("[::1]:" + port); l != nil {
		l.Close()
		t.Fatal("another process can listen on ::1, where browsers look for the login")
	}
	if got := w.call("", http.MethodGet, "http://[::1]:"+port+"/console/login", nil); got.status != http.StatusOK {
		t.Errorf("the server does not answer at ::1: %d", got.status)
	}
}
