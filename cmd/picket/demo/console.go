package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"strings"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/cmd/picket/cli"
	"github.com/picket-dev/picket/internal/lazyregexp"
)

var consoleChapter = chapter{
	title: "the console",
	lead:  "Everything that people decide can be decided in a browser, too, on the port of the server, and without JavaScript.",
	prepare: func(st *demoEnv) ([]chapterStep, error) {
		jar, err := cookiejar.New(nil)
		l := &consoleDemo{demoEnv: st}
		l.browser = http.Client{
			Jar:           jar,
			Timeout:       demoStepTimeout,
			Transport:     &http.Transport{DialContext: dialAsBrowser},
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		}
		return []chapterStep{l.signIn, l.queue, l.decide, l.after}, err
	},
}

// consoleDemo is the play: a person with a browser, and what the chapters before have
// left in review.
type consoleDemo struct {
	*demoEnv
	browser http.Client
	at      string // the server, under the host name of the login once there is one
	waiting []picket.PendingReview
}

// dialAsBrowser leads names below localhost to this machine, as browsers do. A
// system's own resolver may not know them.
func dialAsBrowser(ctx context.Context, network, addr string) (net.Conn, error) {
	host, port, err := net.SplitHostPort(addr)
	if err == nil && strings.HasSuffix(host, ".localhost") {
		addr = net.JoinHostPort("127.0.0.1", port)
	}
	return (&net.Dialer{}).DialContext(ctx, network, addr)
}

// openPage opens a page, or sends a form if there is one, and returns what the page shows. For a
// form it returns the address of the next page.
func (l *consoleDemo) openPage(ctx context.Context, path string, form url.Values) (string, error) {
	method, body, want := http.MethodGet, io.Reader(nil), http.StatusOK
	if form != nil {
		method, body, want = http.MethodPost, strings.NewReader(form.Encode()), http.StatusSeeOther
	}
	req, err := http.NewRequestWithContext(ctx, method, l.at+path, body)
	if err != nil {
		return "", err
	}
	req.Header.Set("Accept", "text/html")
	if form != nil {
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		req.Header.Set("Origin", l.at)
	}
	res, err := l.browser.Do(req)
	if err != nil {
		return "", err
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		return "", err
	}
	if res.StatusCode != want {
		return "", fmt.Errorf("%s %s of the console answered %s", method, path, res.Status)
	}
	if form != nil {
		return res.Header.Get("Location"), nil
	}
	return string(text), nil
}

func (l *consoleDemo) signIn(ctx context.Context) error {
	key, err := l.s.Keys.Create(ctx, picket.KeyRequest{Name: "cleo", Scopes: []picket.Scope{picket.ScopeReviewer}})
	if err != nil {
		return err
	}
	l.at = l.s.URL()
	on, err := l.openPage(ctx, "/console/login", url.Values{"key": {key.Key.Reveal()}})
	if err != nil {
		return err
	}
	own, err := url.Parse(on)
	if err != nil {
		return fmt.Errorf("read where the console leads: %w", err)
	}
	l.at = own.Scheme + "://" + own.Host
	if _, err := l.openPage(ctx, own.RequestURI(), nil); err != nil {
		return err
	}
	l.narrate("Cleo signs in at %s/console/ with a key of her own. Her browser goes on to a host name that only she knows.", l.s.URL())
	return nil
}

// titlePattern is what the browser shows on its tab.
var titlePattern = lazyregexp.New(`<title>([^<]*)</title>`)

func (l *consoleDemo) queue(ctx context.Context) (err error) {
	page, err := l.s.Reviews.List(ctx, picket.ReviewQuery{})
	if err != nil {
		return err
	}
	l.waiting = page.Reviews
	if len(l.waiting) == 0 {
		return errors.New("nothing is left in review")
	}
	text, err := l.openPage(ctx, "/console/reviews", nil)
	if err != nil {
		return err
	}
	for _, r := range l.waiting {
		if !strings.Contains(text, r.TaskID) || !strings.Contains(text, r.Title) {
			return fmt.Errorf("%s is not on the page of reviews", r.TaskID)
		}
	}
	return l.checkTitle(text, len(l.waiting))
}

// checkTitle looks at the number of what waits in the title of a page.
func (l *consoleDemo) checkTitle(page string, waiting int) error {
	found := titlePattern().FindStringSubmatch(page)
	if found == nil || !strings.HasPrefix(found[1], fmt.Sprintf("(%d) ", waiting)) {
		return fmt.Errorf("expected (%d) in the title of the page, got %q", waiting, found)
	}
	l.narrate("The tab says %q: %s for a decision.", found[1], cli.Plural(waiting, "result")+" wait")
	return nil
}

var (
	onceField   = lazyregexp.New(`name="once" value="([^"]*)"`)
	digestField = lazyregexp.New(`name="digest" value="([^"]*)"`)
)

func (l *consoleDemo) decide(ctx context.Context) error {
	path := "/console/reviews/" + l.waiting[0].TaskID
	text, err := l.openPage(ctx, path, nil)
	if err != nil {
		return err
	}
	once, digest := onceField().FindStringSubmatch(text), digestField().FindStringSubmatch(text)
	if once == nil || digest == nil || !strings.Contains(text, cli.OutputText(l.waiting[0].Output)) {
		return errors.New("the page of the review has no output or no form")
	}
	form := url.Values{"once": {once[1]}, "digest": {digest[1]}, "note": {"seen in the browser"}}
	for range 2 { // a form that is sent twice, as by a double click, is one decision
		if _, err := l.openPage(ctx, path+"/approve", form); err != nil {
			return err
		}
	}
	l.narrate("She looks at the evidence of %s and approves it. The button is pressed twice: one decision.",
		l.waiting[0].TaskID)
	return nil
}

func (l *consoleDemo) after(ctx context.Context) error {
	t, err := l.task(ctx, l.waiting[0].TaskID)
	if err != nil {
		return err
	}
	if t.State != picket.TaskCompleted || t.Review == nil || t.Review.Note != "seen in the browser" {
		return fmt.Errorf("what was approved in the console is %s", t.State)
	}
	text, err := l.openPage(ctx, "/console/", nil)
	if err != nil {
		return err
	}
	return l.checkTitle(text, len(l.waiting)-1)
}

// waitForInterrupt leaves the stage open until it is interrupted.
func (st *demoEnv) waitForInterrupt(ctx context.Context) {
	st.narrate("The server stays until Ctrl-C. Look around at %s/console/; the key is in %s", st.s.URL(),
		st.path("data/admin.key"))
	<-ctx.Done()
}
