package rig

import (
	"bytes"
	"cmp"
	stdjson "encoding/json"
	"errors"
	"flag"
	"fmt"
	"go/parser"
	"go/token"
	"io"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/picket-dev/picket"

// anyImport marks a package that may import whatever it needs.
var anyImport = []string{"*"}

// proofImports is what a proof suite of the engine may name.
var proofImports = []string{
	"picket", "budget", "orchestrator", "orchestrator/eventlog", "orchestrator/store", "orchestrator/lua",
	"orchestrator/heartbeat", "orchestrator/mirror", "orchestrator/proof/...",
	"internal/rig/...", "internal/seal", "github.com/redis/go-redis/v9/...", "github.com/go-json-experiment/json/...",
	"github.com/anishathalye/porcupine", "github.com/oklog/ulid/v2", "github.com/yuin/gopher-lua/...",
	"go.uber.org/goleak", "pgregory.net/rapid",
}

// mayImport is the import table: a package and what its code may name in addition to the
// standard library. An entry ending in /... covers a whole module or folder;
// "picket" is the root package, other entries without a dot are folders here.
// A package without a row is a failure: decide first what it may import.
var mayImport = map[string][]string{
	"picket": {"budget", "github.com/go-json-experiment/json/..."},
	"budget": {"github.com/shopspring/decimal"},
	"orchestrator": {"picket", "budget", "orchestrator/eventlog", "orchestrator/store", "orchestrator/heartbeat",
		"orchestrator/mirror", "internal/seal", "internal/text",
		"github.com/redis/go-redis/v9/...", "github.com/oklog/ulid/v2",
		"github.com/go-json-experiment/json/..."},
	"orchestrator/store": {"picket", "budget", "orchestrator/lua", "internal/text",
		"github.com/redis/go-redis/v9/...", "internal/files", "golang.org/x/sync/singleflight",
		"github.com/vmihailenco/msgpack/v5/...", "github.com/oklog/ulid/v2", "github.com/go-json-experiment/json/..."},
	"orchestrator/eventlog": {"picket", "github.com/redis/go-redis/v9/...", "github.com/go-json-experiment/json/..."},
	"orchestrator/heartbeat": {"picket", "budget", "internal/text", "github.com/goccy/go-yaml/...",
		"github.com/go-json-experiment/json/..."},
	"orchestrator/mirror": {"picket", "orchestrator/heartbeat"},
	"orchestrator/lua":    nil, // the scripts, embedded
	// The proof suites; everything in them is for tests.
	"orchestrator/proof/attacks":  proofImports,
	"orchestrator/proof/branches": proofImports,
	"orchestrator/proof/calls": slices.Concat(proofImports, []string{"orchestrator/a2a", "internal/web",
		"github.com/labstack/echo/v4/..."}),
	"orchestrator/proof/batch":       proofImports,
	"orchestrator/proof/clock":       proofImports,
	"orchestrator/proof/cost":        proofImports,
	"orchestrator/proof/crowd":       proofImports,
	"orchestrator/proof/format":      proofImports,
	"orchestrator/proof/invariants":  proofImports,
	"orchestrator/proof/kit":         proofImports,
	"orchestrator/proof/linear":      proofImports,
	"orchestrator/proof/model":       proofImports,
	"orchestrator/proof/mutants":     proofImports,
	"orchestrator/proof/replies":     proofImports,
	"orchestrator/proof/storefaults": proofImports,
	"orchestrator/proof/storeloss":   proofImports,
	"orchestrator/proof/topology":    proofImports,
	"orchestrator/a2a": {"picket", "budget", "orchestrator", "internal/sse", "internal/text", "internal/web",
		"github.com/a2aproject/a2a-go/v2/...", "github.com/labstack/echo/v4/...", "github.com/oklog/ulid/v2",
		"golang.org/x/sync/..."},
	"orchestrator/api": {"picket", "budget", "orchestrator", "orchestrator/store", "internal/sse", "internal/web",
		"docs", "github.com/labstack/echo/v4/...", "github.com/prometheus/client_golang/...",
		"github.com/go-json-experiment/json/..."},
	"orchestrator/console": {"internal/text", "picket", "budget", "internal/web", "orchestrator/console/assets",
		"orchestrator/console/attempts", "github.com/labstack/echo/v4/...",
		"github.com/go-json-experiment/json/...", "github.com/aymanbagabas/go-udiff"},
	"orchestrator/console/assets":   {"picket", "github.com/labstack/echo/v4/..."},
	"orchestrator/console/attempts": nil,
	"toolproxy": {"picket", "budget", "internal/seal", "internal/web", "internal/outbound",
		"github.com/labstack/echo/v4/...",
		"github.com/go-json-experiment/json/..."},
	"toolproxy/mcp": {"internal/text", "picket", "budget", "internal/sse", "internal/web", "internal/outbound",
		"toolproxy",
		"github.com/labstack/echo/v4/...",
		"github.com/go-json-experiment/json/...", "github.com/modelcontextprotocol/go-sdk/..."},
	"toolproxy/tools": {"picket", "budget", "internal/seal", "internal/web", "internal/outbound", "toolproxy",
		"github.com/go-json-experiment/json/...", "github.com/jackc/pgx/v5/..."},
	"toolproxy/llm": {"picket", "budget", "internal/sse", "internal/web", "internal/outbound", "toolproxy",
		"github.com/labstack/echo/v4/...", "github.com/go-json-experiment/json/..."},
	"internal/llmstub": {"internal/sse", "github.com/go-json-experiment/json/..."}, // a scripted LLM for tests
	"reaper":           {"picket"},
	"reaper/turns":     {"picket"},
	"reaper/webhooks": {"picket", "budget", "reaper/turns", "internal/outbound", "internal/text",
		"github.com/go-json-experiment/json/..."},
	"reaper/push": {"picket", "reaper/turns", "reaper/webhooks"},
	"client":      {"picket", "budget", "internal/sse", "internal/unixsocket", "github.com/go-json-experiment/json/..."},
	"adapter": {"picket", "budget", "client", "adapter/agents", "adapter/process", "adapter/renewals",
		"adapter/workspace",
		"internal/text", "internal/files", "internal/seal",
		"github.com/oklog/ulid/v2", "github.com/go-json-experiment/json/..."},
	"adapter/agents": {"picket", "budget", "internal/text", "internal/files",
		"github.com/go-json-experiment/json/..."},
	"adapter/renewals": {"picket", "client"},
	"adapter/sessions": {"picket", "adapter/agents", "adapter/process", "internal/text", "internal/files",
		"github.com/oklog/ulid/v2", "github.com/go-json-experiment/json/..."},
	"adapter/workspace": {"picket", "adapter/process", "internal/text", "internal/files", "golang.org/x/sys/...",
		"github.com/go-json-experiment/json/..."},
	"adapter/process": {"internal/files", "picket", "internal/text", "golang.org/x/sys/...",
		"github.com/go-json-experiment/json/..."},
	"adapter/adaptertest": {"picket", "budget", "internal/rig/moves",
		"github.com/go-json-experiment/json/..."},
	"internal/web": {"picket", "github.com/labstack/echo/v4/...",
		"github.com/go-json-experiment/json/...", "internal/text"},
	"internal/sse": nil, "internal/text": nil, "internal/lazyregexp": nil,
	"internal/unixsocket": nil, // URLs of servers on Unix sockets
	"internal/tracing": {"picket", "budget", "internal/text", "go.opentelemetry.io/otel/...",
		"github.com/go-logr/logr/...", "github.com/go-json-experiment/json/..."},
	"internal/seal":     {"picket"},
	"internal/files":    {"github.com/go-json-experiment/json/...", "golang.org/x/sys/..."},
	"internal/outbound": {"picket", "internal/web"},
	"internal/devredis": {"github.com/redis/go-redis/v9/...",
		"github.com/alicebob/miniredis/v2/...", "internal/files",
		"golang.org/x/sys/..."},
	"docs": nil, // documents that programs read, embedded
	"internal/conformance": {"internal/unixsocket",
		"github.com/go-json-experiment/json/..."}, // what suites of rules have in common
	"internal/rfc16": {"docs", "internal/conformance"}, // speaks HTTP with any server
	"internal/agentheartbeat": {"docs", "internal/conformance", "github.com/oklog/ulid/v2",
		"github.com/go-json-experiment/json/..."}, // speaks HTTP with a server, and executes picket
	"internal/agenttoagent": {"docs", "picket", "internal/conformance", "internal/scriptedworker", "internal/sse",
		"github.com/go-json-experiment/json/..."}, // speaks HTTP with any server
	"internal/scriptedworker": {"picket", "adapter", "client"},         // a worker without a model
	"internal/frozen":         nil,                                     // golden files of all that others can observe
	"internal/e2e":            {"github.com/a2aproject/a2a-go/v2/..."}, // tests of the binary alone
	"internal/rig":            anyImport,
	"internal/rig/contract":   {"docs", "github.com/getkin/kin-openapi/...", "github.com/go-json-experiment/json/..."},
	"internal/rig/moves":      {"picket"}, // the legal moves, against which everything is tested
	"internal/rig/cleanup":    nil,        // what a test program leaves behind
	"internal/rig/fakeagent":  {"client"}, // an agent of A2A that answers what a test says
	"internal/rig/proctest":   {"picket", "adapter/process", "internal/rig/cleanup", "go.uber.org/goleak"},
	"cmd/picket":              anyImport,
	"cmd/picket/cli/exit":     {"picket"},
	"cmd/picket/cli/taskfile": {"picket", "client", "internal/web"}, // many tasks from one file
	"cmd/picket/settings": {"picket", "budget", "adapter/agents", "adapter/workspace", "adapter/process",
		"cmd/picket/cli/exit", "cmd/picket/cli/term", "internal/devredis", "internal/outbound", "internal/text",
		"internal/unixsocket", "internal/web",
		"github.com/spf13/cobra",
		"github.com/redis/go-redis/v9/...", "github.com/goccy/go-yaml/...", "github.com/go-json-experiment/json/..."},
	"cmd/scripted-worker":    {"picket", "internal/scriptedworker"},
	"cmd/picket-conformance": {"cmd/picket-conformance/command"},
	"cmd/picket-conformance/command": {"internal/text", "picket", "internal/agentheartbeat", "internal/agenttoagent",
		"internal/conformance", "internal/rfc16",
		"cmd/picket/cli", "cmd/picket/cli/exit", "cmd/picket/cli/term",
		"github.com/spf13/cobra", "github.com/go-json-experiment/json/..."},
	"cmd/picket/cli": {"picket", "budget", "client", "adapter", "adapter/agents", "adapter/workspace",
		"charm.land/fang/v2", "cmd/picket/settings", "cmd/picket/cli/exit", "cmd/picket/cli/taskfile",
		"cmd/picket/cli/term", "internal/files", "internal/text", "internal/unixsocket",
		"github.com/spf13/cobra", "github.com/spf13/pflag", "github.com/charmbracelet/x/...",
		"github.com/go-json-experiment/json/..."},
	"cmd/picket/agentsession": {"picket", "client", "cmd/picket/cli", "cmd/picket/cli/exit", "cmd/picket/cli/term",
		"github.com/spf13/cobra", "github.com/go-json-experiment/json/..."},
	"cmd/picket/a2a": {"picket", "cmd/picket/a2a/agentclient",
		"cmd/picket/cli", "cmd/picket/cli/exit", "cmd/picket/cli/term", "internal/unixsocket",
		"github.com/a2aproject/a2a-go/v2/...", "github.com/spf13/cobra", "github.com/go-json-experiment/json/..."},
	"cmd/picket/a2a/agentclient": {"picket", "client", "cmd/picket/cli", "cmd/picket/cli/exit",
		"cmd/picket/cli/term", "internal/text", "github.com/a2aproject/a2a-go/v2/..."},
	"cmd/picket/a2a/foreign": {"picket", "budget", "client", "adapter", "adapter/process",
		"cmd/picket/a2a/agentclient", "cmd/picket/settings", "cmd/picket/cli", "cmd/picket/cli/exit",
		"cmd/picket/cli/term", "internal/files", "internal/outbound", "internal/text",
		"github.com/a2aproject/a2a-go/v2/..."},
	"cmd/picket/attach": {"picket", "budget", "client", "adapter", "adapter/agents", "adapter/sessions",
		"adapter/workspace", "cmd/picket/a2a/foreign",
		"cmd/picket/settings", "cmd/picket/cli", "cmd/picket/cli/exit", "cmd/picket/cli/term", "internal/tracing",
		"github.com/spf13/cobra", "golang.org/x/sys/...", "github.com/go-json-experiment/json/..."},
	"cmd/picket/doctor": {"picket", "budget", "adapter/agents", "adapter/process",
		"internal/devredis", "cmd/picket/a2a/foreign", "cmd/picket/settings", "cmd/picket/cli", "cmd/picket/cli/exit",
		"cmd/picket/cli/term",
		"github.com/spf13/cobra", "github.com/redis/go-redis/v9/...", "github.com/go-json-experiment/json/..."},
	"cmd/picket/demo": {"picket", "budget", "adapter/process", "internal/text",
		"cmd/picket/cli", "cmd/picket/cli/exit", "cmd/picket/cli/term",
		"github.com/spf13/cobra", "golang.org/x/sys/...", "github.com/go-json-experiment/json/..."},
	"cmd/picket/bridge": {"picket", "cmd/picket/cli", "cmd/picket/cli/exit", "cmd/picket/cli/term", "internal/sse",
		"github.com/spf13/cobra", "github.com/go-json-experiment/json/..."},
	"cmd/picket/cli/term": {"internal/text", "picket", "cmd/picket/cli/exit", "github.com/spf13/cobra",
		"github.com/goccy/go-yaml/...",
		"github.com/charmbracelet/x/...", "github.com/go-json-experiment/json/..."},
}

// mayImportInTests is what the tests of any package may name as well: test
// libraries and the rig. The tests of one package do not reach into a sibling either,
// except for testsOnEngine; what joins more packages is tested in cmd/picket.
var mayImportInTests = []string{
	"picket", "budget", "internal/rig/...", "internal/devredis", "internal/llmstub", "internal/seal", "internal/web",
	"internal/text",
	"orchestrator/lua", "orchestrator/eventlog", // read as text, and past the engine
	"adapter/adaptertest",
	"github.com/alicebob/miniredis/v2/...", "github.com/redis/go-redis/v9/...", "github.com/labstack/echo/v4/...",
	"github.com/anishathalye/porcupine", "github.com/getkin/kin-openapi/...", "github.com/rogpeppe/go-internal/...",
	"go.uber.org/goleak", "pgregory.net/rapid", "github.com/go-json-experiment/json/...",
	"github.com/goccy/go-yaml/...",
	"github.com/oklog/ulid/v2", "golang.org/x/sys/...", "github.com/prometheus/client_golang/...",
	"github.com/chromedp/chromedp/...", "github.com/chromedp/cdproto/...", // a browser
	"github.com/yuin/gopher-lua/...", // reads the scripts
	"go.opentelemetry.io/proto/otlp/...", "google.golang.org/protobuf/...",
	"google.golang.org/grpc", // a collector of traces
}

// testsOnEngine are packages that declare the methods they call: their tests from
// outside (package x_test) run against the engine that has these methods.
var testsOnEngine = []string{"client", "toolproxy", "reaper", "reaper/webhooks", "reaper/push",
	"orchestrator/a2a", "orchestrator/console"}

// deliverers deliver the push notifications that orchestrator/a2a renders. Its tests from outside may import them.
var deliverers = []string{"reaper/push", "reaper/webhooks"}

// toolproxyParts are plugged into the tool proxy. Its tests from outside may import
// them and what they import.
var toolproxyParts = []string{"toolproxy/llm", "toolproxy/mcp", "toolproxy/tools"}

// goPackage is the part of go list's answer that the table is held against.
type goPackage struct {
	ImportPath   string
	Dir          string
	Imports      []string
	TestImports  []string
	XTestImports []string
}

func TestImportsFollowTheTable(t *testing.T) {
	for _, p := range packages(t) {
		pkg := packageOf(p.ImportPath)
		if _, known := mayImport[pkg]; !known {
			t.Errorf("%s has no row in the import table: decide what it may import", pkg)
			continue
		}
		for _, imp := range p.Imports {
			if !allowed(pkg, imp, false) {
				t.Errorf("%s imports %s, which the table forbids", pkg, imp)
			}
		}
		for _, imp := range append(p.TestImports, p.XTestImports...) {
			behindAPI := pkg == "client" || pkg == "orchestrator/a2a"
			engine := imp == module+"/orchestrator" || behindAPI && imp == module+"/orchestrator/api"
			onEngine := engine && slices.Contains(testsOnEngine, pkg) &&
				!slices.Contains(p.TestImports, imp)
			ofItsPart := pkg == "toolproxy" && !slices.Contains(p.TestImports, imp) &&
				slices.ContainsFunc(toolproxyParts, func(part string) bool {
					return imp == module+"/"+part || allowed(part, imp, false)
				})
			delivers := pkg == "orchestrator/a2a" && !slices.Contains(p.TestImports, imp) &&
				slices.Contains(deliverers, strings.TrimPrefix(imp, module+"/"))
			kitOfEngine := pkg == "orchestrator" && imp == module+"/orchestrator/proof/kit" &&
				!slices.Contains(p.TestImports, imp)
			if !allowed(pkg, imp, true) && !onEngine && !ofItsPart && !delivers && !kitOfEngine {
				t.Errorf("a test of %s imports %s, which the table forbids", pkg, imp)
			}
		}
	}
}

// The table bites: each of these would be a wrong turn.
func TestForbiddenImportsAreSeen(t *testing.T) {
	for pkg, imports := range map[string][]string{
		"picket": {module + "/orchestrator", "github.com/redis/go-redis/v9"},
		"budget": {module},
		"orchestrator": {"github.com/labstack/echo/v4", module + "/toolproxy", module + "/adapter",
			module + "/orchestrator/api", module + "/orchestrator/proof/kit"},
		"orchestrator/api": {module + "/orchestrator/proof/kit", "github.com/redis/go-redis/v9", module + "/toolproxy"},
		"toolproxy": {module + "/orchestrator", "github.com/redis/go-redis/v9",
			module + "/toolproxy/llm", module + "/toolproxy/mcp", module + "/toolproxy/tools",
			"github.com/jackc/pgx/v5/pgconn", "github.com/modelcontextprotocol/go-sdk/mcp"},
		"toolproxy/llm":        {module + "/orchestrator", "github.com/redis/go-redis/v9"},
		"toolproxy/tools":      {module + "/orchestrator", module + "/toolproxy/llm"},
		"toolproxy/mcp":        {module + "/orchestrator", module + "/toolproxy/llm"},
		"orchestrator/console": {module + "/orchestrator", module + "/orchestrator/api"},
		"reaper":               {module + "/orchestrator", module + "/internal/web"},
		"reaper/webhooks": {module + "/orchestrator", module + "/orchestrator/api",
			"github.com/redis/go-redis/v9"},
		"client": {module + "/orchestrator", module + "/adapter"},
		"adapter": {module + "/orchestrator", module + "/toolproxy", "github.com/labstack/echo/v4",
			"github.com/redis/go-redis/v9"},
		"adapter/sessions": {module + "/adapter", module + "/adapter/workspace", module + "/client"},
		"adapter/agents":   {module + "/adapter", module + "/adapter/process", module + "/adapter/workspace"},
		"cmd/picket/cli": {module + "/cmd/picket/attach", module + "/cmd/picket/doctor", module + "/orchestrator",
			module + "/toolproxy"},
		"cmd/picket/attach": {module + "/cmd/picket/doctor", module + "/cmd/picket/demo", module + "/orchestrator"},
		"cmd/picket/doctor": {module + "/cmd/picket/attach", module + "/orchestrator", module + "/toolproxy"},
		"cmd/picket/a2a":    {module + "/cmd/picket/a2a/foreign", module + "/adapter"},
		"cmd/picket/a2a/agentclient": {module + "/cmd/picket/a2a", module + "/cmd/picket/a2a/foreign",
			module + "/cmd/picket/settings", module + "/adapter"},
		"cmd/picket/a2a/foreign": {module + "/cmd/picket/a2a", "github.com/spf13/cobra"},
		"adapter/process":        {module + "/adapter", module + "/adapter/agents", module + "/adapter/workspace"},
	} {
		for _, imp := range imports {
			if allowed(pkg, imp, false) {
				t.Errorf("the table lets %s import %s", pkg, imp)
			}
		}
	}
	if !allowed("cmd/picket", module+"/orchestrator", false) || !allowed("reaper", "context", false) {
		t.Error("the table forbids what it must allow")
	}
}

var update = flag.Bool("update", false, "write the import table in docs/architecture.md")

// forTests are the packages that only tests use. The document leaves them out.
var forTests = regexp.MustCompile(`^internal/(rig|e2e|frozen|llmstub)|^orchestrator/proof|adaptertest$`)

// docs/architecture.md shows the import table of all packages that are in the product.
func TestArchitectureShowsTheImportTable(t *testing.T) {
	var table strings.Builder
	for _, pkg := range slices.Sorted(maps.Keys(mayImport)) {
		if forTests.MatchString(pkg) {
			continue
		}
		var names []string
		for _, entry := range mayImport[pkg] {
			if name := documented(entry); name != "json" {
				names = append(names, name)
			}
		}
		slices.Sort(names)
		fmt.Fprintf(&table, "| %s | %s |\n", pkg, cmp.Or(strings.Join(names, ", "), "nothing else"))
	}
	DocTable(t, filepath.Join(repoRoot(t), "docs/architecture.md"),
		"| package | may import (in addition to the standard library and internal/lazyregexp) |\n|---|---|\n",
		table.String(), *update, "importdoc")
}

// documented is the name of an entry in the document: of a library its short name.
func documented(entry string) string {
	entry = strings.TrimSuffix(entry, "/...")
	if entry == "*" {
		return "everything; server packages only in wire*.go"
	}
	if first, _, _ := strings.Cut(entry, "/"); !strings.Contains(first, ".") {
		return entry
	}
	if regexp.MustCompile(`/v[0-9]+$`).MatchString(entry) {
		entry = path.Dir(entry)
	}
	switch name := path.Base(entry); name {
	case "x", "sys", "go-sdk", "client_golang": // these say little on their own
		return path.Base(path.Dir(entry)) + "/" + name
	default:
		return name
	}
}

// Every entry of the import table is used. A permission that nobody needs hides the
// import that should not have been added.
func TestEveryEntryOfTheImportTableIsUsed(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("the table covers what Linux builds")
	}
	used := map[string][]string{}
	for _, p := range packages(t) {
		pkg := packageOf(p.ImportPath)
		used[pkg] = p.Imports
		if forTests.MatchString(pkg) {
			used[pkg] = slices.Concat(p.Imports, p.TestImports, p.XTestImports)
		}
	}
	for pkg, entries := range mayImport {
		for _, entry := range entries {
			if entry != "*" && !strings.HasPrefix(pkg, "orchestrator/proof/") &&
				!slices.ContainsFunc(used[pkg], func(imp string) bool { return covers(entry, imp) }) {
				t.Errorf("the table lets %s import %s, which it does not: remove the entry", pkg, entry)
			}
		}
	}
}

// jsonNames are the names under which the two JSON libraries are imported: the strict
// one, and that of the standard library.
var jsonNames = map[string]string{"github.com/go-json-experiment/json": "json", "encoding/json": "stdjson"}

// The strict JSON library and the standard one have the same name in every file.
func TestJSONHasOneNameEach(t *testing.T) {
	eachSource(t, func(path string, text []byte) {
		if !strings.HasSuffix(path, ".go") {
			return
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, text, parser.ImportsOnly)
		if err != nil {
			t.Fatal(err)
		}
		for _, imported := range file.Imports {
			imp := strings.Trim(imported.Path.Value, `"`)
			name := imp[strings.LastIndex(imp, "/")+1:]
			if imported.Name != nil {
				name = imported.Name.Name
			}
			if want := jsonNames[imp]; want != "" && name != want {
				t.Errorf("%s imports %s as %s: name it %s", path, imp, name, want)
			}
		}
	})
}

func allowed(pkg, imp string, inTest bool) bool {
	if first, _, _ := strings.Cut(imp, "/"); !strings.Contains(first, ".") || imp == module+"/internal/lazyregexp" {
		return true // the standard library, and the regular expressions of every package
	}
	entries := mayImport[pkg]
	if inTest {
		entries = slices.Concat(entries, mayImportInTests, []string{pkg})
	}
	return slices.ContainsFunc(entries, func(entry string) bool { return covers(entry, imp) })
}

// covers tells whether an entry of the table allows an import.
func covers(entry, imp string) bool {
	name := imp
	if imp == module || strings.HasPrefix(imp, module+"/") {
		name = packageOf(imp)
	}
	tree, whole := strings.CutSuffix(entry, "/...")
	return entry == "*" || name == entry || whole && (name == tree || strings.HasPrefix(name, tree+"/"))
}

// packageOf names a package of this module by its folder; the root is "picket".
func packageOf(importPath string) string {
	if importPath == module {
		return "picket"
	}
	return strings.TrimPrefix(importPath, module+"/")
}

func packages(t *testing.T) []goPackage {
	t.Helper()
	cmd := exec.Command("go", "list", "-json=ImportPath,Dir,Imports,TestImports,XTestImports", "./...")
	cmd.Dir = repoRoot(t)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	var all []goPackage
	for dec := stdjson.NewDecoder(strings.NewReader(string(out))); ; {
		var p goPackage
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatalf("read go list: %v", err)
		}
		all = append(all, p)
	}
	if len(all) < 3 {
		t.Fatalf("go list found %d packages only", len(all))
	}
	return all
}

// repoRoot is the folder that holds go.mod.
func repoRoot(t *testing.T) string {
	t.Helper()
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(root, "go.mod")); err != nil {
		t.Fatal(err)
	}
	return root
}

// The paths of the API are written down in three places: the server, the client, and the
// suites that speak HTTP with any server. All other code uses the client.
func TestPathsOfTheAPIAreInTheClient(t *testing.T) {
	folders := []string{"client/", "orchestrator/api/", "internal/agentheartbeat/", "internal/conformance/",
		"internal/rfc16/", "adapter/adaptertest/"}
	seen := 0
	eachSource(t, func(path string, text []byte) {
		if !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return
		}
		has := bytes.Contains(text, []byte(`"/api/v1`)) || bytes.Contains(text, []byte("`/api/v1"))
		known := slices.ContainsFunc(folders, func(folder string) bool { return strings.HasPrefix(path, folder) })
		if has && known {
			seen++
		}
		if has && !known {
			t.Errorf("%s names a path of the API: call it through package client", path)
		}
	})
	if seen < len(folders) {
		t.Errorf("only %d files name paths of the API: the search finds too little", seen)
	}
}
