package main

import (
	"net/http/httptest"
	"testing"

	"github.com/picket-dev/picket/internal/web"
)

// The routes of a server accept the host names of allowed_hosts and of public_url, and no others.
func TestTheHostOfThePublicURLIsServed(t *testing.T) {
	cfg, err := loadTestSettings(t, "allowed_hosts: a.example\n", "--public-url", "https://Agents.example:8443/picket/")
	if err != nil {
		t.Fatal(err)
	}
	hosts := serverProcess{cfg: cfg}.hosts()
	for host, served := range map[string]bool{"agents.example:8443": true, "agents.example": true, "a.example": true,
		"b.example": false, "127.0.0.1:7070": true} {
		r := httptest.NewRequest("GET", "/healthz", nil)
		r.Host = host
		if err := web.CheckHost(r, hosts); (err == nil) != served {
			t.Errorf("%s: %v, want served %t", host, err, served)
		}
	}
}
