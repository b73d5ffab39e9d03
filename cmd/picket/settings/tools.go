package settings

import (
	"maps"
	"slices"
	"time"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/budget"
	"github.com/picket-dev/picket/cmd/picket/cli/exit"
)

// Tools are the tools that exist in addition to the free ones, and the prices of calls. No secret
// stands in the file: keys that end in env name a variable of the server's environment.
// The fields are sorted by their keys.
type Tools struct {
	HTTPRequest struct {
		Allow    []string      `yaml:"allow" check:"allowed" doc:"The hosts, or host:port, that may be called."`
		MaxBytes int64         `yaml:"max_bytes" check:"count" doc:"How many bytes of an answer are read."`
		Timeout  time.Duration `yaml:"timeout" check:"call_time" doc:"How long a call may take."`
	} `yaml:"http_request"`
	LLM struct {
		Anthropic *LLMUpstream `yaml:"anthropic"`
		OpenAI    *LLMUpstream `yaml:"openai"`
	} `yaml:"llm"`
	Models    map[string]ModelPrice `yaml:"models"`
	Prices    map[string]ToolPrice  `yaml:"prices" name:"price"`
	SQL       map[string]Database   `yaml:"sql" name:"short"`
	Upstreams map[string]Upstream   `yaml:"upstreams" name:"upstream"`
}

// LLMUpstream is the API of a vendor of language models.
type LLMUpstream struct {
	KeyEnv string `yaml:"key_env" check:"env" doc:"The variable of the server's environment that holds the key."`
	URL    string `yaml:"url" check:"url" doc:"The URL of the API."`
}

// ModelPrice is what a model costs. Input and Output are required.
type ModelPrice struct {
	CacheRead  budget.Money  `yaml:"cache_read" check:"dollars" doc:"The dollars for a million tokens read from the cache. The default is the price of input."`
	CacheWrite budget.Money  `yaml:"cache_write" check:"dollars" doc:"The dollars for a million tokens written to the cache. The default is the price of input."`
	Input      *budget.Money `yaml:"input" check:"dollars" doc:"The dollars for a million input tokens."`
	Output     *budget.Money `yaml:"output" check:"dollars" doc:"The dollars for a million output tokens."`
}

// ToolPrice is what a call of a tool costs. One of Call and PerUnit is required.
type ToolPrice struct {
	Call     *budget.Money                `yaml:"call" check:"dollars" doc:"The dollars for a call."`
	ChargeOn budget.ChargeOn              `yaml:"charge_on" check:"charge_on" doc:"dispatch: every call that was sent costs. success: only a call that did not fail costs."`
	Max      *budget.Money                `yaml:"max" check:"dollars" doc:"The most dollars that a call costs. They are reserved before it; per_unit needs them."`
	PerUnit  map[budget.Unit]budget.Money `yaml:"per_unit" name:"unit" check:"dollars" doc:"The dollars for each byte of the answer, second of the call or token of the result."`
}

// Database is a Postgres database of the tool sql. URLEnv is required.
type Database struct {
	Marks   string        `yaml:"marks" check:"table" doc:"The table of the high-water marks."`
	Timeout time.Duration `yaml:"timeout" check:"call_time" doc:"How long a call may take."`
	URLEnv  string        `yaml:"url_env" check:"env" doc:"The variable of the server's environment that holds the URL."`
}

// Upstream is an MCP server. It is reached by its URL or started by its command.
type Upstream struct {
	Command []string          `yaml:"command" check:"argument" doc:"The program and arguments of an MCP server that speaks over its standard streams."`
	Env     []string          `yaml:"env" check:"env" doc:"The names of variables that the command gets in addition to the usual ones."`
	Headers map[string]Header `yaml:"headers" name:"header"`
	Timeout time.Duration     `yaml:"timeout" check:"call_time" doc:"How long a call of one of its tools may take."`
	URL     string            `yaml:"url" check:"url" doc:"The URL of an MCP server."`
}

// Header is an HTTP header that an MCP server gets.
type Header struct {
	Env string `yaml:"env" check:"env" doc:"The variable of the server's environment that holds the value."`
}

// PriceList checks what depends on more than one key under tools, and returns the prices.
func (s Settings) PriceList() (*budget.PriceList, error) {
	tools, models := map[string]budget.Price{}, map[string]budget.TokenPrice{}
	for _, name := range slices.Sorted(maps.Keys(s.Tools.Prices)) {
		p := s.Tools.Prices[name]
		if err := s.checkPrice(name, p); err != nil {
			return nil, err
		}
		tools[name] = budget.Price{Call: orZero(p.Call), PerUnit: p.PerUnit, Max: orZero(p.Max), ChargeOn: p.ChargeOn}
	}
	for _, name := range slices.Sorted(maps.Keys(s.Tools.Models)) {
		m := s.Tools.Models[name]
		for i, price := range []*budget.Money{m.Input, m.Output} {
			if price == nil {
				return nil, exit.Usagef("%s: tools.models.%s needs %s: dollars a million tokens",
					s.toolOrigin("models", name), name, []string{"input", "output"}[i])
			}
		}
		models[name] = budget.TokenPrice{
			Input: *m.Input, Output: *m.Output, CacheRead: m.CacheRead, CacheWrite: m.CacheWrite,
		}
	}
	if err := s.checkUpstreams(); err != nil {
		return nil, err
	}
	for _, name := range slices.Sorted(maps.Keys(s.Tools.SQL)) {
		if s.Tools.SQL[name].URLEnv == "" {
			return nil, exit.Usagef("%s: tools.sql.%s needs url_env, the variable that holds the database's URL",
				s.toolOrigin("sql", name), name)
		}
	}
	list, err := budget.NewPriceList(tools, models)
	if err != nil {
		return nil, exit.Usagef("tools: %v", err)
	}
	return list, nil
}

func orZero(m *budget.Money) budget.Money {
	if m == nil {
		return 0
	}
	return *m
}

func (s Settings) toolOrigin(path ...string) string {
	return s.values[keyOf(append([]string{"tools"}, path...))].Origin
}

// checkPrice makes sure that the most that a call may cost is known before it is made.
func (s Settings) checkPrice(name string, p ToolPrice) error {
	where := s.toolOrigin("prices", name)
	switch {
	case p.Call == nil && len(p.PerUnit) == 0:
		return picket.Refuse(exit.CodeUsage, "Give call, such as call: 0.001; a free tool has call: 0.",
			"%s: tools.prices.%s has no price", where, name)
	case len(p.PerUnit) > 0 && p.Max == nil:
		return picket.Refuse(exit.CodeUsage,
			"Give max: what a call uses is not known before it is made, and max is what is reserved.",
			"%s: tools.prices.%s has per_unit and no max", where, name)
	case p.Max != nil && *p.Max < orZero(p.Call):
		return exit.Usagef("%s: tools.prices.%s.max is below its call", s.toolOrigin("prices", name, "max"), name)
	}
	return nil
}

func (s Settings) checkUpstreams() error {
	names := slices.Sorted(maps.Keys(s.Tools.Upstreams))
	for _, name := range names {
		u, where := s.Tools.Upstreams[name], s.toolOrigin("upstreams", name)
		byURL, started := u.URL != "", len(u.Command) > 0
		switch {
		case byURL == started:
			return picket.Refuse(exit.CodeUsage,
				"url is where an MCP server listens; command starts one that speaks over its standard streams.",
				"%s: tools.upstreams.%s needs either url or command", where, name)
		case started && len(u.Headers) > 0:
			return exit.Usagef("%s: tools.upstreams.%s: headers have no meaning with command", where, name)
		case byURL && u.Env != nil:
			return exit.Usagef("%s: tools.upstreams.%s: env has no meaning with url", where, name)
		}
		for _, h := range slices.Sorted(maps.Keys(u.Headers)) {
			if u.Headers[h].Env == "" {
				return exit.Usagef("%s: the header %s needs env, the variable that holds its value",
					s.toolOrigin("upstreams", name, "headers", h), h)
			}
		}
	}
	if name, why := picket.CheckUpstreamNames(names); why != nil {
		return picket.Refuse(exit.CodeUsage,
			"Choose another name for it; prices and agents know its tools by that name.",
			"%s: tools.upstreams.%s: %v", s.toolOrigin("upstreams", name), name, why)
	}
	return nil
}
