package unixsocket

import (
	"io"
	"net"
	"net/http"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestPath(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	for address, want := range map[string]string{
		"unix:/run/picket/api.sock":               "/run/picket/api.sock",
		"unix:///run/picket/api.sock":             "/run/picket/api.sock",
		"unix:/run/../api.sock":                   "/api.sock",
		"unix:a/b.sock":                           filepath.Join(dir, "a/b.sock"),
		"unix:@a":                                 filepath.Join(dir, "@a"),
		"unix:/" + strings.Repeat("x", MaxPath-1): "/" + strings.Repeat("x", MaxPath-1),
	} {
		if got, err := Path(address); got != want || err != nil {
			t.Errorf("Path(%q) = %q, %v, want %q", address, got, err, want)
		}
	}
	for address, want := range map[string]string{
		"unix:":                                 "is not the URL of a Unix socket",
		"http://127.0.0.1:7070":                 "is not the URL of a Unix socket",
		"unix:~/api.sock":                       "does not replace ~",
		"unix:/a\x00b":                          "zero byte",
		"unix:/" + strings.Repeat("x", MaxPath): "has 108 bytes, and that of a Unix socket has at most 107",
	} {
		if got, err := Path(address); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Path(%q) = %q, %v, want an error with %q", address, got, err, want)
		}
	}
}

// A request to a socket goes through no proxy, names localhost as its host, and keeps its query.
func TestRequest(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, r.Host+" "+r.URL.String())
	})}
	go func() { _ = server.Serve(l) }()
	defer server.Close()
	transport := &http.Transport{Proxy: func(r *http.Request) (*url.URL, error) {
		t.Errorf("a proxy is looked for, to reach %s", r.URL)
		return nil, nil
	}}
	Register(transport)
	defer transport.CloseIdleConnections()
	base, err := RequestURL(URL(path))
	if err != nil {
		t.Fatal(err)
	}
	res, err := (&http.Client{Transport: transport}).Get(base + "/api/v1/tasks?state=queued")
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if got, err := io.ReadAll(res.Body); string(got) != "localhost /api/v1/tasks?state=queued" || err != nil {
		t.Errorf("the server got %q, %v", got, err)
	}
	if res.Request.URL.Scheme != "unix" {
		t.Errorf("the answer is to %s, which was not asked for", res.Request.URL)
	}
	want := []string{"--unix-socket", path, "http://localhost/x"}
	if got := CurlArguments(base + "/x"); !slices.Equal(got, want) {
		t.Errorf("the arguments of curl are %q, want %q", got, want)
	}
	if same, err := RequestURL("http://127.0.0.1:7070"); same != "http://127.0.0.1:7070" || err != nil {
		t.Errorf("RequestURL changes another URL to %q, %v", same, err)
	}
}
