package agents

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"time"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/budget"
	"github.com/picket-dev/picket/internal/files"
)

// Run is one run of a coding agent. Its command line, its prompt and its configuration are made
// from it, and its functions get what the output reports.
type Run struct {
	Lease picket.Lease
	// Dir is the workspace: the agent's current directory.
	Dir string
	// StateDir is the run's own directory; the agent's configuration is written there.
	StateDir string
	// Env are the variables of the lease, NAME=value.
	Env []string
	// InheritedEnv are the variables that the agent gets from the adapter's own
	// environment, NAME=value.
	InheritedEnv []string
	// Sessions is a directory that notes the agent's own sessions, so that a later run
	// continues them. Empty means that each run begins a new session.
	Sessions string
	// Conversation is that of an agent session that has taken the task; then Sessions does not count. The zero
	// value stands for none.
	Conversation Conversation
	// PicketPath is the picket program; empty when it is not known.
	PicketPath string
	// HTTP asks the tool proxy. Required.
	HTTP *http.Client
	// Stderr takes notes for people, beside what the agent prints. May be nil.
	Stderr io.Writer
	// Used takes what the output says the agent has used. May be nil.
	Used func(picket.UsageReport)
	// Session takes the id of the agent's own session. May be nil.
	Session func(id string)
	// Fail ends the run for a reason that people can act on. May be nil.
	Fail func(reason string)
}

// Setup prepares one run of a coding agent.
type Setup struct {
	// Remaining is what the task has left. Claude Code is told to stop there.
	Remaining budget.Money

	preset    Preset
	run       Run
	outside   *Prompt // of a prompt outside of any run; nil: this is a run
	proxyURL  string
	mcpURL    string
	session   *agentSession   // that of the agent itself
	env       []string        // NAME=value beside those of the lease
	models    map[string]bool // providers that the proxy passes on to, such as anthropic
	webSearch map[string]bool // those of them whose searches of the web have a price there
}

// NewSetup starts to prepare a run of a coding agent. The preset must be one: see
// [Preset.CodingAgent].
func NewSetup(p Preset, run Run) *Setup {
	proxyURL := envValue(run.Env, "PICKET_PROXY_URL")
	session := openAgentSession(run.Sessions, p, run)
	if run.Conversation != (Conversation{}) {
		session = openConversation(run.Conversation, p, run.Dir)
	}
	return &Setup{
		Remaining: run.Lease.BudgetEnvelope.USD,
		preset:    p,
		run:       run,
		proxyURL:  proxyURL,
		mcpURL:    cmp.Or(run.Lease.MCPURL, strings.TrimSuffix(proxyURL, "/")+"/mcp"),
		session:   session,
	}
}

// ProxyURL is the address of the tool proxy that the lease names.
func (e *Setup) ProxyURL() string { return e.proxyURL }

// Arguments returns the agent's command line after the program, and writes the
// configuration files that it needs. Call it after WaitForTools and ProbeModels.
func (e *Setup) Arguments() ([]string, error) { return e.preset.spec().arguments(e) }

// Env returns the variables, NAME=value, that the agent gets beside those of the
// lease. They are complete after Arguments.
func (e *Setup) Env() []string { return e.env }

// leaseVariable holds the lease token in the agent's environment. Every agent
// reads it from there: the token itself is in no file and in no argument.
const leaseVariable = "PICKET_LEASE_TOKEN"

// setEnv gives the agent a variable.
func (e *Setup) setEnv(name, value string) { e.env = append(e.env, name+"="+value) }

// inheritedValue is the value of a variable that the agent gets from outside.
func (e *Setup) inheritedValue(name string) string { return envValue(e.run.InheritedEnv, name) }

// envValue is the value of a name among NAME=value.
func envValue(env []string, name string) string {
	for _, kv := range env {
		if n, value, _ := strings.Cut(kv, "="); n == name {
			return value
		}
	}
	return ""
}

// writeConfig puts a configuration into the run's own directory, for its user alone.
func (e *Setup) writeConfig(name string, v any) (file string, err error) {
	file = filepath.Join(e.run.StateDir, name)
	return file, files.WritePrivateJSON(file, v)
}

// toolsTimeout bounds how long the tools are waited for before an agent starts.
const toolsTimeout = 15 * time.Second

// WaitForTools makes sure that the agent will find Picket's tools: most coding
// agents go on without them, do all the work and cannot hand it in.
func (e *Setup) WaitForTools(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, toolsTimeout)
	defer cancel()
	for wait := 250 * time.Millisecond; ; wait *= 2 {
		status, err := e.pingTools(ctx)
		switch {
		case err == nil && status < 300:
			return nil
		case err == nil && status < 500:
			return toolsUnreachable(e.mcpURL, fmt.Sprintf("it answers %d %s", status, http.StatusText(status)))
		case err == nil:
			err = fmt.Errorf("it answers %d", status)
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return toolsUnreachable(e.mcpURL, err.Error())
		}
	}
}

func toolsUnreachable(url, why string) error {
	return picket.Refuse(picket.CodeUnavailable,
		"See that "+url+
			" can be reached from this machine: start picket up, or set its --proxy-url to an address that agents can use.",
		"Picket's tools cannot be reached at %s: %s", url, why)
}

// mcpInitialize begins a conversation over MCP.
const mcpInitialize = `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"picket-adapter","version":"1"}}}`

func (e *Setup) pingTools(ctx context.Context) (status int, err error) {
	res, err := e.send(ctx, http.MethodPost, e.mcpURL, mcpInitialize, "")
	if err != nil {
		return 0, err
	}
	defer res.Body.Close()
	_, _ = io.Copy(io.Discard, io.LimitReader(res.Body, 1<<20))
	if session := res.Header.Get("Mcp-Session-Id"); session != "" {
		if bye, err := e.send(ctx, http.MethodDelete, e.mcpURL, "", session); err == nil {
			bye.Body.Close()
		}
	}
	return res.StatusCode, nil
}

func (e *Setup) send(ctx context.Context,
	method, url, body, session string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, url, bytes.NewReader([]byte(body)))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Authorization", "Bearer "+e.credential().Reveal())
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json, text/event-stream")
	if session != "" {
		req.Header.Set("Mcp-Session-Id", session)
	}
	return e.run.HTTP.Do(req)
}

// webSearchProbes are questions without a model that offer it a search of the web.
var webSearchProbes = map[string]string{
	"anthropic": `{"tools":[{"type":"web_search_20250305","name":"web_search"}]}`,
	"openai":    `{"tools":[{"type":"web_search"}]}`,
}

// ProbeModels finds out which providers the tool proxy passes on to, and whether
// they may search there. A question without a model is refused by those it does,
// before anybody is asked, and otherwise if it offers a tool without a price.
func (e *Setup) ProbeModels(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	e.models, e.webSearch = map[string]bool{}, map[string]bool{}
	if e.credential() == "" {
		return
	}
	for provider, path := range e.preset.spec().proxyProbes {
		url, _ := e.modelURL(provider)
		e.models[provider] = e.isPassedOn(ctx, url+path, "{}")
		e.webSearch[provider] = e.models[provider] && e.isPassedOn(ctx, url+path, webSearchProbes[provider])
	}
}

// isPassedOn reports whether all that a question lacks is a model.
func (e *Setup) isPassedOn(ctx context.Context, url, question string) bool {
	res, err := e.send(ctx, http.MethodPost, url, question, "")
	if err != nil {
		return false
	}
	res.Body.Close()
	return res.StatusCode == http.StatusBadRequest
}

// modelURL is the base URL for the models of a provider: the tool proxy's, if it passes calls on to
// them.
func (e *Setup) modelURL(provider string) (url string, ok bool) {
	return strings.TrimSuffix(e.proxyURL, "/") + "/llm/" + provider, e.models[provider]
}
