package mirror

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/picket-dev/picket/orchestrator/heartbeat"
)

// instruct writes the file AGENT.md of a name.
func (b *bench) instruct(name, text string) {
	b.t.Helper()
	dir := filepath.Dir(b.path(name))
	if err := os.MkdirAll(dir, 0o700); err != nil {
		b.t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, instructionsFile), []byte(text), 0o600); err != nil {
		b.t.Fatal(err)
	}
}

// told is what was published as the instructions of a name; without a path if nothing was.
func (b *bench) told(name string) (told Instructions) {
	for _, i := range b.store.told {
		if i.Name == name {
			told = i
		}
	}
	return told
}

// Instructions are published when they change. They need no policy, and survive the deletion of one.
func TestInstructionsArePublished(t *testing.T) {
	b := newBench(t)
	m := b.process("a")
	b.instruct("ann", "Never push.\n")
	b.pass(m)
	b.pass(m)
	if i := b.told("ann"); i.Text != "Never push." || i.Path != "ann/AGENT.md" || len(i.Diagnostics) > 0 ||
		i.Digest != heartbeat.RawDigest([]byte("Never push.\n")) || b.store.publishes != 1 {
		t.Errorf("%+v, published %d times", i, b.store.publishes)
	}
	b.store.put("ann", "one\n", "")
	b.pass(m)
	b.store.delete("ann", "")
	b.pass(m)
	b.want(Absent, "")
	b.instruct("ann", "Push.\n")
	b.pass(m)
	if i := b.told("ann"); i.Text != "Push." {
		t.Errorf("%+v", i)
	}
	if err := os.Remove(filepath.Join(b.dir, "ann", instructionsFile)); err != nil {
		t.Fatal(err)
	}
	b.pass(m)
	if i := b.told("ann"); i.Path != "" {
		t.Errorf("after the file is gone: %+v", i)
	}
}

// A file that cannot be used is published without its text.
func TestInstructionsThatAreRefused(t *testing.T) {
	b := newBench(t)
	m := b.process("a")
	b.instruct("key", "Use pks_default.aaaaaaaaaaaaaaaaaaaa\n")
	b.instruct("large", strings.Repeat("x", heartbeat.MaxInstructions+10))
	b.instruct("link", "")
	at := filepath.Join(b.dir, "link", instructionsFile)
	secret := filepath.Join(t.TempDir(), "secret")
	for _, err := range []error{os.Remove(at), os.WriteFile(secret, []byte("secret"), 0o600), os.Symlink(secret, at),
		os.Symlink(t.TempDir(), filepath.Join(b.dir, "linked"))} {
		if err != nil {
			t.Fatal(err)
		}
	}
	b.pass(m)
	for name, code := range map[string]heartbeat.Code{"key": heartbeat.CodeSecret, "large": heartbeat.CodeFileTooLarge,
		"link": heartbeat.CodePathEscape, "linked": heartbeat.CodePathEscape} {
		i := b.told(name)
		if i.Text != "" || len(i.Diagnostics) != 1 || i.Diagnostics[0].Code != code ||
			i.Diagnostics[0].SourcePath != name+"/AGENT.md" || strings.Contains(i.Diagnostics[0].Message, b.dir) {
			t.Errorf("%s: %+v", name, i)
		}
	}
}

// A directory that cannot be listed has no known names. It does not count as empty.
func TestADirectoryThatCannotBeListed(t *testing.T) {
	d, err := openDir(t.TempDir(), func(string) error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	if err := d.close(); err != nil {
		t.Fatal(err)
	}
	if names, err := d.names(); err == nil {
		t.Errorf("it has the names %q", names)
	}
}

func ref(text string) *string { return &text }

// Trusted files beside picket.yaml win over the directory and the store. A name with such files has nothing else.
func TestFilesOfTheWorkspaceWin(t *testing.T) {
	b := newBench(t)
	m := b.process("a")
	b.store.put("ann", "one\n", "")
	b.instruct("ann", "Of the server.\n")
	b.pass(m)
	b.want("one\n", "")

	b.workspace = map[string]WorkspaceAgent{"ann": {Instructions: ref("Of the workspace.\n"), Policy: ref("mine\n")},
		"bob": {Instructions: ref("Alone.\n")}, "no/name": {Policy: ref("x")}}
	b.store.put("ann", "two\n", "")
	b.pass(m)
	b.want("one\n", StateWorkspace) // the file in the directory stays as it was
	if i := b.told("ann"); i.Text != "Of the workspace." || i.Path != "picket/agents/ann/AGENT.md" {
		t.Errorf("%+v", i)
	}
	if f := b.store.files[0]; f.Body != "mine\n" || f.Digest != heartbeat.RawDigest([]byte("mine\n")) {
		t.Errorf("%+v", f)
	}
	if f := b.store.files[1]; len(b.store.files) != 2 || f.Name != "bob" || f.Digest != Absent || f.Body != "" {
		t.Errorf("a name without HEARTBEAT.md: %+v", b.store.files)
	}
	b.edit("ann", "of the server\n")
	if m.changed("ann") {
		t.Error("a file that does not count is looked at before each decision")
	}

	published := b.store.publishes
	b.workspaceErr = errors.New("no disk")
	if err := m.Pass(t.Context()); !errors.Is(err, b.workspaceErr) || b.store.publishes != published {
		t.Errorf("the files of the workspace cannot be read: %v, published %d times", err, b.store.publishes-published)
	}

	b.workspace, b.workspaceErr = nil, nil
	b.pass(m)
	b.want("of the server\n", StateConflict) // both were changed meanwhile
	if i := b.told("ann"); i.Text != "Of the server." {
		t.Errorf("%+v", i)
	}
}

// The text of an invalid file of the workspace is not published.
func TestAnInvalidFileOfTheWorkspace(t *testing.T) {
	b := newBench(t)
	m := b.process("a")
	b.workspace = map[string]WorkspaceAgent{"ann": {Policy: ref("---\nlease: 1\n---\n"), Instructions: ref("a\x00b")}}
	b.pass(m)
	f, i := b.store.files[0], b.told("ann")
	if f.State != StateWorkspace || f.Body != "" || len(f.Diagnostics) == 0 ||
		f.Diagnostics[0].SourcePath != "picket/agents/ann/HEARTBEAT.md" {
		t.Errorf("%+v", f)
	}
	if i.Text != "" || len(i.Diagnostics) != 1 {
		t.Errorf("%+v", i)
	}
}
