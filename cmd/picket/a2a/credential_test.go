package a2a

import (
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/cmd/picket/a2a/agentclient"
	"github.com/picket-dev/picket/internal/rig/fakeagent"
)

const ownKey = "pkk_default_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"

// The saved key, and the key of the environment, go to the configured server, and to no other agent.
func TestTheKeyOfPicketGoesToItsServerAlone(t *testing.T) {
	own, foreign := fakeagent.New(t), fakeagent.New(t)
	atHome(t, own.URL, ownKey)
	foreign.Answer = func(string, string) string { return fakeagent.TaskIn("WORKING") }
	own.Answer = foreign.Answer
	check := func(key string) {
		t.Helper()
		run(t, "card", foreign.URL).want(t, 0)
		run(t, "get", foreign.URL, "t1").want(t, 0)
		for _, header := range []string{"Authorization", "X-API-Key", "Cookie"} {
			if got := foreign.Sent(header); strings.Join(got, "") != "" {
				t.Errorf("the foreign agent got %s: %q", header, got)
			}
		}
		run(t, "get", "builder", "t1").want(t, 0)
		run(t, "get", own.URL+"/agents/builder", "t1").want(t, 0)
		got := own.Sent("Authorization")
		if slices.ContainsFunc(got, func(s string) bool { return s != "Bearer "+key }) {
			t.Errorf("the server got %q", got)
		}
		own.Forget()
	}
	check(ownKey)
	other := strings.Replace(ownKey, "A", "B", 1)
	t.Setenv("PICKET_URL", own.URL)
	t.Setenv("PICKET_API_KEY", other)
	check(other)
}

// A URL is of the server only if its scheme, host and port are those of the server, and its path is below.
func TestWhatIsOfTheServer(t *testing.T) {
	const server = "http://127.0.0.1:7070/base"
	for given, want := range map[string]bool{
		"http://127.0.0.1:7070/base":                                      true,
		"http://127.0.0.1:7070/base/agents/builder":                       true,
		"http://127.0.0.1:7070/base/agents/b/.well-known/agent-card.json": true,
		"https://127.0.0.1:7070/base/agents/builder":                      false,
		"http://127.0.0.1:7071/base/agents/builder":                       false,
		"http://127.0.0.1/base/agents/builder":                            false,
		"http://127.0.0.1.example.com:7070/base/agents/builder":           false,
		"http://localhost:7070/base/agents/builder":                       false,
		"http://127.0.0.1:7070/baseline":                                  false,
		"http://127.0.0.1:7070/other":                                     false,
		"http://127.0.0.1:7070/base/../other":                             false,
		"http://127.0.0.1:7070/base/%2e%2e/other":                         false,
		"http://example.com/http://127.0.0.1:7070/base":                   false,
	} {
		address, err := agentclient.ParseAddress(given)
		if err != nil {
			t.Fatal(err)
		}
		if _, got := cutURL(address, server); got != want {
			t.Errorf("%s: %v, want %v", given, got, want)
		}
	}
	for _, given := range []string{"http://127.0.0.1:7070@example.com/", "http://a:b@127.0.0.1:7070/base", "http:///x",
		"http://example.com/?a", "http://example.com/#a", "file:///etc/passwd", "https:example.com"} {
		if _, err := agentclient.ParseAddress(given); err == nil {
			t.Errorf("%s is taken", given)
		}
	}
}

// The token of --token-env goes to the agent as its card wants it, and is shown nowhere.
func TestATokenIsSentAsTheCardSays(t *testing.T) {
	f := fakeagent.New(t)
	atHome(t, "http://127.0.0.1:1", ownKey)
	t.Setenv("AGENT_TOKEN", "user:tok")
	f.Answer = func(string, string) string { return fakeagent.TaskIn("WORKING") }
	for scheme, want := range map[string][2]string{
		`{"httpAuthSecurityScheme":{"scheme":"Bearer"}}`:                           {"Authorization", "Bearer user:tok"},
		`{"httpAuthSecurityScheme":{"scheme":"basic"}}`:                            {"Authorization", "Basic dXNlcjp0b2s="},
		`{"apiKeySecurityScheme":{"location":"header","name":"X-Key"}}`:            {"X-Key", "user:tok"},
		`{"openIdConnectSecurityScheme":{"openIdConnectUrl":"https://a.example"}}`: {"Authorization", "Bearer user:tok"},
		`{"apiKeySecurityScheme":{"location":"query","name":"key"}}`:               {},
		`{"apiKeySecurityScheme":{"location":"header","name":"Host"}}`:             {},
		`{"apiKeySecurityScheme":{"location":"header","name":"A: b\r\nC"}}`:        {},
		`{"mtlsSecurityScheme":{}}`:                                                {},
	} {
		f.Card = strings.Replace(fakeagent.UsualCard, `"skills"`, `"securitySchemes":{"s":`+scheme+
			`},"securityRequirements":[{"schemes":{"s":[]}}],"skills"`, 1)
		got := run(t, "get", f.URL, "t1", "--token-env", "AGENT_TOKEN")
		if strings.Contains(got.stdout+got.stderr, "tok\n") || strings.Contains(got.stderr, "user:tok") {
			t.Errorf("%s: the token is shown: %s", scheme, got.stderr)
		}
		if want[0] == "" {
			got.want(t, 2, "asks for a credential in a way that is not supported: s")
			continue
		}
		got.want(t, 0)
		if sent := f.Sent(want[0]); sent[len(sent)-1] != want[1] {
			t.Errorf("%s: %s is %q, want %q", scheme, want[0], sent, want[1])
		}
	}
	run(t, "get", f.URL, "t1", "--token-env", "NO_SUCH").want(t, 2, `variable "NO_SUCH" is not set`)
}

// A card cannot send requests to a host that no person has named, with or without a credential.
func TestACardCannotNameAnotherHost(t *testing.T) {
	f, other := fakeagent.New(t), fakeagent.New(t)
	atHome(t, "http://127.0.0.1:1", ownKey)
	t.Setenv("AGENT_TOKEN", "tok")
	f.Card = strings.ReplaceAll(fakeagent.UsualCard, "AT", other.URL)
	other.Answer = func(string, string) string { return fakeagent.TaskIn("WORKING") }
	host := strings.TrimPrefix(other.URL, "http://")
	run(t, "get", f.URL, "t1", "--token-env", "AGENT_TOKEN").want(t, 2, "sends requests to another host: "+host,
		"--allow-host "+host)
	run(t, "get", f.URL, "t1").want(t, 2, "sends requests to another host")
	if n := len(other.Sent("Host")); n != 0 {
		t.Errorf("the other host got %d requests", n)
	}
	run(t, "get", f.URL, "t1", "--allow-host", host).want(t, 0, "working")

	allows := hostIn([]string{"agents.example.com", "a.example:8443"})
	for given, want := range map[string]bool{
		"https://Agents.example.com/rpc":      true,
		"https://agents.example.com:8443/rpc": false,
		"https://a.example:8443/rpc":          true,
		"https://a.example/rpc":               false,
		"https://example.com/rpc":             false,
	} {
		u, err := url.Parse(given)
		if err != nil {
			t.Fatal(err)
		}
		if got := allows(u); got != want {
			t.Errorf("%s: allowed is %v, want %v", given, got, want)
		}
	}
}

// A redirect is not followed.
func TestARedirectIsRefused(t *testing.T) {
	f, other := fakeagent.New(t), fakeagent.New(t)
	atHome(t, "http://127.0.0.1:1", ownKey)
	hop := fakeagent.NewRedirect(t, other.URL)
	run(t, "card", hop).want(t, 1, "sends the request to another address: "+other.URL)
	f.Card = strings.ReplaceAll(fakeagent.UsualCard, "AT/rpc", hop)
	run(t, "get", f.URL, "t1", "--allow-host", strings.TrimPrefix(hop, "http://")).want(t, 1, "to another address")
	if n := len(other.Sent("Host")); n != 0 {
		t.Errorf("the other host got %d requests", n)
	}
}

// A picket.yaml in the current directory cannot make its server get the token.
func TestATokenIsNotSentToALocalURL(t *testing.T) {
	f := fakeagent.New(t)
	atHome(t, "http://127.0.0.1:1", ownKey)
	t.Setenv("AGENT_TOKEN", "tok")
	if err := os.WriteFile("picket.yaml", []byte("url: "+f.URL+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	runRoot(t, "config", "trust").want(t, 0)
	for _, agent := range []string{"builder", f.URL + "/agents/builder"} {
		run(t, "get", agent, "t1", "--token-env", "AGENT_TOKEN").want(t, 2,
			"AGENT_TOKEN is not sent to the url in picket.yaml:1:1")
		run(t, "get", agent, "t1") // with no key, because none is saved for that server
	}
	if got := strings.Join(f.Sent("Authorization"), ""); got != "" {
		t.Errorf("the server got %q", got)
	}
}

// A role is a pool of the namespace of the key. A URL is taken as it is.
func TestTheNamespaceOfARole(t *testing.T) {
	atHome(t, "http://127.0.0.1:7070", strings.Replace(ownKey, "default", "team", 1))
	cmd := &cobra.Command{}
	cmd.Flags().String("token-env", "", "")
	cmd.Flags().StringSlice("allow-host", nil, "")
	for given, want := range map[string]string{
		"builder":                              "http://127.0.0.1:7070/n/team/agents/builder",
		"http://127.0.0.1:7070/agents/builder": "http://127.0.0.1:7070/agents/builder",
		"http://127.0.0.1:7070/n/team/":        "http://127.0.0.1:7070/n/team",
		"https://a.example/":                   "https://a.example",
	} {
		got, err := findTarget(cmd, given)
		if err != nil || got.URL != want || got.Server != nil != (got.Credential != "") {
			t.Errorf("%s: %+v, %v; want %s", given, got, err, want)
		}
	}
}

// If an agent refuses the credential, or the lack of one, the person learns which flag names it.
func TestWhatHelpsWhenACredentialIsRefused(t *testing.T) {
	f := fakeagent.New(t)
	atHome(t, "http://127.0.0.1:1", ownKey)
	t.Setenv("AGENT_TOKEN", "tok")
	f.Rest = func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusUnauthorized) }
	run(t, "get", f.URL, "t1").want(t, 1, "Name the environment variable with the credential for the agent: "+
		"--token-env NAME")
	run(t, "get", f.URL, "t1", "--token-env", "AGENT_TOKEN").want(t, 1,
		"Check the credential that --token-env names, and what it allows.")
}

// An agent inside a run can follow its subtask, but neither cancel it nor answer its question. So neither is advised.
func TestAnAgentInsideARunIsAdvisedToFollow(t *testing.T) {
	f := fakeagent.New(t)
	atHome(t, "http://127.0.0.1:1", ownKey)
	t.Setenv("LEASE", picket.LeaseTokenPrefix+"default.x")
	for state, want := range map[string]string{
		"WORKING": " a2a stream ", "INPUT_REQUIRED": "a person has to answer"} {
		f.Answer = func(string, string) string { return `{"task":` + fakeagent.TaskIn(state) + `}` }
		r := run(t, "send", f.URL, "x", "--no-wait", "--token-env", "LEASE")
		r.want(t, 0, want)
		if strings.Contains(r.stderr, "a2a cancel") || strings.Contains(r.stderr, "a2a tell") {
			t.Errorf("%s: advised: %s", state, r.stderr)
		}
	}
}
