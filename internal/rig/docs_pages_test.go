package rig

import (
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/internal/rig/moves"
)

// documentPages returns the path of each Markdown page for people, below the root.
func documentPages(t *testing.T) (pages []string) {
	t.Helper()
	root := repoRoot(t)
	err := fs.WalkDir(os.DirFS(root), "docs", func(path string, entry fs.DirEntry, err error) error {
		if err == nil && filepath.Ext(path) == ".md" {
			pages = append(pages, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return append(pages, "README.md", "CONTRIBUTING.md")
}

func readPage(t *testing.T, page string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(repoRoot(t), page))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

var (
	codeBlock    = regexp.MustCompile("(?ms)^```.*?^```$")
	inlineCode   = regexp.MustCompile("`[^`]*`")
	markdownLink = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	heading      = regexp.MustCompile(`(?m)^#+ (.+)$`)
	notInAnchor  = regexp.MustCompile(`[^\p{L}\p{N} _-]`)
	pathInCode   = regexp.MustCompile("`((?:adapter|budget|cmd|docs|internal|orchestrator|reaper|toolproxy)/" +
		"[A-Za-z0-9_./-]+)`")
)

// anchors returns the anchors of the headings of a page.
func anchors(page string) map[string]bool {
	found := map[string]bool{}
	for _, m := range heading.FindAllStringSubmatch(codeBlock.ReplaceAllString(page, ""), -1) {
		words := notInAnchor.ReplaceAllString(strings.ToLower(m[1]), "")
		found[strings.ReplaceAll(words, " ", "-")] = true
	}
	return found
}

// Every link of a document leads to a file, and to a heading where it names one.
func TestDocumentedLinksResolve(t *testing.T) {
	checked := 0
	for _, page := range documentPages(t) {
		text := inlineCode.ReplaceAllString(codeBlock.ReplaceAllString(readPage(t, page), ""), "")
		for _, m := range markdownLink.FindAllStringSubmatch(text, -1) {
			link, err := url.Parse(m[1])
			if err != nil || link.Scheme != "" {
				continue
			}
			checked++
			target := page
			if link.Path != "" {
				target = filepath.Join(filepath.Dir(page), link.Path)
			}
			if _, err := os.Stat(filepath.Join(repoRoot(t), target)); err != nil {
				t.Errorf("%s: the link %s leads nowhere", page, m[1])
				continue
			}
			if link.Fragment != "" && !anchors(readPage(t, target))[link.Fragment] {
				t.Errorf("%s: %s has no heading #%s", page, target, link.Fragment)
			}
		}
	}
	if checked < 50 {
		t.Errorf("found %d links only", checked)
	}
}

// Every file that CONTRIBUTING.md names exists.
func TestContributingNamesFilesThatExist(t *testing.T) {
	paths := pathInCode.FindAllStringSubmatch(readPage(t, "CONTRIBUTING.md"), -1)
	for _, m := range paths {
		if strings.Contains(m[1], "FOLDER") {
			continue
		}
		if _, err := os.Stat(filepath.Join(repoRoot(t), m[1])); err != nil {
			t.Errorf("CONTRIBUTING.md: there is no %s", m[1])
		}
	}
	if len(paths) < 10 {
		t.Errorf("found %d paths only", len(paths))
	}
}

// The state diagram of docs/concepts.md has exactly the legal moves of a task.
func TestStateDiagramShowsTheTaskTransitions(t *testing.T) {
	_, diagram, found := strings.Cut(readPage(t, "docs/concepts.md"), "\nstateDiagram-v2\n")
	if !found {
		t.Fatal("docs/concepts.md has no state diagram")
	}
	diagram, _, _ = strings.Cut(diagram, "\n```")
	got := map[string]string{}
	for line := range strings.Lines(diagram) {
		states, verbs, _ := strings.Cut(strings.TrimSpace(line), ": ")
		from, to, arrow := strings.Cut(states, " --> ")
		if !arrow || verbs == "" {
			t.Errorf("the diagram has the line %q; want FROM --> TO: VERB, VERB", line)
			continue
		}
		for verb := range strings.SplitSeq(verbs, ", ") {
			got[from+" "+verb+" "+to] = ""
		}
	}
	want := map[string]string{}
	moves.TaskTransitions(func(from picket.TaskState, verb string, to picket.TaskState) {
		start := string(from)
		if start == "" {
			start = "[*]"
		}
		want[start+" "+verb+" "+string(to)] = ""
	})
	expectSame(t, "docs/concepts.md, state diagram", got, want)
}

var (
	mermaidBlock = regexp.MustCompile("(?ms)^```mermaid$.*?^```$")
	listLabel    = regexp.MustCompile(`(?m)[|"\[({:>]\s*\d+[.)]\s.*$`)
)

// No label of a diagram begins with a number and a dot. Mermaid 11 takes such a label
// for a list and shows an error instead of it.
func TestNoMermaidLabelBeginsAList(t *testing.T) {
	if !listLabel.MatchString(`a -->|"1. reserve"| b`) || listLabel.MatchString("a[granted $1.00] --> b[0.40 left]") {
		t.Fatal("the pattern finds the wrong labels")
	}
	blocks := 0
	for _, page := range documentPages(t) {
		for _, block := range mermaidBlock.FindAllString(readPage(t, page), -1) {
			blocks++
			if label := listLabel.FindString(block); label != "" {
				t.Errorf("%s: this label of a diagram begins a list: %s", page, label)
			}
		}
	}
	if blocks < 5 {
		t.Errorf("found %d diagrams only", blocks)
	}
}

var (
	whereRow   = regexp.MustCompile(`(?m)^\| Where [^|]*\\? \| ` + "`([^`]+)`" + ` \| (.*) \|$`)
	whereFile  = regexp.MustCompile("`([a-z_/]+\\.(?:go|lua))`(?: \\(([^)]*)\\))?")
	whereNames = regexp.MustCompile("`([A-Za-z_]+)`")
)

// The page of the architecture says where to look: at most two files of one folder
// answer a question, and they define the functions that are named.
func TestWhereToLook(t *testing.T) {
	rows := whereRow.FindAllStringSubmatch(readPage(t, "docs/architecture.md"), -1)
	if len(rows) < 8 {
		t.Fatalf("%d rows were found", len(rows))
	}
	for _, row := range rows {
		files := whereFile.FindAllStringSubmatch(row[2], -1)
		if len(files) == 0 || len(files) > 2 {
			t.Errorf("%d files answer: %s", len(files), row[0])
		}
		for _, file := range files {
			text := readPage(t, filepath.Join(row[1], file[1]))
			for _, name := range whereNames.FindAllStringSubmatch(file[2], -1) {
				defined := regexp.MustCompile(`(?m)^(?:local )?func(?:tion)? (?:\([^)]*\) )?` + name[1] + `\(`)
				if !defined.MatchString(text) {
					t.Errorf("%s/%s does not define %s", row[1], file[1], name[1])
				}
			}
		}
	}
}

var (
	walkRow    = regexp.MustCompile(`(?ms)^## How a request goes through the packages$(.*?)^## `)
	engineVerb = regexp.MustCompile("`Engine\\.([A-Z][A-Za-z]*)`")
	walkFile   = regexp.MustCompile(`\b(api|toolproxy|console)/([a-z_]+)\b`)
	walkScript = regexp.MustCompile(`\b([a-z_]+)\.lua\b`)
)

// The walk through a request names methods, files and scripts that exist.
func TestTheWalkNamesWhatExists(t *testing.T) {
	section := walkRow.FindString(readPage(t, "docs/architecture.md"))
	var engine strings.Builder
	sources, err := filepath.Glob(filepath.Join(repoRoot(t), "orchestrator", "*.go"))
	if err != nil || len(sources) == 0 {
		t.Fatal("no source of the engine", err)
	}
	for _, path := range sources {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		engine.Write(text)
	}
	verbs := engineVerb.FindAllStringSubmatch(section, -1)
	if len(verbs) < 10 {
		t.Fatalf("%d methods are named", len(verbs))
	}
	for _, m := range verbs {
		if !strings.Contains(engine.String(), "func (e *Engine) "+m[1]+"(") {
			t.Errorf("Engine.%s does not exist", m[1])
		}
	}
	for _, m := range walkFile.FindAllStringSubmatch(section, -1) {
		folder := m[1]
		if folder != "toolproxy" {
			folder = "orchestrator/" + folder
		}
		readPage(t, filepath.Join(folder, m[2]+".go"))
	}
	for _, m := range walkScript.FindAllStringSubmatch(section, -1) {
		found, _ := filepath.Glob(filepath.Join(repoRoot(t), "orchestrator", "lua", "*", m[1]+".lua"))
		if len(found) == 0 {
			t.Errorf("%s.lua does not exist", m[1])
		}
	}
}
