package outbound_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/internal/outbound"
	"github.com/picket-dev/picket/internal/rig"
)

// What is told early is what the dial would say; a name that nobody knows yet
// is left to the dial.
func TestCheckReachableRefusesEarly(t *testing.T) {
	dns := rig.StartDNSServer(t,
		map[string][]string{
			"out.test":  {"93.184.216.34"},
			"in.test":   {"10.1.2.3"},
			"six.test":  {"::1"},
			"meta.test": {"169.254.169.254"},
		})
	for allow, cases := range map[string]map[string]bool{
		"": {
			"https://out.test/":         true,
			"https://in.test/":          false,
			"https://six.test/":         false,
			"https://nobody.test/":      true,
			"https://8.8.8.8/":          true,
			"http://127.0.0.1:9/":       false,
			"http://[::ffff:10.0.0.1]/": false,
			"http://localhost/":         false,
			"ftp://out.test/":           false,
			"https:///x":                false,
		},
		"in.test:8443 meta.test:80 127.0.0.1:9": {
			"https://in.test:8443/": true,
			"https://in.test/":      false,
			"http://meta.test/":     false,
			"http://127.0.0.1:9/":   true,
			"http://127.0.0.1:10/":  false,
			"https://out.test/":     true,
		},
	} {
		g, err := outbound.New(outbound.Config{
			Allow:          strings.Fields(allow),
			AllowAllPublic: true,
			Setting:        "notify.allow",
			Resolver:       dns.Resolver(),
		})
		if err != nil {
			t.Fatal(err)
		}
		for text, want := range cases {
			u, err := url.Parse(text)
			if err != nil {
				t.Fatal(err)
			}
			if err := g.CheckReachable(t.Context(), u); (err == nil) != want {
				t.Errorf("with %q, %s: %v", allow, text, err)
			}
		}
	}
}

// An allow-list that is not an opening is a limit, and a refusal names its key.
func TestAListLimitsUnlessItOpens(t *testing.T) {
	u, _ := url.Parse("https://8.8.8.8/")
	for _, open := range []bool{false, true} {
		g, err := outbound.New(outbound.Config{
			Allow:          []string{"1.1.1.1:443"},
			AllowAllPublic: open,
			Setting:        "some.key",
		})
		if err != nil {
			t.Fatal(err)
		}
		if err := g.Check(u); (err == nil) != open {
			t.Errorf("open %t: %v", open, err)
		}
		inside, _ := url.Parse("http://10.0.0.1/")
		var e *picket.Error
		if err := g.CheckReachable(t.Context(), inside); !errors.As(err, &e) || e.Code != picket.CodeDestination ||
			!strings.Contains(e.Remedy, "some.key") {
			t.Errorf("open %t, inside: %v", open, err)
		}
	}
	for _, text := range []string{"intra.example", "*", "*:80"} {
		for _, open := range []bool{false, true} {
			if _, err := outbound.New(outbound.Config{
				Allow:          []string{text},
				AllowAllPublic: open,
			}); (picket.CodeOf(err) == picket.CodeValidation) != open {
				t.Errorf("open %t, %q: %v", open, text, err)
			}
		}
	}
	if _, err := outbound.New(outbound.Config{
		Allow: []string{"http://x"},
	}); picket.CodeOf(err) != picket.CodeValidation {
		t.Errorf("a URL is taken as a destination: %v", err)
	}
}

// The transport dials through the guard and leaves redirects to its caller.
func TestTheTransportIsGuarded(t *testing.T) {
	reached := 0
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		reached++
		http.Redirect(w, r, "/again", http.StatusFound)
	}))
	defer s.Close()
	for allow, want := range map[string]int{"127.0.0.2:1": 0, s.Listener.Addr().String(): http.StatusFound} {
		g, err := outbound.New(outbound.Config{Allow: []string{allow}, AllowAllPublic: true, Setting: "some.key"})
		if err != nil {
			t.Fatal(err)
		}
		transport := g.Transport(nil)
		req, _ := http.NewRequest(http.MethodGet, s.URL, nil)
		before := reached
		resp, err := transport.RoundTrip(req)
		switch {
		case want == 0 && (!errors.Is(err, picket.CodeDestination) || reached != before):
			t.Errorf("%s: %v, reached %d times", allow, err, reached-before)
		case want != 0 && (err != nil || resp.StatusCode != want || reached != before+1):
			t.Errorf("%s: %v %v", allow, resp, err)
		}
		if resp != nil {
			_ = resp.Body.Close()
		}
		transport.CloseIdleConnections()
	}
}
