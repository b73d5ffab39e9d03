package settings

import (
	"strings"
	"testing"

	"github.com/picket-dev/picket/budget"
	"github.com/picket-dev/picket/cmd/picket/cli/exit"
)

// fullToolsYAML gives each key under tools a value.
const fullToolsYAML = `tools:
  prices:
    http_request: {call: 0.001, per_unit: {byte: 0.000000001}, max: 0.01, charge_on: dispatch}
    "github_*": {call: 0}
    exec: {call: $0, per_unit: {second: 0.0001, result_token: 1e-9}, max: 0.01, charge_on: success}
  models:
    claude-opus-4.5: {input: 3, output: 15, cache_read: 0.3, cache_write: 3.75}
  http_request: {allow: ["api.example.com", "127.0.0.1:8080", "[::1]:80"], timeout: 30s, max_bytes: 262144}
  sql: {main: {url_env: APP_DATABASE_URL, marks: public.fence, timeout: 10s}}
  upstreams:
    github: {url: "https://example.com/mcp", headers: {Authorization: {env: GITHUB_AUTH}}, timeout: 90s}
    files: {command: [mcp-files, --root, /srv], env: [HOME]}
  llm:
    anthropic: {url: "https://api.anthropic.com", key_env: ANTHROPIC_API_KEY}
    openai: {url: "https://api.openai.com", key_env: OPENAI_API_KEY}
`

func TestPricesOfTheFile(t *testing.T) {
	got, err := loadFile(t, fullToolsYAML)
	if err != nil {
		t.Fatal(err)
	}
	l, err := got.PriceList()
	if err != nil {
		t.Fatal(err)
	}
	if p := l.Tools["http_request"]; p.Call != 1_000_000 || p.PerUnit[budget.UnitByte] != 1 || p.Max != 10_000_000 ||
		p.ChargeOn != budget.ChargeOnDispatch {
		t.Errorf("http_request = %+v", p)
	}
	if p := l.Tools["exec"]; p.Call != 0 || p.PerUnit[budget.UnitSecond] != 100_000 ||
		p.PerUnit[budget.UnitResultToken] != 1 || p.ChargeOn != budget.ChargeOnSuccess {
		t.Errorf("exec = %+v", p)
	}
	if _, priced := l.Tools["github_*"]; !priced || len(l.Tools) != 3 {
		t.Errorf("tools = %+v", l.Tools)
	}
	if m := l.Models["claude-opus-4.5"]; m != (budget.TokenPrice{
		Input:      3e9,
		Output:     15e9,
		CacheRead:  3e8,
		CacheWrite: 375e7,
	}) {
		t.Errorf("model = %+v", m)
	}
}

func TestBadTools(t *testing.T) {
	for file, want := range map[string]string{
		"tools: 5":                                                                 "picket.yaml:1:8: a mapping",
		"tools:\n  price: {}":                                                      `picket.yaml:2:3: there is no key "price" in tools`,
		"tools: {prices: {x: {c: 1}}}":                                             `there is no key "c" in tools.prices.x`,
		"tools: {prices: {\"a b\": {call: 1}}}":                                    "is not a name of a tool",
		"tools: {prices: {x: {call: -1}}}":                                         "tools.prices.x.call: -1 is below zero",
		"tools: {prices: {x: {call: NaN}}}":                                        "not a decimal number",
		"tools: {prices: {x: {call: .nan}}}":                                       "a single value is expected",
		"tools: {prices: {x: {call: 1e400}}}":                                      "tools.prices.x.call",
		"tools: {prices: {x: {call: 0.0000000001}}}":                               "more than nine decimals",
		"tools: {prices: {x: {call: }}}":                                           "a value is expected",
		"tools: {prices: {x: {}}}":                                                 "picket.yaml:1:18: tools.prices.x has no price",
		"tools: {prices: {x: {call: 1, per_unit: {byte: 1}}}}":                     "per_unit and no max",
		"tools: {prices: {x: {call: 1, per_unit: {inch: 1}, max: 2}}}":             "not one of byte, second, result_token",
		"tools: {prices: {x: {call: 2, max: 1}}}":                                  "max is below its call",
		"tools: {prices: {x: {call: 2, charge_on: whim}}}":                         "not one of dispatch, success",
		"tools:\n  prices: {x: {call: 1}}\n  prices: {x: {call: 1}}":               `picket.yaml:3:3: mapping key "prices" already defined`,
		"tools: {prices: {x: {call: 1}}}\n---\ntools: {prices: {y: {call: 1}}}":    "picket.yaml:3:9: tools.prices is there already, at picket.yaml:1:9",
		"tools: {models: {m: {input: 1}}}":                                         "tools.models.m needs output",
		"tools: {http_request: {allow: [http://x]}}":                               "neither a host nor host:port",
		"tools: {http_request: {timeout: 121s}}":                                   "1s to 120s",
		"tools: {sql: {main: {url: postgres://u:p@h/d}}}":                          `there is no key "url" in tools.sql.main`,
		"tools: {sql: {main: {url_env: postgres://u:p@h/d}}}":                      "secrets do not stand in this file",
		"tools: {sql: {main: {}}}":                                                 "needs url_env",
		"tools: {upstreams: {u: {}}}":                                              "either url or command",
		"tools: {upstreams: {u: {url: 'http://x', command: [y]}}}":                 "either url or command",
		"tools: {upstreams: {u: {command: [y], headers: {A: {env: B}}}}}":          "no meaning with command",
		"tools: {upstreams: {u: {url: 'http://x', env: [A]}}}":                     "no meaning with url",
		"tools: {upstreams: {u: {url: 'http://x', headers: {A: Bearer hunter2}}}}": "a mapping",
		"tools: {upstreams: {u: {url: 'http://x', headers: {A: {}}}}}":             "the header A needs env",
		"tools: {upstreams: {u-v: {command: [y]}}}":                                "is not a name of an upstream",
		"tools: {upstreams: {llm: {command: [y]}}}":                                "tools.upstreams.llm: the names of its tools would begin",
		"tools:\n  upstreams:\n    a_b: {command: [y]}\n    a: {command: [y]}":     "picket.yaml:3:5: tools.upstreams.a_b: the upstreams a and a_b could both",
		"tools: {llm: {gemini: {}}}":                                               `there is no key "gemini" in tools.llm`,
		"budget: {house: {usd: -1}}":                                               "budget.house.usd (from picket.yaml:1:18): -1 is below zero",
		"budget: {hose: {usd: 1}}":                                                 `there is no key "budget.hose"`,
		"budget: {default: {tokens: 1.5}}":                                         "not a whole number of tokens",
		"budget: {default: {tokens: 99999999999999}}":                              "tokens are at most",
		"budget: 5": "picket.yaml:1:9: a mapping",
	} {
		_, err := loadFile(t, file)
		if err == nil || !strings.Contains(err.Error(), want) || exit.Code(err) != exit.Usage {
			t.Errorf("%q: %v (exit code %d), want %q", file, err, exit.Code(err), want)
		}
		if err != nil && strings.Contains(err.Error(), "hunter2") {
			t.Errorf("a secret is printed: %v", err)
		}
	}
	for file, want := range map[string]string{
		"tools: {price: {}}":                  `Did you mean "prices"`,
		"tools: {prices: {x: {chargeon: 1}}}": `Did you mean "charge_on"`,
		"budget: {house: {token: 1}}":         `Did you mean "budget.house.tokens"`,
		"tools: {prices: {x: {max: 1}}}":      "a free tool has call: 0",
		"tool: {}":                            `Did you mean "tools"`,
	} {
		if _, err := loadFile(t, file); !strings.Contains(exit.Remedy(err), want) {
			t.Errorf("%q: %v, fix: %s; want %q", file, err, exit.Remedy(err), want)
		}
	}
}
