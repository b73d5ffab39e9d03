package toolproxy_test

import (
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/toolproxy/tools"
)

// Each hop of a redirect is checked as the first request was, and another
// server gets nothing that was meant for the first.
func TestRedirectsAreCheckedHopByHop(t *testing.T) {
	insidePort, hits := serveInner(t, "127.0.0.3:0")
	other := serveRecording(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("there")) })
	var u *recordingServer
	u = serveRecording(t, func(w http.ResponseWriter, r *http.Request) {
		switch path, kind, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/"); path {
		case "inside":
			w.Header().Set("Location", "http://127.0.0.3:"+insidePort+"/")
		case "unlisted":
			w.Header().Set("Location", "http://127.0.0.4:80/")
		case "file":
			w.Header().Set("Location", "file:///etc/passwd")
		case "userinfo":
			w.Header().Set("Location", "http://u:p@"+u.at()+"/")
		case "unreadable":
			w.Header().Set("Location", "http://%zz/")
		case "around":
			w.Header().Set("Location", "/around")
		case "here":
			w.Header().Set("Location", "/end")
		case "there":
			w.Header().Set("Location", other.URL+"/end")
			if kind == "307" {
				w.WriteHeader(http.StatusTemporaryRedirect)
				return
			}
		case "end":
			_, _ = w.Write([]byte("here"))
			return
		}
		w.WriteHeader(http.StatusFound)
	})
	p := newHTTPProxy(t, func(c *tools.HTTPConfig) {
		c.Allow = []string{u.at(), other.at(), "127.0.0.3"}
		// So .3 is not public, and it is listed without its port.
		c.Public = func(ip netip.Addr) bool { return ip == netip.MustParseAddr("127.0.0.9") }
	})
	for path, want := range map[string]struct {
		status float64
		body   string
		why    string
	}{
		"inside":     {302, "", "inside"},
		"unlisted":   {302, "", "allow-list"},
		"file":       {302, "", "scheme"},
		"userinfo":   {302, "", "password"},
		"unreadable": {302, "", "cannot be read"},
		"around":     {302, "", "redirects"},
		"here":       {200, "here", ""},
		"there":      {200, "there", ""},
		"there/307":  {307, "", "a second time"},
	} {
		door, before := newFakeEnvelope(100*cent), hits.Load()
		a, err := get(t, p, door,
			`{"method":"POST","body":"secret","headers":{"Authorization":"Bearer abc","X-Api-Key":"k","Cookie":"c=1","Accept":"text/html"},"url":"`+u.URL+"/"+path+`"}`)
		if err != nil {
			t.Errorf("%s: %v", path, err)
			continue
		}
		if a["status"] != want.status || a["body"] != want.body ||
			!strings.Contains(text(a["notFollowed"]), want.why) || (want.why == "") != (a["notFollowed"] == nil) {
			t.Errorf("%s: %v", path, a)
		}
		if path == "around" {
			u.mu.Lock()
			if n := len(slices.DeleteFunc(slices.Clone(u.seen),
				func(r *http.Request) bool { return r.URL.Path != "/around" })); n != 6 {
				t.Errorf("the server that redirects to itself was called %d times", n)
			}
			u.mu.Unlock()
		}
		if hits.Load() != before {
			t.Errorf("%s: the inside was reached", path)
		}
		if len(door.outcomes()) != 1 || door.outcomes()[0] == picket.CallUncertain {
			t.Errorf("%s: %v", path, door.outcomes())
		}
	}
	if len(other.seen) != 1 {
		t.Fatalf("the other server was called %d times", len(other.seen))
	}
	for _, name := range []string{"Authorization", "X-Api-Key", "Cookie", "X-Fencing-Token"} {
		if other.seen[0].Header.Get(name) != "" {
			t.Errorf("the other server got %s", name)
		}
	}
	if r := other.seen[0]; r.Method != "GET" || other.body[0] != "" || r.Header.Get("Accept") != "text/html" {
		t.Errorf("the other server got %s %q %v", r.Method, other.body[0], r.Header)
	}
	for i, r := range u.seen {
		if r.URL.Path == "/end" &&
			(r.Method != "GET" || r.Header.Get("Authorization") != "Bearer abc" || u.body[i] != "") {
			t.Errorf("after a redirect to the same server: %s %v %q", r.Method, r.Header, u.body[i])
		}
	}
}
