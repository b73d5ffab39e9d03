package settings

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/picket-dev/picket"
)

// The files of agent names beside a local picket.yaml are read, and nothing else.
func TestAgentFilesAreRead(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	write := func(path, text string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	read := func() (map[string]string, error) { return ConfigFile{Path: "picket.yaml", Local: true}.AgentFiles() }
	want := func(what string, texts map[string]string) {
		t.Helper()
		if got, err := read(); err != nil || !maps.Equal(got, texts) {
			t.Errorf("%s: %v, %v; want %v", what, got, err, texts)
		}
	}
	write("picket.yaml", "")
	want("no directory", nil)
	write("picket", "a program")
	want("a program of the name", nil)
	if err := os.Remove("picket"); err != nil {
		t.Fatal(err)
	}
	write("picket/README.md", "x")
	want("a directory without agents", nil)
	write("picket/agents/ann/AGENT.md", "be brief")
	write("picket/agents/ann/HEARTBEAT.md", "look")
	write("picket/agents/ann/other.md", "x")
	write("picket/agents/bob/AGENT.md", "be thorough")
	write("picket/agents/.DS_Store", "x")
	all := map[string]string{"picket/agents/ann/AGENT.md": "be brief", "picket/agents/ann/HEARTBEAT.md": "look",
		"picket/agents/bob/AGENT.md": "be thorough"}
	want("two names", all)

	wantError := func(what, message string, undo ...string) {
		t.Helper()
		if _, err := read(); err == nil || !strings.Contains(err.Error(), message) {
			t.Errorf("%s: %v", what, err)
		}
		for _, path := range undo {
			if err := os.RemoveAll(path); err != nil {
				t.Fatal(err)
			}
		}
		want("after "+what, all)
	}
	write("picket/agents/long/AGENT.md", strings.Repeat("x", picket.MaxInstructions+1))
	wantError("a long file", "picket/agents/long/AGENT.md: it has more than 16384 bytes", "picket/agents/long")
	link := func(to, at string) {
		t.Helper()
		if err := os.Symlink(to, at); err != nil {
			t.Fatal(err)
		}
	}
	link("ann", "picket/agents/linked")
	wantError("a linked directory", "picket/agents/linked: it is a link", "picket/agents/linked")
	write("picket/agents/eve/x", "")
	link("../ann/AGENT.md", "picket/agents/eve/AGENT.md")
	wantError("a linked file", "picket/agents/eve/AGENT.md: it is a link or not a regular file", "picket/agents/eve")
	write("picket/agents/no name/AGENT.md", "x")
	wantError("a bad name", "picket/agents/no name is not the name of an agent", "picket/agents/no name")
	var many []string
	for i := range picket.MaxAgentFiles {
		many = append(many, fmt.Sprintf("picket/agents/n%d", i))
		write(many[i]+"/x", "")
	}
	wantError("many names", "has 203 entries, at most 200 are allowed", many...)
}
