package agentclient

import (
	"net/url"
	"strings"
	"testing"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/internal/rig/fakeagent"
)

// Requests go to the origin of the agent, and to what its user allows, but not from https to plain http.
func TestWhereRequestsMayGo(t *testing.T) {
	agent := &Target{URL: "https://127.0.0.1:7443", Credential: "tok", Allows: func(u *url.URL) bool {
		return u.Host == "agents.example.com" || u.Host == "127.0.0.1:7443"
	}}
	for given, want := range map[string]bool{
		"https://127.0.0.1:7443/rpc":     true,
		"http://127.0.0.1:7443/rpc":      false, // not without encryption
		"https://agents.example.com/rpc": true,
		"http://agents.example.com/rpc":  false,
		"https://example.com/rpc":        false,
		"file:///etc/passwd":             false,
	} {
		u, err := url.Parse(given)
		if err != nil {
			t.Fatal(err)
		}
		if got := agent.mayCall(u); got != want {
			t.Errorf("%s: allowed is %v, want %v", given, got, want)
		}
	}
	other := fakeagent.New(t)
	only := &Target{URL: fakeagent.New(t).URL, Credential: "tok", AllowRemedy: "Allow "}
	res, err := newGuard(only).http().Get(other.URL)
	if err == nil {
		res.Body.Close()
		t.Error("a request that no card was asked for goes to another host")
	} else if e, ok := picket.RefusalOf(err); !ok || e.Remedy != "Allow "+strings.TrimPrefix(other.URL, "http://") {
		t.Errorf("it is refused with %+v", err)
	}
	if n := other.Requests(); n != 0 {
		t.Errorf("the other host got %d requests", n)
	}
}
