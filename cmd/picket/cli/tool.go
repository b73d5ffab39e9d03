package cli

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/spf13/cobra"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/budget"
	"github.com/picket-dev/picket/client"
	"github.com/picket-dev/picket/cmd/picket/cli/exit"
	"github.com/picket-dev/picket/cmd/picket/cli/term"
)

// NewTool is `picket tool`: the tools of the run that this process belongs to.
func NewTool() *cobra.Command {
	c := &cobra.Command{
		Use:   "tool [NAME] [INPUT ...]",
		Short: "Call a tool from inside a run (for agents)",
		Long: "Call a tool with the lease in the environment. In this way a script, or an agent without MCP,\n" +
			"reports, asks and hands in its result. INPUT is one JSON object, or --field value pairs. A\n" +
			"repeated --field makes a list. Dashes become camelCase, so --next-step is nextStep. Without a\n" +
			"name the tools are listed. --idempotency-key makes it safe to repeat a call. A call that the\n" +
			"server did not answer is repeated for 10 s. --estimate prints what the call would reserve, and\n" +
			"does not make it. Exit code 5: the budget does not cover the call.",
		Example: `  picket tool report_progress --summary "tests written" --next-step "make them pass"
  picket tool request_human_help --question "Which database?" --options staging --options live
  picket tool mark_complete '{"output":{"tests":12}}'
  picket tool call http_request --url https://api.example.com/ --estimate`,
		Args:               cobra.ArbitraryArgs,
		DisableFlagParsing: true, // the fields are the tool's, not ours
		RunE:               func(cmd *cobra.Command, given []string) error { return runTool(cmd, given) },
		ValidArgsFunction:  completeTool,
	}
	c.AddCommand(newToolList(), newToolCall())
	return c
}

// newToolCall is the same under a name that no tool can have taken.
func newToolCall() *cobra.Command {
	return &cobra.Command{
		Use:                "call NAME [INPUT ...]",
		Short:              "Call a tool; --estimate only prints what it would cost",
		DisableFlagParsing: true,
		Long: "The same as picket tool NAME [INPUT ...]. --estimate prints what the call would reserve, which\n" +
			"is the most that it can cost, and does not make it.",
		Example: "  picket tool call http_request --url https://api.example.com/ --estimate\n  picket tool call mark_complete '{\"output\":{\"tests\":12}}'",
		RunE: func(cmd *cobra.Command, given []string) error {
			if len(given) == 0 {
				return picket.Refuse(exit.CodeUsage, "See which there are: picket tool list",
					"the name of a tool is missing")
			}
			return runTool(cmd, given)
		},
		ValidArgsFunction: completeTool,
	}
}

func runTool(cmd *cobra.Command, given []string) error {
	for _, g := range given {
		if g == "--help" || g == "-h" {
			return cmd.Help()
		}
	}
	proxy, err := proxyFromEnvironment()
	if err != nil {
		return err
	}
	if len(given) == 0 {
		return listTools(cmd, proxy, "table")
	}
	return callTool(cmd, proxy, given[0], given[1:])
}

// proxyFromEnvironment is the tool proxy as the lease in the environment sees it, or the session capability.
func proxyFromEnvironment() (*client.Client, error) {
	base := os.Getenv("PICKET_PROXY_URL")
	token := cmp.Or(os.Getenv("PICKET_LEASE_TOKEN"), os.Getenv("PICKET_SESSION_CAPABILITY"))
	if base == "" || token == "" {
		return nil, picket.Refuse(exit.CodeUsage,
			"Run it inside an agent: picket run -- sh -c 'picket tool report_progress --summary hello'",
			"there is no lease in the environment, and no session capability "+
				"(PICKET_PROXY_URL, and PICKET_LEASE_TOKEN or PICKET_SESSION_CAPABILITY)")
	}
	return client.New(base, picket.Secret(token), client.Options{}), nil
}

// newTaskNext is `picket task next`, the tool next_task for people who read its answer.
func newTaskNext() *cobra.Command {
	return &cobra.Command{
		Use:   "next",
		Short: "Ask for a task from inside an agent session (for agents)",
		Long: "Ask for a task with the session capability in the environment. If a task waits, the turn is\n" +
			"reserved: when the prompt is answered, the agent is started again with the task and its lease.\n" +
			"The command itself gives no task. picket tool next_task prints the answer as JSON.",
		Args: CheckArgs(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if os.Getenv("PICKET_SESSION_CAPABILITY") == "" || os.Getenv("PICKET_PROXY_URL") == "" {
				return picket.Refuse(exit.CodeUsage, "Run it inside an agent session. To see what waits: picket task list",
					"there is no session capability in the environment (PICKET_PROXY_URL and PICKET_SESSION_CAPABILITY)")
			}
			proxy := client.New(os.Getenv("PICKET_PROXY_URL"), picket.Secret(os.Getenv("PICKET_SESSION_CAPABILITY")),
				client.Options{})
			var next picket.NextTask
			err := RetryUnanswered(cmd.Context(), ToolPatience, cmd.ErrOrStderr(), func() error {
				return proxy.Call(cmd.Context(), http.MethodPost, "/v1/tools/next_task", struct{}{}, &next)
			})
			if err != nil {
				return err
			}
			text := map[picket.NextTaskReason]string{
				"":                      "The turn is reserved. End this prompt: you are started again with a task.",
				picket.NextTaskNone:     "No task waits that you would get.",
				picket.NextTaskBusy:     "You work on as many tasks as you may.",
				picket.NextTaskDraining: "You take no more tasks: the worker drains.",
			}[next.Reason]
			fmt.Fprintln(cmd.OutOrStdout(), cmp.Or(text, string(next.Reason)))
			return nil
		},
	}
}

// fencingHeader presents the token this process was started under. The lease token
// alone would do; both together name the refusal precisely.
func fencingHeader() client.Option {
	return client.WithHeader("X-Fencing-Token", os.Getenv("PICKET_FENCING_TOKEN"))
}

func callTool(cmd *cobra.Command, proxy *client.Client, name string, rest []string) error {
	var opts []client.Option
	if os.Getenv("PICKET_FENCING_TOKEN") != "" {
		opts = append(opts, fencingHeader())
	}
	rest, estimate := withoutEstimate(rest)
	if estimate {
		opts = append(opts, client.WithHeader(picket.EstimateHeader, "true"))
	}
	input, once, err := toolInput(cmd, proxy, name, rest)
	if err != nil {
		return err
	}
	// One key for all attempts makes a repeated report one report; the other
	// tools know a repetition by its content.
	opts = append(opts, client.WithIdempotencyKey(cmp.Or(once, rand.Text())))
	var answer []byte
	err = RetryUnanswered(cmd.Context(), ToolPatience, cmd.ErrOrStderr(), func() error {
		return proxy.Call(cmd.Context(), http.MethodPost, "/v1/tools/"+url.PathEscape(name), input, nil,
			append(opts, client.WithBody(&answer))...)
	})
	if err != nil {
		return err
	}
	return term.PrintValue(cmd.OutOrStdout(), "json", answer)
}

// toolInput is the JSON that was given, or one made of --field value pairs
// according to the tool's own schema.
func toolInput(cmd *cobra.Command, proxy *client.Client, name string,
	rest []string) (input jsontext.Value, once string, err error) {
	fields, once, err := toolFields(rest)
	if err != nil || (len(fields) == 0 && len(rest) == 0) {
		return jsontext.Value("{}"), once, err
	}
	if len(fields) == 1 && fields[0].name == "" {
		raw, err := jsonArgument(cmd, "the input", fields[0].text)
		if err == nil && jsontext.Value(raw).Kind() != '{' {
			err = exit.Usagef("the input of a tool is a JSON object, such as '{\"summary\":\"…\"}'")
		}
		return jsontext.Value(raw), once, err
	}
	all, err := fetchTools(cmd, proxy)
	if err != nil {
		return nil, once, err
	}
	var schema toolSchema
	for _, t := range all {
		if t.Name == name {
			_ = json.Unmarshal(t.InputSchema, &schema)
		}
	}
	object := map[string]any{}
	for _, f := range fields {
		if err := schema.set(object, f); err != nil {
			return nil, once, err
		}
	}
	b, err := json.Marshal(object, json.Deterministic(true))
	return b, once, err
}

// toolField is one --name value pair; the JSON input has no name.
type toolField struct {
	name string
	text string
}

// toolFields splits the arguments after the tool's name.
func toolFields(rest []string) (fields []toolField, once string, err error) {
	for i := 0; i < len(rest); i++ {
		arg, isFlag := strings.CutPrefix(rest[i], "--")
		if !isFlag {
			fields = append(fields, toolField{"", rest[i]})
			continue
		}
		name, text, joined := strings.Cut(arg, "=")
		if !joined {
			if i++; i >= len(rest) {
				return nil, "", exit.Usagef("--%s needs a value", name)
			}
			text = rest[i]
		}
		if name == "idempotency-key" {
			once = text
			continue
		}
		fields = append(fields, toolField{camelCase(name), text})
	}
	for _, f := range fields {
		if f.name == "" && len(fields) > 1 {
			return nil, "", exit.Usagef("give either one JSON object or --field value pairs, not %q together with others",
				f.text)
		}
	}
	return fields, once, nil
}

// camelCase writes next-step and next_step as nextStep.
func camelCase(name string) string {
	parts := strings.FieldsFunc(name, func(r rune) bool { return r == '-' || r == '_' })
	for i := 1; i < len(parts); i++ {
		parts[i] = strings.ToUpper(parts[i][:1]) + parts[i][1:]
	}
	return strings.Join(parts, "")
}

// toolSchema is as much of a JSON schema as typed fields need.
type toolSchema struct {
	Properties map[string]struct {
		Type  jsontext.Value `json:"type"`
		Items struct {
			Type string `json:"type"`
		} `json:"items"`
	} `json:"properties"`
}

// set puts one field into the input. Text stays text where the schema wants
// text, so that a summary of 123 is not a number.
func (s toolSchema) set(object map[string]any, f toolField) error {
	p := s.Properties[f.name]
	kind := string(p.Type)
	switch {
	case kind == `"string"`:
		object[f.name] = f.text
	case kind == `"array"`:
		if v := jsontext.Value(f.text); v.Kind() == '[' && v.IsValid() {
			object[f.name] = v
			return nil
		}
		list, _ := object[f.name].([]any)
		var item any = f.text
		if p.Items.Type != "string" {
			v := jsontext.Value(f.text)
			if !v.IsValid() {
				return exit.Usagef("--%s: %q is not JSON, and the tool wants a list of %ss", f.name, f.text,
					p.Items.Type)
			}
			item = v
		}
		object[f.name] = append(list, item)
	default:
		object[f.name] = f.text
		if v := jsontext.Value(f.text); len(f.text) > 0 && v.IsValid() {
			object[f.name] = v
		}
	}
	return nil
}

func completeTool(cmd *cobra.Command, given []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
	if len(given) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	proxy, err := proxyFromEnvironment()
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	all, _ := fetchTools(cmd, proxy)
	var names []cobra.Completion
	for _, t := range all {
		names = append(names, cobra.CompletionWithDesc(t.Name, term.Clip(t.Description, 60)))
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

// toolInfo is one line of GET /v1/tools.
type toolInfo struct {
	Name        string         `json:"name"`
	Description string         `json:"description"`
	InputSchema jsontext.Value `json:"inputSchema"`
	Price       *budget.Price  `json:"price"` // nil: free, as a part of holding the lease
}

func fetchTools(cmd *cobra.Command, proxy *client.Client) ([]toolInfo, error) {
	var page struct {
		Tools []toolInfo `json:"tools"`
	}
	err := RetryUnanswered(cmd.Context(), ToolPatience, cmd.ErrOrStderr(), func() error {
		return proxy.Call(cmd.Context(), http.MethodGet, "/v1/tools", nil, &page)
	})
	return page.Tools, err
}

func newToolList() *cobra.Command {
	return term.FormatFlag(&cobra.Command{
		Use:     "list",
		Aliases: []string{"ls"},
		Short:   "List the tools of this run, and what a call costs",
		Args:    CheckArgs(cobra.NoArgs),
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

func listTools(cmd *cobra.Command, proxy *client.Client, format string) error {
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

// ToolPatience is how long a tool call is begun again: longer than a store takes
// to be started and adopted, shorter than what holds an agent up.
const ToolPatience = 10 * time.Second

// RetryUnanswered repeats a call that nobody answered, until patience runs out. The
// call must be harmless to repeat.
func RetryUnanswered(ctx context.Context, patience time.Duration, w io.Writer, call func() error) error {
	said := false
	for began, wait := time.Now(), 100*time.Millisecond; ; wait = min(2*wait, 2*time.Second) {
		err := call()
		if !isUnanswered(err) {
			return err
		}
		pause := max(wait, retryDelay(err))
		if time.Since(began)+pause > patience {
			return err
		}
		if !said {
			said = true
			fmt.Fprintf(w, "picket: %s; trying again for %s\n", term.OneLine(exit.Text(err)), patience)
		}
		if Sleep(ctx, pause) != nil {
			return err
		}
	}
}

// isUnanswered reports whether the call may work unchanged in a moment.
func isUnanswered(err error) bool {
	return errors.Is(err, picket.CodeUnavailable) || errors.Is(err, picket.CodeRateLimited) ||
		errors.Is(err, picket.ErrUnknown)
}

func retryDelay(err error) time.Duration {
	var e *picket.Error
	if errors.As(err, &e) {
		return e.RetryAfter
	}
	return 0
}
