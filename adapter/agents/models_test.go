package agents

import (
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/picket-dev/picket"
)

// fakeProxy is a tool proxy that serves some vendors to one credential.
func fakeProxy(t *testing.T, secret picket.Secret, vendors ...string) *httptest.Server {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		vendor, _, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/llm/"), "/")
		switch {
		case !slices.Contains(vendors, vendor):
			w.WriteHeader(http.StatusNotFound)
		case r.Header.Get("Authorization") != "Bearer "+secret.Reveal():
			w.WriteHeader(http.StatusUnauthorized)
		default:
			w.WriteHeader(http.StatusBadRequest)
		}
	}))
	t.Cleanup(server.Close)
	return server
}

// An agent that is prompted is pointed at the models of the tool proxy, with the session capability as its key. It
// is metered if it calls no other vendor.
func TestAPromptUsesTheModelsOfTheProxy(t *testing.T) {
	const secret = picket.Secret("pks_secret")
	proxy := fakeProxy(t, secret, "anthropic", "openai")
	for preset, want := range map[Preset]struct {
		words   []string
		metered bool
	}{
		PresetClaude: {[]string{"ANTHROPIC_BASE_URL=" + proxy.URL + "/llm/anthropic",
			"ANTHROPIC_AUTH_TOKEN=pks_secret", "ANTHROPIC_API_KEY="}, true},
		PresetCodex: {[]string{`base_url="` + proxy.URL + `/llm/openai/v1"`,
			`env_key="PICKET_SESSION_CAPABILITY"`, `model_provider="picket"`}, true},
		PresetOpenCode: {nil, false},
		PresetGemini:   {nil, false},
	} {
		prompt := Prompt{Text: "hello", Dir: t.TempDir(), StateDir: t.TempDir(), ProxyURL: proxy.URL,
			Capability: secret}
		setup := NewPromptSetup(preset, prompt)
		setup.ProbeModels(t.Context())
		args, err := setup.Arguments()
		if err != nil {
			t.Fatal(err)
		}
		all := strings.Join(slices.Concat(args, setup.Env()), "\n")
		for _, w := range want.words {
			if !strings.Contains(all, w) {
				t.Errorf("%s is started without %s:\n%s", preset, w, all)
			}
		}
		if setup.Metered() != want.metered {
			t.Errorf("%s is metered: %t", preset, setup.Metered())
		}
		metered, known := preset.MeteredAt(t.Context(), http.DefaultClient, proxy.URL)
		if metered != want.metered || !known {
			t.Errorf("%s is metered before its first prompt: %t, known %t", preset, metered, known)
		}
	}
}

// Without a capability, or where its vendor is not served, an agent uses its own keys and is not metered.
func TestAPromptKeepsItsOwnKeys(t *testing.T) {
	proxy := fakeProxy(t, "pks_secret", "openai")
	for _, secret := range []picket.Secret{"", "pks_secret"} {
		setup := NewPromptSetup(PresetClaude, Prompt{Text: "hello", Dir: t.TempDir(), StateDir: t.TempDir(),
			ProxyURL: proxy.URL, Capability: secret})
		setup.ProbeModels(t.Context())
		if _, err := setup.Arguments(); err != nil {
			t.Fatal(err)
		}
		if all := strings.Join(setup.Env(), " "); setup.Metered() || strings.Contains(all, "ANTHROPIC") {
			t.Errorf("metered %t, and its variables are %s", setup.Metered(), all)
		}
	}
	if metered, known := PresetClaude.MeteredAt(t.Context(), http.DefaultClient, proxy.URL); metered || !known {
		t.Errorf("metered %t, known %t", metered, known)
	}
	proxy.Close()
	if metered, known := PresetClaude.MeteredAt(t.Context(), http.DefaultClient, proxy.URL); metered || known {
		t.Errorf("of a proxy that is away: metered %t, known %t", metered, known)
	}
}
