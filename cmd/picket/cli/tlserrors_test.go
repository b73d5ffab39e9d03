package cli

import (
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/cmd/picket/cli/exit"
)

// A server that is there is not said to be away: what is wrong is its
// certificate, or that it has none.
func TestTLSErrorsAreExplained(t *testing.T) {
	answer := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })
	safe, plain := httptest.NewUnstartedServer(answer), httptest.NewServer(answer)
	safe.Config.ErrorLog = log.New(io.Discard, "", 0)
	safe.StartTLS()
	defer safe.Close()
	defer plain.Close()
	for url, want := range map[string][2]string{
		safe.URL: {" shows a certificate that is not trusted here: x509: ", "SSL_CERT_FILE"},
		strings.Replace(plain.URL, "http://", "https://", 1): {" speaks no TLS", "Write http:// instead"},
		"https://127.0.0.1:1":                                {" does not answer", "Start it with `picket up`"},
	} {
		s := NewConnection(url, "")
		err := s.Server.Ready(t.Context())
		if err == nil || picket.CodeOf(err) != picket.CodeUnavailable || !strings.HasPrefix(err.Error(), url+want[0]) ||
			!strings.Contains(exit.Remedy(err), want[1]) {
			t.Errorf("%s: %v (fix: %s), want %q", url, err, exit.Remedy(err), want)
		}
	}
}

// The same server is the same with a slash at its end: the saved key is for it.
func TestTrailingSlashIsTheSameServer(t *testing.T) {
	for _, written := range []string{"http://127.0.0.1:9", "http://127.0.0.1:9/"} {
		t.Setenv("PICKET_URL", written)
		s, err := Connect(newTestRoot())
		if err != nil || s.URL() != "http://127.0.0.1:9" {
			t.Errorf("%s is %+v, %v", written, s, err)
		}
	}
}
