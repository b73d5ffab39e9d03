package adapter

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/budget"
)

// runSetup is one run as its coding agent is to be told of it.
type runSetup struct {
	job          Job
	picketPath   string // the picket program; empty when it is not known
	proxyURL     string
	mcpURL       string
	remaining    budget.Money    // what the task has left
	session      *agentSession   // that of the agent itself
	inheritedEnv []string        // NAME=value of the adapter's environment that it gets
	env          []string        // NAME=value beside those of the lease
	models       map[string]bool // providers that the proxy passes on to, such as anthropic
	webSearch    map[string]bool // those of them whose searches of the web have a price there
}

// leaseVariable holds the lease token in the agent's environment. Every agent
// reads it from there: the token itself is in no file and in no argument.
const leaseVariable = "PICKET_LEASE_TOKEN"

// setEnv gives the agent a variable.
func (e *runSetup) setEnv(name, value string) { e.env = append(e.env, name+"="+value) }

// inheritedValue is the value of a variable that the agent gets from outside.
func (e *runSetup) inheritedValue(name string) string { return envValue(e.inheritedEnv, name) }

// writeConfig puts a configuration into the run's own directory, for its user alone.
func (e *runSetup) writeConfig(name string, v any) (file string, err error) {
	return writePrivate(filepath.Join(e.job.StateDir, name), v)
}

// writePrivate replaces a file that only its user can read, with the
// directories above it.
func writePrivate(file string, v any) (string, error) {
	b, err := json.Marshal(v, jsontext.WithIndent("  "))
	if err != nil {
		return "", err
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		return "", err
	}
	if err := os.WriteFile(file+".new", append(b, '\n'), 0o600); err != nil {
		return "", err
	}
	return file, os.Rename(file+".new", file)
}

// toolsTimeout bounds how long the tools are waited for before an agent starts.
const toolsTimeout = 15 * time.Second

// waitForTools makes sure that the agent will find Picket's tools: most coding
// agents go on without them, do all the work and cannot hand it in.
func (e *runSetup) waitForTools(ctx context.Context, client *http.Client) error {
	ctx, cancel := context.WithTimeout(ctx, toolsTimeout)
	defer cancel()
	for wait := 250 * time.Millisecond; ; wait *= 2 {
		status, err := e.pingTools(ctx, client)
		switch {
		case err == nil && status < 300:
			return nil
		case err == nil && status < 500:
			return toolsUnreachable(e.mcpURL, fmt.Sprintf("it answers %d %s", status, http.StatusText(status)))
		case err == nil:
			err = fmt.Errorf("it answers %d", status)
		}
		if !sleep(ctx, wait) {
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

func (e *runSetup) pingTools(ctx context.Context, client *http.Client) (status int, err error) {
	res, err := e.send(ctx, client, http.MethodPost, e.mcpURL, mcpInitialize, "")
	if err != nil {
		return 0, err
	}
	defer res.Body.Close()
	_, _ = io.Copy(io.Discard, io.LimitReader(res.Body, 1<<20))
	if session := res.Header.Get("Mcp-Session-Id"); session != "" {
		if bye, err := e.send(ctx, client, http.MethodDelete, e.mcpURL, "", session); err == nil {
			bye.Body.Close()
		}
	}
	return res.StatusCode, nil
}

func (e *runSetup) send(ctx context.Context, client *http.Client,
	method, url, body, session string) (*http.Response, error) {
	if client == nil {
		client = defaultHTTP
	}
	req, err := http.NewRequestWithContext(ctx, method, url, bytes.NewReader([]byte(body)))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Authorization", "Bearer "+e.job.Lease.AgentCredential().Reveal())
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json, text/event-stream")
	if session != "" {
		req.Header.Set("Mcp-Session-Id", session)
	}
	return client.Do(req)
}

// checkBudget finds out what the task has left now; what it was granted stands when
// nobody answers. An agent is not started on nothing: what it costs is known
// only when it is spent.
func (e *runSetup) checkBudget(ctx context.Context, client *http.Client) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	left := e.job.Lease.BudgetEnvelope
	if task, err := NewProxy(e.job.Lease, e.proxyURL, client).Task(ctx); err == nil {
		left = task.Available
	}
	e.remaining = left.USD
	if left.USD > 0 && left.Tokens > 0 {
		return nil
	}
	return budgetRefusal(e.job.Lease.TaskID, left)
}

// webSearchProbes are questions without a model that offer it a search of the web.
var webSearchProbes = map[string]string{
	"anthropic": `{"tools":[{"type":"web_search_20250305","name":"web_search"}]}`,
	"openai":    `{"tools":[{"type":"web_search"}]}`,
}

// probeModels finds out which providers the tool proxy passes on to, and whether
// they may search there. A question without a model is refused by those it does,
// before anybody is asked, and otherwise if it offers a tool without a price.
func (e *runSetup) probeModels(ctx context.Context, client *http.Client, providers map[string]string) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	e.models, e.webSearch = map[string]bool{}, map[string]bool{}
	for provider, path := range providers {
		url, _ := e.modelURL(provider)
		e.models[provider] = e.isPassedOn(ctx, client, url+path, "{}")
		e.webSearch[provider] = e.models[provider] && e.isPassedOn(ctx, client, url+path, webSearchProbes[provider])
	}
}

// isPassedOn reports whether all that a question lacks is a model.
func (e *runSetup) isPassedOn(ctx context.Context, client *http.Client, url, question string) bool {
	res, err := e.send(ctx, client, http.MethodPost, url, question, "")
	if err != nil {
		return false
	}
	res.Body.Close()
	return res.StatusCode == http.StatusBadRequest
}

// modelURL is where the models of a provider are to be asked: at the tool
// proxy, if it passes on to them.
func (e *runSetup) modelURL(provider string) (url string, ok bool) {
	return strings.TrimSuffix(e.proxyURL, "/") + "/llm/" + provider, e.models[provider]
}
