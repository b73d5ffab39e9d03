package toolproxy

import (
	_ "embed"
	"net/http"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/labstack/echo/v4"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/internal/web"
)

// Tool is how a tool is listed: a name, a description written for a model, and
// the JSON schema of its input.
type Tool struct {
	Name        string         `json:"name"`
	Description string         `json:"description"`
	InputSchema jsontext.Value `json:"inputSchema"`
}

//go:embed tools.json
var toolsJSON []byte

// tools are listed in the order in which an agent usually needs them.
var tools = func() (list []Tool) {
	if err := json.Unmarshal(toolsJSON, &list, json.RejectUnknownMembers(true)); err != nil {
		panic("toolproxy: tools.json: " + err.Error())
	}
	return list
}()

// Tools lists the tools of this version.
func Tools() []Tool { return append([]Tool(nil), tools...) }

// binding is what a call of a tool does.
type binding struct {
	write bool // a refusal is recorded
	call  func(c echo.Context, door Door, held picket.Held) (any, error)
}

var bindings = map[string]binding{
	"get_task":           {false, getTask},
	"report_progress":    {true, reportProgress},
	"request_human_help": {true, requestHumanHelp},
	"mark_complete":      {true, markComplete},
	"mark_failed":        {true, markFailed},
}

// laterTools are refused by name, with what they will need.
var laterTools = map[string]string{
	"delegate_subtask": "delegation",
	"await_subtask":    "delegation",
	"review_subtask":   "delegation",
	"await_top_up":     "metered budgets",
	"exec":             "metered tools",
	"http_request":     "metered tools",
	"sql":              "metered tools",
}

type toolList struct {
	Tools []Tool `json:"tools"`
}

func listTools(_ *Proxy, c echo.Context, _ Door, _ picket.Held) error {
	return web.JSON(c, http.StatusOK, toolList{tools})
}

func callTool(p *Proxy, c echo.Context, door Door, held picket.Held) error {
	name := c.Param("name")
	b, ok := bindings[name]
	if !ok {
		return noTool(name)
	}
	answer, err := b.call(c, door, held)
	if err != nil {
		if b.write {
			p.recordRefusal(c, door, held, name, err)
		}
		return err
	}
	return web.JSON(c, http.StatusOK, answer)
}

func noTool(name string) error {
	names := make([]string, len(tools))
	for i, t := range tools {
		names[i] = t.Name
	}
	if subject, ok := laterTools[name]; ok {
		return picket.Refuse(picket.CodeNotAvailable, "Do without it. The tools are: "+joined(names)+".",
			"the tool %s needs %s, which this version does not have yet", name, subject).With("tool", name).With("subject", subject)
	}
	return picket.Refuse(picket.CodeNotFound, "Call one of: "+joined(names)+".", "there is no tool %q", clip(name)).With("tools", names)
}
