package doctor

import (
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// The finding says what is wrong with public_url. Only the health check of a Picket server is right.
func TestPublicURLIsJudged(t *testing.T) {
	answer := func(status int, body string, headers ...string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path != "/base/healthz" || r.Header.Get("Authorization") != "" {
				t.Errorf("the doctor asks for %s with %v", r.URL, r.Header)
			}
			for i := 0; i < len(headers); i += 2 {
				w.Header().Set(headers[i], headers[i+1])
			}
			w.WriteHeader(status)
			_, _ = w.Write([]byte(body))
		}
	}
	const id, well = "X-Request-Id", `{"status":"ok"}`
	const elsewhere = "Correct the host and the path in public_url."
	for name, c := range map[string]struct {
		answer         http.HandlerFunc
		detail, remedy string // without a remedy nothing is wrong
	}{
		"a server":        {answer(200, well+"\n", id, "req_1"), "/base leads to a Picket server", ""},
		"another service": {answer(200, well), "/base/healthz is answered by another server than Picket", elsewhere},
		"another body":    {answer(200, `{"status":"UP"}`, id, "1"), "is answered by another server", elsewhere},
		"a page":          {answer(200, "<html>", id, "1"), "is answered by another server", elsewhere},
		"no such path":    {answer(404, "not found"), "/base/healthz answers 404 Not Found, so another server is there", elsewhere},
		"a redirect": {answer(301, "", "Location", "https://b.example/\u202ehealthz"),
			"redirects to https://b.example/healthz", "without /healthz"},
		"a foreign refusal": {answer(403, "{}", id, "1"), "answers 403 Forbidden, so another server is there", elsewhere},
		"a foreign host": {answer(403, `{"code":"forbidden","title":"Not allowed"}`, id, "1"),
			"the server there does not serve this host name", "with the same public_url"},
		"a proxy alone": {answer(502, ""), "answers 502 Bad Gateway: the proxy there does not reach the server", "Start the server"},
		"broken": {func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
			"does not answer: EOF", "Start the server and its proxy"},
	} {
		server := httptest.NewServer(c.answer)
		checkFinding(t, name, server.URL+"/base", c.detail, c.remedy)
		server.Close()
	}
	if found := publicURLFindings(t.Context(), ""); found != nil {
		t.Errorf("without public_url: %+v", found)
	}
}

// A wrong scheme and a foreign certificate have remedies of their own.
func TestPublicURLOverTLS(t *testing.T) {
	none := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
	secure, plain := httptest.NewUnstartedServer(none), httptest.NewServer(none)
	secure.Config.ErrorLog = log.New(io.Discard, "", 0)
	secure.StartTLS()
	defer secure.Close()
	defer plain.Close()
	checkFinding(t, "an unknown authority", secure.URL, "does not answer: ", "a certificate for the host in public_url")
	checkFinding(t, "no TLS", strings.Replace(plain.URL, "http:", "https:", 1), "does not answer: ",
		"Write http:// in public_url")
	plain.Close()
	checkFinding(t, "nobody", plain.URL, "connection refused", "Start the server and its proxy, or correct public_url.")
}

func checkFinding(t *testing.T, name, public, detail, remedy string) {
	t.Helper()
	found := publicURLFindings(t.Context(), public)
	grade := "fail"
	if remedy == "" {
		grade = "ok"
	}
	if len(found) != 1 || found[0].Subject != "public url" || found[0].Grade != grade ||
		!strings.HasPrefix(found[0].Detail, public) || !strings.Contains(found[0].Detail, detail) ||
		!strings.Contains(found[0].Remedy, remedy) || strings.Contains(found[0].Detail, "\u202e") ||
		(found[0].Remedy == "") != (remedy == "") {
		t.Errorf("%s: %+v, want %s, %q, %q", name, found, grade, detail, remedy)
	}
}
