package main

import (
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strconv"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/cmd/picket/settings"
	"github.com/picket-dev/picket/toolproxy/llm"
	"github.com/picket-dev/picket/toolproxy/mcp"
	"github.com/picket-dev/picket/toolproxy/tools"
)

// httpToolOf is what http_request may do.
func httpToolOf(s settings.Settings) tools.HTTPConfig {
	most, _ := strconv.ParseInt(s.ToolValue("http_request", "max_bytes").Text, 10, 64)
	return tools.HTTPConfig{
		Allow:    s.ToolValue("http_request", "allow").Items,
		Timeout:  s.ToolDuration("http_request", "timeout"),
		MaxBytes: most,
	}
}

// databasesOf are those of the tool sql whose URL is in the environment.
func databasesOf(s settings.Settings, env toolEnv) map[string]tools.Database {
	all := map[string]tools.Database{}
	for _, name := range s.NamesUnder("sql") {
		if url, ok := env.lookupSecret("tools.sql."+name, s.ToolValue("sql", name, "url_env").Text); ok {
			all[name] = tools.Database{
				URL:     url,
				Marks:   s.ToolValue("sql", name, "marks").Text,
				Timeout: s.ToolDuration("sql", name, "timeout"),
			}
		}
	}
	return all
}

// upstreamsOf are the MCP servers whose headers are all in the environment.
func upstreamsOf(s settings.Settings, env toolEnv) (all []mcp.Upstream) {
	for _, name := range s.NamesUnder("upstreams") {
		u := mcp.Upstream{
			Name:    name,
			URL:     s.ToolValue("upstreams", name, "url").Text,
			Command: s.ToolValue("upstreams", name, "command").Items,
			Env:     s.ToolValue("upstreams", name, "env").Items,
			Timeout: s.ToolDuration("upstreams", name, "timeout"),
			Headers: map[string]picket.Secret{},
		}
		whole := true
		for _, header := range s.NamesUnder("upstreams", name, "headers") {
			value, ok := env.lookupSecret("tools.upstreams."+name,
				s.ToolValue("upstreams", name, "headers", header, "env").Text)
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
func llmOf(s settings.Settings, env toolEnv) (cfg llm.Config) {
	for _, name := range s.NamesUnder("llm") {
		up := &llm.Upstream{URL: s.ToolValue("llm", name, "url").Text}
		if variable := s.ToolValue("llm", name, "key_env").Text; variable != "" {
			key, ok := env.lookupSecret("tools.llm."+name, variable)
			if !ok {
				continue
			}
			up.Key = key
		}
		switch name {
		case "anthropic":
			cfg.Anthropic = up
		case "openai":
			cfg.OpenAI = up
		}
	}
	return cfg
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
