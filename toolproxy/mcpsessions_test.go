package toolproxy_test

import (
	"net/http"
	"strings"
	"testing"
)

// A session that another proxy has opened, or that this one has forgotten, is
// served without; one that its client has ended is over.
func TestSessionsOfOtherProxies(t *testing.T) {
	f := newProxyEnv(t, &fakeBackend{})
	url := listenMCP(t, f)
	post := func(id, method string) int {
		req, _ := http.NewRequestWithContext(t.Context(), method, url,
			strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{}}`))
		for k, v := range map[string]string{
			"Authorization":        bearerOf(f.token()),
			"Content-Type":         "application/json",
			"Accept":               "application/json, text/event-stream",
			"Mcp-Protocol-Version": "2025-11-25",
			"Mcp-Session-Id":       id,
		} {
			req.Header.Set(k, v)
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		return resp.StatusCode
	}
	defer http.DefaultClient.CloseIdleConnections()
	if got := post("of-another-proxy", http.MethodPost); got != 200 {
		t.Errorf("a session of another proxy: %d", got)
	}
	mine := connect(t, url, f.token(), protocolVersions[0], nil).ID()
	if mine == "" {
		t.Fatal("the older wire got no session")
	}
	foreign := f.sealer.LeaseToken("default", aTask, "run_01JZZZZZZZZZZZZZZZZZZZZZZC").Reveal()
	req, _ := http.NewRequestWithContext(t.Context(), http.MethodDelete, url, nil)
	req.Header.Set("Authorization", "Bearer "+foreign)
	req.Header.Set("Mcp-Session-Id", mine)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != 403 {
		t.Errorf("another run ends my session: %d", resp.StatusCode)
	}
	if got := post(mine, http.MethodPost); got != 200 {
		t.Errorf("my own session: %d", got)
	}
	if got := post(mine, http.MethodDelete); got != 204 {
		t.Errorf("I end my session: %d", got)
	}
	if got := post(mine, http.MethodPost); got != 404 {
		t.Errorf("an ended session: %d", got)
	}
}

// A run has a bounded number of sessions. Clients beyond it, and those that say
// more than a session keeps, are served without one.
func TestSessionsOfARunAreBounded(t *testing.T) {
	f := newProxyEnv(t, &fakeBackend{})
	url := listenMCP(t, f)
	defer http.DefaultClient.CloseIdleConnections()
	ask := func(method, bearer, id, body string) (status int, session string) {
		t.Helper()
		req, _ := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
		for k, v := range map[string]string{
			"Authorization":        "Bearer " + bearer,
			"Content-Type":         "application/json",
			"Accept":               "application/json, text/event-stream",
			"Mcp-Protocol-Version": "2025-11-25",
			"Mcp-Session-Id":       id,
		} {
			if v != "" {
				req.Header.Set(k, v)
			}
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		return resp.StatusCode, resp.Header.Get("Mcp-Session-Id")
	}
	open := func(bearer string, words int) string {
		t.Helper()
		status, session := ask(http.MethodPost, bearer, "",
			`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{"experimental":{"x":["`+
				strings.Repeat("y", words)+`"]}},"clientInfo":{"name":"c","version":"1"}}}`)
		if status != 200 {
			t.Fatalf("initialize: %d", status)
		}
		return session
	}
	mine, other := f.token(), f.sealer.LeaseToken("default", aTask, "run_01JZZZZZZZZZZZZZZZZZZZZZZC").Reveal()
	if open(mine, 17<<10) != "" {
		t.Error("a long initialize is kept in a session")
	}
	var first string
	for i := range 16 {
		session := open(mine, 10)
		if session == "" {
			t.Fatalf("session %d was not opened", i+1)
		}
		first = session
	}
	if open(mine, 10) != "" {
		t.Error("a run has one session more")
	}
	if open(other, 10) == "" {
		t.Error("the sessions of one run keep another out")
	}
	if status, _ := ask(http.MethodDelete, mine, first, ""); status != 204 {
		t.Errorf("I end my session: %d", status)
	}
	if open(mine, 10) == "" {
		t.Error("an ended session is still counted")
	}
}
