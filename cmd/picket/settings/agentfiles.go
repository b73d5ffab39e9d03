package settings

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/cmd/picket/cli/exit"
	"github.com/picket-dev/picket/internal/files"
	"github.com/picket-dev/picket/orchestrator/heartbeat"
	"github.com/picket-dev/picket/orchestrator/mirror"
)

// AgentFilesDir is the directory beside picket.yaml with a directory for each agent name. The directory of a name may
// have the standing instructions AGENT.md and the wake policy HEARTBEAT.md.
const AgentFilesDir = mirror.WorkspaceDir

// agentFileNames are the files of an agent name that count, and how many bytes they may have.
var agentFileNames = map[string]int64{"AGENT.md": heartbeat.MaxInstructions, "HEARTBEAT.md": heartbeat.MaxSource}

// maxAgentNames bounds the agent names with files beside picket.yaml.
const maxAgentNames = mirror.MaxFiles

// AgentFiles reads the files of agent names beside a local file: their texts by path, such as
// picket/agents/coder/AGENT.md. It follows no links. A file that cannot be used is an error, because a person is about
// to trust it.
func (f ConfigFile) AgentFiles() (texts map[string]string, err error) {
	dir, err := f.Absolute()
	if err != nil {
		return nil, err
	}
	root, err := os.OpenRoot(filepath.Dir(dir))
	if err != nil {
		return nil, err
	}
	defer root.Close()
	texts = map[string]string{}
	if ok, err := isPlainDir(root, "picket", AgentFilesDir); !ok {
		return texts, err
	}
	names, err := fs.ReadDir(root.FS(), AgentFilesDir)
	if err != nil {
		return nil, err
	}
	if len(names) > maxAgentNames {
		return nil, fmt.Errorf("%s has %d entries, at most %d are allowed", AgentFilesDir, len(names), maxAgentNames)
	}
	for _, entry := range names {
		if err := readAgentFiles(root, entry.Name(), texts); err != nil {
			return nil, err
		}
	}
	return texts, nil
}

// isPlainDir reports whether directories are there. A link or a file in the place of one is an error.
func isPlainDir(root *os.Root, names ...string) (bool, error) {
	for _, name := range names {
		info, err := root.Lstat(name)
		if errors.Is(err, fs.ErrNotExist) {
			return false, nil
		}
		if err != nil {
			return false, err
		}
		if !info.IsDir() {
			return false, fmt.Errorf("%s is not a directory of its own", name)
		}
	}
	return true, nil
}

// readAgentFiles adds the files of one name.
func readAgentFiles(root *os.Root, name string, texts map[string]string) error {
	dir := path.Join(AgentFilesDir, name)
	if picket.CheckName("name", name) != nil {
		return fmt.Errorf("%s is not the name of an agent: a name has 1 to 128 letters, digits, _, . or -", dir)
	}
	if ok, err := isPlainDir(root, dir); !ok {
		return err
	}
	for file, most := range agentFileNames {
		at := path.Join(dir, file)
		text, err := readPlainFile(root, at, most)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return fmt.Errorf("%s: %w", at, err)
		}
		texts[at] = text
	}
	return nil
}

// readPlainFile reads a regular file of at most so many bytes.
func readPlainFile(root *os.Root, name string, most int64) (string, error) {
	info, err := root.Lstat(name)
	if err != nil {
		return "", err
	}
	if !info.Mode().IsRegular() {
		return "", errors.New("it is a link or not a regular file")
	}
	f, err := root.Open(name)
	if err != nil {
		return "", err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, most+1))
	if err == nil && int64(len(text)) > most {
		err = fmt.Errorf("it has more than %d bytes", most)
	}
	return string(text), err
}

// CheckAgentFiles refuses files of agent names that would not be used, so that nobody trusts them in vain.
func CheckAgentFiles(texts map[string]string) error {
	for _, at := range slices.Sorted(maps.Keys(texts)) {
		source := []byte(texts[at])
		_, found := heartbeat.ParseInstructions(source, at)
		if path.Base(at) == "HEARTBEAT.md" {
			_, found = heartbeat.Parse(source, heartbeat.Options{Settings: heartbeat.Defaults(), SourcePath: at})
		}
		for _, d := range found {
			if d.Severity == heartbeat.SeverityError {
				return exit.Usagef("%s:%d: %s; change the file, and run the command again", at, max(d.Line, 1), d.Message)
			}
		}
	}
	return nil
}

// changedAgentFile names a file that differs from what was trusted, or is empty.
func (r TrustRecord) changedAgentFile(texts map[string]string) string {
	var changed []string
	for at, text := range texts {
		if trusted, ok := r.AgentFiles[at]; !ok || trusted != text {
			changed = append(changed, at)
		}
	}
	for at := range r.AgentFiles {
		if _, ok := texts[at]; !ok {
			changed = append(changed, at)
		}
	}
	if len(changed) == 0 {
		return ""
	}
	return slices.Min(changed)
}

// TrustedAgents returns the files of agent names beside the trusted picket.yaml of the current directory, as they were
// when a person trusted them last. It is empty if the settings are from no such file. The files themselves are not
// read, because an agent may be able to write them.
func (s Settings) TrustedAgents() (map[string]mirror.WorkspaceAgent, error) {
	if s.localFile == "" {
		return nil, nil
	}
	var record TrustRecord
	if err := files.ReadJSON(TrustPath(s.localFile), &record); err != nil {
		return nil, err
	}
	agents := map[string]mirror.WorkspaceAgent{}
	for at, text := range record.AgentFiles {
		dir, file := path.Split(at)
		name := path.Base(dir)
		a := agents[name]
		switch file {
		case "AGENT.md":
			a.Instructions = &text
		case "HEARTBEAT.md":
			a.Policy = &text
		}
		agents[name] = a
	}
	return agents, nil
}
