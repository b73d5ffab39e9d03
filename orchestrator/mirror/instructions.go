package mirror

import (
	"fmt"
	"path"
	"slices"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/orchestrator/heartbeat"
)

// Instructions are the standing instructions of an agent name.
type Instructions struct {
	Name string
	// Path is that of the file AGENT.md, relative to the directory, or to that of picket.yaml.
	Path string
	// Digest is that of the bytes. It is empty if the file cannot be read.
	Digest string
	// Text is what agents are told. It is empty if the file is refused.
	Text string
	// Diagnostics say why the file is refused. Without any it is used.
	Diagnostics []heartbeat.Diagnostic
}

func (i Instructions) equal(j Instructions) bool {
	return i.Name == j.Name && i.Path == j.Path && i.Digest == j.Digest && i.Text == j.Text &&
		slices.Equal(i.Diagnostics, j.Diagnostics)
}

// WorkspaceAgent has the files of one agent name beside picket.yaml, as a person has trusted them. Nil: there is no
// such file.
type WorkspaceAgent struct {
	Instructions *string // AGENT.md
	Policy       *string // HEARTBEAT.md
}

// readWorkspace reads the trusted files beside picket.yaml. It keeps the earlier ones if that fails.
func (m *Directory) readWorkspace() error {
	if m.cfg.Workspace == nil {
		return nil
	}
	agents, err := m.cfg.Workspace()
	if err != nil {
		return fmt.Errorf("the trusted files beside picket.yaml cannot be read, so the earlier ones stay in force: %w", err)
	}
	m.workspace = map[string]WorkspaceAgent{}
	for name, files := range agents {
		if picket.CheckName("name", name) == nil {
			m.workspace[name] = files
		}
	}
	return nil
}

// addInstructions adds the file of a name in the directory, if it has one. Of a directory of the name that cannot be
// read nobody knows that, so the earlier instructions stay.
func (p *pass) addInstructions(name string) {
	f, at := p.dir.readInstructions(name), path.Join(name, instructionsFile)
	switch {
	case f.problem != "":
		p.instructions = append(p.instructions, Instructions{Name: name, Path: at, Diagnostics: notRead(at, f.problem)})
	case f.digest != Absent:
		p.instructions = append(p.instructions, newInstructions(name, at, f.bytes))
	}
}

func newInstructions(name, at string, source []byte) Instructions {
	i := Instructions{Name: name, Path: at, Digest: heartbeat.RawDigest(source)}
	i.Text, i.Diagnostics = heartbeat.ParseInstructions(source, at)
	return i
}

// notRead is the diagnostic of a file that is not read.
func notRead(at, problem string) []heartbeat.Diagnostic {
	return []heartbeat.Diagnostic{{Code: heartbeat.CodePathEscape, Severity: heartbeat.SeverityError, Message: problem,
		SourcePath: at}}
}

// addWorkspace adds the trusted files of a name beside picket.yaml. They win: what the directory and the store have for
// this name stays as it is, and does not count.
func (p *pass) addWorkspace(name string, w WorkspaceAgent, s heartbeat.Settings) {
	if w.Instructions != nil {
		at := path.Join(picket.AgentFilesDir, name, instructionsFile)
		p.instructions = append(p.instructions, newInstructions(name, at, []byte(*w.Instructions)))
	}
	out := File{Name: name, State: StateWorkspace, Digest: Absent}
	if w.Policy != nil {
		source := []byte(*w.Policy)
		out.Digest = heartbeat.RawDigest(source)
		read, found := heartbeat.Parse(source, heartbeat.Options{Settings: s,
			SourcePath: path.Join(picket.AgentFilesDir, sourcePath(name))})
		if out.Diagnostics = found; read.Valid {
			out.Body = *w.Policy
		}
	}
	p.files = append(p.files, out)
}

// boundInstructions keeps the first files, if there are too many.
func (m *Directory) boundInstructions(all []Instructions) []Instructions {
	if len(all) > MaxFiles {
		m.cfg.Log.Warn("too many agent names have instructions", "files", len(all), "most", MaxFiles)
		return all[:MaxFiles]
	}
	return all
}

// reportRefused logs each file of instructions that is refused. It is called when something has changed.
func (m *Directory) reportRefused(all []Instructions) {
	for _, i := range all {
		for _, d := range i.Diagnostics {
			m.cfg.Log.Warn("a file of instructions is refused, and the earlier instructions stay", "file", i.Path,
				"line", d.Line, "err", d.Message)
		}
	}
}
