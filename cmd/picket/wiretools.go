package main

import (
	"fmt"
	"log/slog"
	"maps"
	"os"
	"slices"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/cmd/picket/settings"
	"github.com/picket-dev/picket/toolproxy/llm"
	"github.com/picket-dev/picket/toolproxy/mcp"
	"github.com/picket-dev/picket/toolproxy/tools"
)

// httpToolOf is what http_request may do.
func httpToolOf(s settings.Settings) tools.HTTPConfig {
	h := s.Tools.HTTPRequest
	return tools.HTTPConfig{Allow: h.Allow, Timeout: h.Timeout, MaxBytes: h.MaxBytes}
}

// databasesOf are those of the tool sql whose URL is in the environment.
func databasesOf(s settings.Settings, env toolEnv) map[string]tools.Database {
	all := map[string]tools.Database{}
	for _, name := range slices.Sorted(maps.Keys(s.Tools.SQL)) {
		d := s.Tools.SQL[name]
		if url, ok := env.lookupSecret("tools.sql."+name, d.URLEnv); ok {
			all[name] = tools.Database{URL: url, Marks: d.Marks, Timeout: d.Timeout}
		}
	}
	return all
}

// upstreamsOf are the MCP servers whose headers are all in the environment.
func upstreamsOf(s settings.Settings, env toolEnv) (all []mcp.Upstream) {
	for _, name := range slices.Sorted(maps.Keys(s.Tools.Upstreams)) {
		in := s.Tools.Upstreams[name]
		u := mcp.Upstream{
			Name: name, URL: in.URL, Command: in.Command, Env: in.Env, Timeout: in.Timeout,
			Headers: map[string]picket.Secret{},
		}
		whole := true
		for _, header := range slices.Sorted(maps.Keys(in.Headers)) {
			value, ok := env.lookupSecret("tools.upstreams."+name, in.Headers[header].Env)
			u.Headers[header], whole = value, whole && ok
		}
		if whole {
			all = append(all, u)
		}
	}
	return all
}

// llmOf is where calls of language models go; one whose key is missing is left
// out.
func llmOf(s settings.Settings, env toolEnv) llm.Config {
	upstream := func(name string, in *settings.LLMUpstream) *llm.Upstream {
		if in == nil {
			return nil
		}
		up := &llm.Upstream{URL: in.URL}
		if in.KeyEnv != "" {
			key, ok := env.lookupSecret("tools.llm."+name, in.KeyEnv)
			if !ok {
				return nil
			}
			up.Key = key
		}
		return up
	}
	return llm.Config{
		Anthropic: upstream("anthropic", s.Tools.LLM.Anthropic),
		OpenAI:    upstream("openai", s.Tools.LLM.OpenAI),
	}
}

// toolEnv is where the values of variables come from, and where it is told
// which are not there: what needs them is left out.
type toolEnv struct {
	lookup  func(string) string
	missing func(what, name string)
}

func processEnv(log *slog.Logger) toolEnv {
	return toolEnv{os.Getenv, func(what, name string) {
		log.Warn(what+" is left out: "+name+" is not set in the environment", "fix",
			fmt.Sprintf("export %s=… and start again", name))
	}}
}

func (e toolEnv) lookupSecret(what, name string) (picket.Secret, bool) {
	text := e.lookup(name)
	if text == "" {
		e.missing(what, name)
	}
	return picket.Secret(text), text != ""
}

// missingVariables are the names that the tools of picket.yaml need and this
// environment does not have.
func missingVariables(s settings.Settings) (names []string) {
	env := toolEnv{os.Getenv, func(_, name string) { names = append(names, name) }}
	databasesOf(s, env)
	upstreamsOf(s, env)
	llmOf(s, env)
	slices.Sort(names)
	return slices.Compact(names)
}
