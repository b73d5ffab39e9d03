package main

import (
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strconv"
	"time"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/toolproxy"
	"github.com/picket-dev/picket/toolproxy/llm"
)

// httpTool is what http_request may do.
func (s settings) httpTool() toolproxy.HTTPConfig {
	most, _ := strconv.ParseInt(s.toolValue("http_request", "max_bytes").text, 10, 64)
	return toolproxy.HTTPConfig{
		Allow:    s.toolValue("http_request", "allow").items,
		Timeout:  s.toolDuration("http_request", "timeout"),
		MaxBytes: most,
	}
}

// databases are those of the tool sql whose URL is in the environment.
func (s settings) databases(env toolEnv) map[string]toolproxy.Database {
	all := map[string]toolproxy.Database{}
	for _, name := range s.namesUnder("sql") {
		if url, ok := env.lookupSecret("tools.sql."+name, s.toolValue("sql", name, "url_env").text); ok {
			all[name] = toolproxy.Database{
				URL:     url,
				Marks:   s.toolValue("sql", name, "marks").text,
				Timeout: s.toolDuration("sql", name, "timeout"),
			}
		}
	}
	return all
}

// upstreamNames finds the first name of an MCP server that cannot stay, and why.
func upstreamNames(names []string) (string, error) { return toolproxy.CheckUpstreamNames(names) }

// upstreams are the MCP servers whose headers are all in the environment.
func (s settings) upstreams(env toolEnv) (all []toolproxy.Upstream) {
	for _, name := range s.namesUnder("upstreams") {
		u := toolproxy.Upstream{
			Name:    name,
			URL:     s.toolValue("upstreams", name, "url").text,
			Command: s.toolValue("upstreams", name, "command").items,
			Env:     s.toolValue("upstreams", name, "env").items,
			Timeout: s.toolDuration("upstreams", name, "timeout"),
			Headers: map[string]picket.Secret{},
		}
		whole := true
		for _, header := range s.namesUnder("upstreams", name, "headers") {
			value, ok := env.lookupSecret("tools.upstreams."+name,
				s.toolValue("upstreams", name, "headers", header, "env").text)
			u.Headers[header], whole = value, whole && ok
		}
		if whole {
			all = append(all, u)
		}
	}
	return all
}

// llm is where calls of language models go; one whose key is missing is left
// out.
func (s settings) llm(env toolEnv) (cfg llm.Config) {
	for _, name := range s.namesUnder("llm") {
		up := &llm.Upstream{URL: s.toolValue("llm", name, "url").text}
		if variable := s.toolValue("llm", name, "key_env").text; variable != "" {
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

// toolDuration reads a value that a check has found to be a duration; 0 when it is not
// given.
func (s settings) toolDuration(path ...string) time.Duration {
	d, _ := time.ParseDuration(s.toolValue(path...).text)
	return d
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
func (s settings) missingVariables() (names []string) {
	env := toolEnv{os.Getenv, func(_, name string) { names = append(names, name) }}
	s.databases(env)
	s.upstreams(env)
	s.llm(env)
	slices.Sort(names)
	return slices.Compact(names)
}
