package contract_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/picket-dev/picket/internal/rig/contract"
)

func header(contentType string) http.Header {
	return http.Header{"Content-Type": {contentType}}
}

// The check bites: each of these would be an answer that nobody described.
func TestCheckSeesWhatIsNotDescribed(t *testing.T) {
	d := contract.Load(t)
	problem := `{"type":"about:blank","title":"t","status":404,"detail":"d","code":"not_found","message":"d","remedy":"r","retryable":false,"requestId":"x"}`
	for _, tt := range []struct {
		name   string
		method string
		path   string
		status int
		header http.Header
		body   string
		good   bool
	}{
		{"good", "GET", "/healthz", 200, header("application/json"), `{"status":"ok"}`, true},
		{"extra member", "GET", "/healthz", 200, header("application/json"), `{"status":"ok","more":1}`, false},
		{"missing member", "GET", "/healthz", 200, header("application/json"), `{}`, false},
		{"other status", "GET", "/healthz", 202, header("application/json"), `{"status":"ok"}`, false},
		{"other type", "GET", "/healthz", 200, header("text/html"), `ok`, false},
		{"no route, no problem", "GET", "/nowhere", 404, header("text/plain"), `no`, false},
		{"no route, problem", "GET", "/nowhere", 404, header("application/problem+json"), problem, true},
		{"no route, answered", "GET", "/nowhere", 200, header("application/json"), `{}`, false},
		{"unknown code", "GET", "/nowhere", 404, header("application/problem+json"),
			`{"type":"about:blank","title":"t","status":404,"detail":"d","code":"nope","message":"d","remedy":"r","retryable":false,"requestId":"x"}`, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := httptest.NewRequest(tt.method, tt.path, nil)
			if err := d.Check(r, tt.status, tt.header, []byte(tt.body)); (err == nil) != tt.good {
				t.Errorf("got %v", err)
			}
		})
	}
}
