//go:build linux

package e2e

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"math/big"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/security"
	"github.com/chromedp/chromedp"

	"github.com/picket-dev/picket"
)

// cookies are those that the browser would send with the page.
func (b *tab) cookies() []*network.Cookie {
	b.t.Helper()
	got, err := chromedp.Call(b.ctx, network.GetCookies, network.GetCookiesParams{})
	if err != nil {
		b.t.Fatal(err)
	}
	return got.Cookies
}

// A page on another port of the login's own host adds cookies of the session's
// name, for all paths and for longer ones. The person stays signed in.
func TestConsoleCookiesOfOtherPortsKeepNobodyOut(t *testing.T) {
	s := newConsoleFixture(t, asWritten)
	s.startWorker()
	task := s.result("Approve me beside other cookies")
	b := s.w.browse(t)
	b.forgiveRefusals()
	b.signIn("/console/reviews/" + task)
	b.reads("#result", "Guarded the counter")
	own, err := url.Parse(b.console)
	if err != nil {
		t.Fatal(err)
	}
	agent := startTrapServer(t)
	name, unknown := "picket_session_"+own.Port(), "default."+strings.Repeat("A", 43)
	var page strings.Builder
	page.WriteString("<!doctype html><title>harmless</title><script>\n")
	for _, where := range []string{"path=/console", "path=/console/", "path=/console/reviews",
		"path=/console/reviews/" + task, "path=/; domain=" + own.Hostname()} {
		fmt.Fprintf(&page, "document.cookie = %q;\n", name+"="+unknown+"; "+where)
	}
	page.WriteString("window.sent = 1;\n</script>")
	agent.page = page.String()
	other := b.beside()
	other.do(chromedp.Navigate("http://" + own.Hostname() + ":" + agent.port + "/"))
	other.until("the cookies are there", "window.sent === 1")

	b.open("/console/reviews/" + task)
	b.reads("#result", "Guarded the counter")
	ours, planted := 0, 0
	for _, c := range b.cookies() {
		switch {
		case c.Name == name && c.Value == unknown:
			planted++
		case c.Name == name:
			ours++
		}
	}
	if ours != 1 || planted < 4 {
		t.Errorf("the browser has %d cookies of the console and %d others of the name: this test shows nothing", ours,
			planted)
	}
	b.fill("#note", "well done")
	b.click(`#decide button.primary`)
	b.reads("[role=status]", "Approved.")
	if got := s.w.task(task); got.State != picket.TaskCompleted {
		t.Errorf("the task is %s", got.State)
	}
}

// secureHost is a name beyond this machine, which the browser of the tests leads
// to this machine all the same.
const secureHost = "console.picket.test"

// certify writes a certificate that nobody has signed.
func (w *testEnv) certify(names ...string) (cert, key string) {
	w.t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		w.t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1),
		DNSNames:     names,
		NotBefore:    time.Now().Add(-time.Hour),
		NotAfter:     time.Now().Add(time.Hour),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		w.t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		w.t.Fatal(err)
	}
	for name, block := range map[string]*pem.Block{
		"cert.pem": {Type: "CERTIFICATE", Bytes: der},
		"key.pem":  {Type: "PRIVATE KEY", Bytes: secret},
	} {
		if err := os.WriteFile(w.path(name), pem.EncodeToMemory(block), 0o600); err != nil {
			w.t.Fatal(err)
		}
	}
	return w.path("cert.pem"), w.path("key.pem")
}

// By https, under the name of public_url, the session is a __Host- cookie.
func TestConsoleCookieByHTTPS(t *testing.T) {
	w := newTestEnv(t)
	cert, key := w.certify(secureHost)
	w.env = append(w.env, "PICKET_PUBLIC_URL=https://"+secureHost)
	address := w.start("up", "up", "--listen", "127.0.0.1:0", "--tls-cert", cert, "--tls-key", key).ready()
	at, err := url.Parse(address)
	if err != nil || at.Scheme != "https" {
		t.Fatalf("the server is at %s (%v)", address, err)
	}
	b := w.browse(t)
	b.forgiveRefusals()
	if _, err := chromedp.Call(b.ctx, security.SetIgnoreCertificateErrors,
		security.SetIgnoreCertificateErrorsParams{Ignore: true}); err != nil {
		t.Fatal(err)
	}
	signIn := func(host string) {
		t.Helper()
		b.console = "https://" + host + ":" + at.Port()
		b.open("/console/login")
		b.fill("#key", w.secret("admin.key"))
		b.press("Enter")
	}
	signIn(secureHost)
	b.sees("header nav")
	cookies := b.cookies()
	if len(cookies) != 1 {
		t.Fatalf("%d cookies were set", len(cookies))
	}
	c := cookies[0]
	if c.Name != "__Host-picket_session_"+at.Port() || c.Domain != secureHost || c.Path != "/" || !c.Secure ||
		!c.HTTPOnly || c.SameSite != network.CookieSameSiteStrict {
		t.Errorf("the cookie is %+v", c)
	}
	// A page of the host cannot make one that JavaScript can read, for a longer
	// path, or for the names below it.
	for _, where := range []string{"; secure; path=/console", "; path=/", "; secure; path=/; domain=" + secureHost} {
		if _, err := eval[string](b, fmt.Sprintf("document.cookie = %q", c.Name+"=planted"+where)); err != nil {
			t.Fatal(err)
		}
	}
	if after := b.cookies(); len(after) != 1 || after[0].Value != c.Value {
		t.Errorf("%d cookies after the page has set its own", len(after))
	}
	b.open("/console/stop")
	b.reads("h1", "top")

	// At localhost nobody signs in by https.
	signIn("localhost")
	b.reads("[role=alert]", "browsers send its cookies to every port")
	if got := b.cookies(); len(got) != 0 {
		t.Errorf("%d cookies were set at localhost", len(got))
	}
}
