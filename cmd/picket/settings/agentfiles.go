package settings

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"syscall"

	"github.com/picket-dev/picket"
)

// agentFileNames are the files of an agent name that count, and how many bytes they may have.
var agentFileNames = map[string]int64{"AGENT.md": picket.MaxInstructions, "HEARTBEAT.md": picket.MaxPolicyFile}

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
	if ok, err := isPlainDir(root, "picket", picket.AgentFilesDir); !ok {
		return texts, err
	}
	names, err := fs.ReadDir(root.FS(), picket.AgentFilesDir)
	if err != nil {
		return nil, err
	}
	if len(names) > picket.MaxAgentFiles {
		return nil, fmt.Errorf("%s has %d entries, at most %d are allowed", picket.AgentFilesDir, len(names), picket.MaxAgentFiles)
	}
	for _, entry := range names {
		if !entry.IsDir() && entry.Type()&fs.ModeSymlink == 0 {
			continue
		}
		if err := readAgentFiles(root, entry.Name(), texts); err != nil {
			return nil, err
		}
	}
	return texts, nil
}

// isPlainDir reports whether directories are there. A link to a directory is an error. Something else than a directory,
// such as a program with the name picket, counts for nothing.
func isPlainDir(root *os.Root, names ...string) (bool, error) {
	for _, name := range names {
		info, err := root.Lstat(name)
		if errors.Is(err, fs.ErrNotExist) {
			return false, nil
		}
		if err != nil {
			return false, err
		}
		if info.IsDir() {
			continue
		}
		if to, err := os.Stat(filepath.Join(root.Name(), name)); err == nil && to.IsDir() {
			return false, fmt.Errorf("%s: it is a link", name)
		}
		return false, nil
	}
	return true, nil
}

// readAgentFiles adds the files of one name.
func readAgentFiles(root *os.Root, name string, texts map[string]string) error {
	dir := path.Join(picket.AgentFilesDir, name)
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
		return "", errNotPlain
	}
	f, err := root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0) // it may be a pipe by now
	if err != nil {
		return "", err
	}
	defer f.Close()
	opened, err := f.Stat()
	if err == nil && !os.SameFile(info, opened) {
		err = errNotPlain
	}
	if err != nil {
		return "", err
	}
	text, err := io.ReadAll(io.LimitReader(f, most+1))
	if err == nil && int64(len(text)) > most {
		err = fmt.Errorf("it has more than %d bytes", most)
	}
	return string(text), err
}

var errNotPlain = errors.New("it is a link or not a regular file")

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

// TrustedAgentFiles returns the files of agent names beside the trusted picket.yaml of the current directory, as they
// were when a person trusted them last: their texts by path. It is empty if the settings are from no such file. The
// files themselves are not read, because an agent may be able to write them.
func (s Settings) TrustedAgentFiles() (map[string]string, error) {
	if s.localFile == "" {
		return nil, nil
	}
	record, err := readTrustRecord(s.localFile)
	if err == nil && record.SHA256 == "" {
		err = errors.New(s.localFile + " is not trusted any more")
	}
	return record.AgentFiles, err
}
