package main

import (
	"net/http"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/spf13/cobra"

	"github.com/picket-dev/picket/adapter"
	"github.com/picket-dev/picket/budget"
	"github.com/picket-dev/picket/cmd/picket/cli/term"
)

// toolInfo is one line of GET /v1/tools.
type toolInfo struct {
	Name        string         `json:"name"`
	Description string         `json:"description"`
	InputSchema jsontext.Value `json:"inputSchema"`
	Price       *budget.Price  `json:"price"` // nil: free, as a part of holding the lease
}

func fetchTools(cmd *cobra.Command, proxy *adapter.Client) ([]toolInfo, error) {
	var page struct {
		Tools []toolInfo `json:"tools"`
	}
	err := retryUnanswered(cmd.Context(), toolPatience, cmd.ErrOrStderr(), func() error {
		return proxy.Call(cmd.Context(), http.MethodGet, "/v1/tools", nil, &page)
	})
	return page.Tools, err
}

func newToolList() *cobra.Command {
	return term.FormatFlag(&cobra.Command{
		Use:     "list",
		Aliases: []string{"ls"},
		Short:   "List the tools of this run, and what a call costs",
		Args:    checkArgs(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			format, err := term.FormatOf(cmd)
			if err != nil {
				return err
			}
			proxy, err := proxyFromEnvironment()
			if err != nil {
				return err
			}
			return listTools(cmd, proxy, format)
		},
	})
}

func listTools(cmd *cobra.Command, proxy *adapter.Client, format string) error {
	all, err := fetchTools(cmd, proxy)
	if err != nil {
		return err
	}
	return term.PrintItems(cmd, format, all, []term.Column[toolInfo]{
		{Head: "TOOL", Cell: func(t toolInfo) string { return t.Name }},
		{Head: "PRICE", Cell: func(t toolInfo) string {
			if t.Price == nil {
				return "free"
			}
			return priceText(*t.Price)
		}},
		{Head: "DOES", Cell: func(t toolInfo) string { return term.Clip(t.Description, 100) }},
	}, func(t toolInfo) string { return t.Name })
}

// withoutEstimate takes the flag that is ours from among a tool's fields.
func withoutEstimate(rest []string) (fields []string, given bool) {
	for i, arg := range rest {
		if arg == "--estimate" && (i == 0 || !isField(rest[i-1])) {
			return slices.Concat(rest[:i], rest[i+1:]), true
		}
	}
	return rest, false
}

// isField reports whether an argument is a field that still needs its value.
func isField(arg string) bool { return strings.HasPrefix(arg, "--") && !strings.Contains(arg, "=") }
