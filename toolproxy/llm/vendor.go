package llm

import (
	"cmp"
	"errors"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/picket-dev/picket"
)

// Upstream is an API or any gateway that speaks like it.
type Upstream struct {
	// URL is the base, with or without /v1. Defaults to the vendor's own.
	URL string
	// Key is sent in place of the agent's lease token. Defaults to none.
	Key picket.Secret
}

// Path is where the pass-through is mounted.
const Path = "/llm"

// vendor is one of the APIs passed through.
type vendor struct {
	name        string
	defaultURL  string // its own base URL
	ledgerTool  string // in the ledger
	dialects    map[string]*dialect
	freeRoutes  []string // paths that cost nothing, one ending in / covers what is below
	headers     []string // of an agent's request, that go there
	encodeError func(e *picket.Error) any
	sign        func(h http.Header, u *endpoint)
}

var vendors = []*vendor{
	{
		name: "anthropic", defaultURL: "https://api.anthropic.com", ledgerTool: "llm_anthropic",
		dialects:   map[string]*dialect{"POST /v1/messages": anthropicMessages},
		freeRoutes: []string{"POST /v1/messages/count_tokens", "GET /v1/models", "GET /v1/models/"},
		headers:    anthropicHeaders, encodeError: anthropicError, sign: signAnthropic,
	},
	{
		name: "openai", defaultURL: "https://api.openai.com", ledgerTool: "llm_openai",
		dialects:   map[string]*dialect{"POST /v1/chat/completions": openAIChat, "POST /v1/responses": openAIResponses},
		freeRoutes: []string{"GET /v1/models", "GET /v1/models/"},
		headers:    openAIHeaders, encodeError: openAIError, sign: signOpenAI,
	},
}

func signAnthropic(h http.Header, u *endpoint) {
	key := u.key.Reveal()
	if key == "" {
		return
	}
	// A token of an account is not an API key; a gateway may look at either header.
	oauth := strings.HasPrefix(key, "sk-ant-oat")
	if !oauth {
		h.Set("X-Api-Key", key)
	}
	if oauth || u.base.Hostname() != "api.anthropic.com" {
		h.Set("Authorization", "Bearer "+key)
	}
}

func signOpenAI(h http.Header, u *endpoint) {
	if key := u.key.Reveal(); key != "" {
		h.Set("Authorization", "Bearer "+key)
	}
}

// endpoint is a configured upstream.
type endpoint struct {
	base *url.URL
	key  picket.Secret
}

func (v *vendor) endpoint(cfg *Upstream) (*endpoint, error) {
	if cfg == nil {
		return nil, nil
	}
	base, err := url.Parse(cmp.Or(cfg.URL, v.defaultURL))
	if err != nil || base.Host == "" || base.Scheme != "http" && base.Scheme != "https" {
		return nil, picket.Invalid("LLM", "Set a URL such as "+v.defaultURL+".",
			"the URL of the %s upstream is not one of http or https", v.name)
	}
	base.Path = strings.TrimSuffix(strings.TrimSuffix(base.Path, "/"), "/v1")
	return &endpoint{base: base, key: cfg.Key}, nil
}

var (
	anthropicHeaders = []string{"Anthropic-Version", "Anthropic-Beta", "Anthropic-Dangerous-Direct-Browser-Access",
		"X-App", "X-Claude-Code-"}
	openAIHeaders = []string{"Openai-Beta", "X-Codex-", "X-Openai-Subagent", "X-Openai-Internal-Codex-Responses-Lite"}
)

// vendorPath is the path at the vendor, whether or not the client's base URL had
// /v1 at its end.
func vendorPath(r *http.Request, v *vendor) string {
	path := strings.TrimPrefix(r.URL.Path, Path+"/"+v.name)
	if !strings.HasPrefix(path, "/v1/") {
		path = "/v1" + path
	}
	return path
}

func (v *vendor) isFreeRoute(call string) bool {
	for _, f := range v.freeRoutes {
		if rest, below := strings.CutPrefix(call, f); call == f ||
			below && strings.HasSuffix(f, "/") && isPlainPath(rest) {
			return true
		}
	}
	return false
}

// isPlainPath keeps a path from leading elsewhere.
func isPlainPath(s string) bool {
	return s != "" && s != "." && s != ".." && !strings.ContainsAny(s, "\\?#%") && !strings.Contains(s, "//") &&
		!strings.Contains(s, "..")
}

func (v *vendor) routeList() string {
	priced := slices.Sorted(maps.Keys(v.dialects))
	return strings.Join(append(priced, v.freeRoutes...), ", ")
}

// dialect is one way of asking a language model.
type dialect struct {
	messagesMember string   // the member that holds the messages
	limitMembers   []string // members that limit the answer; the first is put in where there is none
}

var (
	anthropicMessages = &dialect{
		messagesMember: "messages",
		limitMembers:   []string{"max_tokens"},
	}
	openAIChat = &dialect{
		messagesMember: "messages",
		limitMembers:   []string{"max_completion_tokens", "max_tokens"},
	}
	openAIResponses = &dialect{
		messagesMember: "input",
		limitMembers:   []string{"max_output_tokens"},
	}
)

// refusalOf returns the refusal that reports err to an agent.
func refusalOf(err error) *picket.Error {
	if refusal, ok := errors.AsType[*picket.Error](err); ok {
		return refusal
	}
	return picket.Refuse(picket.CodeInternal, "Try again; tell an operator if it stays.",
		"the call could not be passed on").WithCause(err)
}

// errorMessage puts the code, the message and the remedy into one text, because
// many programs show only the message of an error.
func errorMessage(e *picket.Error) string {
	return string(e.Code) + ": " + e.Message + ". " + e.Remedy
}

// withFacts adds the code, the remedy and the facts of a refusal to the members
// of a vendor's error.
func withFacts(members map[string]any, e *picket.Error) map[string]any {
	for name, value := range e.Facts {
		if _, taken := members[name]; !taken {
			members[name] = value
		}
	}
	members["code"], members["remedy"] = e.Code, e.Remedy
	return members
}

func anthropicError(e *picket.Error) any {
	kind := map[int]string{
		400: "invalid_request_error",
		401: "authentication_error",
		402: "billing_error",
		403: "permission_error",
		404: "not_found_error",
		413: "request_too_large",
		429: "rate_limit_error",
		503: "overloaded_error",
		504: "timeout_error",
	}[e.Code.Status()]
	if kind == "" {
		kind = "invalid_request_error"
		if e.Code.Status() >= 500 {
			kind = "api_error"
		}
	}
	return map[string]any{
		"type":  "error",
		"error": withFacts(map[string]any{"type": kind, "message": errorMessage(e)}, e),
	}
}

func openAIError(e *picket.Error) any {
	kind := "invalid_request_error"
	switch status := e.Code.Status(); {
	case e.Code == picket.CodeBudgetExceeded:
		kind = "insufficient_quota"
	case status == 429:
		kind = "rate_limit_error"
	case status >= 500:
		kind = "server_error"
	}
	return map[string]any{"error": withFacts(map[string]any{"type": kind, "message": errorMessage(e), "param": nil}, e)}
}
