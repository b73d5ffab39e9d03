package doctor

import (
	"context"
	"fmt"
	"maps"
	"os/exec"
	"slices"
	"strings"

	"github.com/picket-dev/picket/budget"
	"github.com/picket-dev/picket/cmd/picket/cli"
	"github.com/picket-dev/picket/cmd/picket/cli/exit"
	"github.com/picket-dev/picket/cmd/picket/cli/term"
	"github.com/picket-dev/picket/cmd/picket/settings"
)

// priceFinding tells what the server charges for. Without prices no tool but
// the free ones can be called, which is easily taken for a fault.
func priceFinding(ctx context.Context, s *cli.Connection) Finding {
	list, err := s.Server.Prices(ctx)
	switch {
	case err != nil:
		return Finding{"prices", "warn", exit.Text(err), exit.Remedy(err)}
	case len(list.Tools) == 0 && len(list.Models) == 0:
		return Finding{"prices", "ok", "none: agents have the free tools only",
			"For more, put tools.prices into the server's picket.yaml, then kill -HUP it."}
	}
	return Finding{"prices", "ok",
		fmt.Sprintf("%d tools, %d models, version %s", len(list.Tools), len(list.Models), list.Version), ""}
}

// toolFindings are what the tools of this machine's picket.yaml lack: variables
// of the environment, programs, prices.
func toolFindings(cfg settings.Settings, missing []string) (found []Finding) {
	if len(missing) > 0 {
		found = append(found, Finding{"tools", "warn",
			"not set here: " + strings.Join(missing, ", ") +
				"; a server started in this environment leaves out what needs them",
			"export " + missing[0] + "=… before the server is started"})
	}
	for _, name := range slices.Sorted(maps.Keys(cfg.Tools.Upstreams)) {
		command := cfg.Tools.Upstreams[name].Command
		if len(command) == 0 {
			continue
		}
		if _, err := exec.LookPath(command[0]); err != nil {
			found = append(found, Finding{"tools", "warn",
				fmt.Sprintf("the MCP server %s: %s is not on PATH", name, term.ShellQuote(command[0])),
				"Install it, or name its whole path in tools.upstreams." + name + ".command."})
		}
	}
	return append(found, unpricedFindings(cfg)...)
}

// unpricedFindings are tools that are set up and cannot be called, since nobody
// has said what a call costs.
func unpricedFindings(cfg settings.Settings) (found []Finding) {
	list, err := cfg.PriceList()
	if err != nil {
		return nil
	}
	var names []string
	if len(cfg.Tools.SQL) > 0 {
		names = append(names, "sql")
	}
	if h := cfg.Tools.HTTPRequest; h.Allow != nil || h.Timeout > 0 || h.MaxBytes > 0 {
		names = append(names, "http_request")
	}
	for _, name := range names {
		if _, priced := list.Tool(name); !priced {
			found = append(found, unpricedFinding(name, name))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(cfg.Tools.Upstreams)) {
		if !pricedUnder(list, name+"_") {
			found = append(found, unpricedFinding("the tools of "+name, `"`+name+`_*"`))
		}
	}
	if l := cfg.Tools.LLM; (l.Anthropic != nil || l.OpenAI != nil) && len(list.Models) == 0 {
		found = append(found, Finding{"tools", "warn",
			"the LLM pass-through has no model with a price: every call is refused",
			`Add to tools.models in picket.yaml, such as "claude-*": {input: 3, output: 15}`})
	}
	return found
}

func unpricedFinding(what, key string) Finding {
	return Finding{"tools", "warn", what + ": no price, so every call is refused",
		"Add to tools.prices in picket.yaml: " + key + ": {call: 0.001}; {call: 0} makes it free."}
}

// pricedUnder reports whether any tool of a prefix has a price.
func pricedUnder(l *budget.PriceList, prefix string) bool {
	if _, priced := l.Tool(prefix); priced {
		return true
	}
	for name := range l.Tools {
		if strings.HasPrefix(name, prefix) {
			return true
		}
	}
	return false
}
