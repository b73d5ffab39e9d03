package adapter

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/picket-dev/picket/adapter/workspace"
)

// writeAgentFiles writes the files into .picket of at, a directory in top, and
// answers where they are. An agent of an earlier run may have put anything
// there: nothing outside of top is written.
func writeAgentFiles(k *workspace.Locked, at string, files map[string]any) (string, error) {
	r, err := openWorkspaceDir(k, at)
	if err != nil {
		return "", fmt.Errorf("write %s: %w", workspace.AgentFilesDir, err)
	}
	defer r.Close()
	if info, err := r.Lstat(workspace.AgentFilesDir); err == nil && !info.IsDir() {
		if err := r.Remove(workspace.AgentFilesDir); err != nil {
			return "", fmt.Errorf("write %s: %w", workspace.AgentFilesDir, err)
		}
	}
	if err := r.Mkdir(workspace.AgentFilesDir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return "", fmt.Errorf("write %s: %w", workspace.AgentFilesDir, err)
	}
	for name, v := range files {
		if err := writeJSONIn(r, filepath.Join(workspace.AgentFilesDir, name), v); err != nil {
			return "", fmt.Errorf("write %s: %w", workspace.AgentFilesDir, err)
		}
	}
	return filepath.Join(at, workspace.AgentFilesDir), nil
}

// replaceAgentFile replaces one file in .picket while the agent runs.
func replaceAgentFile(k *workspace.Locked, at, name string, v any) error {
	r, err := openWorkspaceDir(k, at)
	if err != nil {
		return err
	}
	defer r.Close()
	file := filepath.Join(workspace.AgentFilesDir, name)
	if err := writeJSONIn(r, file+".new", v); err != nil {
		return err
	}
	return r.Rename(file+".new", file)
}

// openWorkspaceDir opens a directory in top, and makes it if it is not there.
func openWorkspaceDir(k *workspace.Locked, at string) (*os.Root, error) {
	top := k.Path
	r, err := k.OpenRoot()
	if err != nil || at == top {
		return r, err
	}
	defer r.Close()
	below, err := filepath.Rel(top, at)
	if err != nil {
		return nil, err
	}
	if err := r.MkdirAll(below, 0o700); err != nil {
		return nil, err
	}
	return r.OpenRoot(below)
}

// writeJSONIn replaces a file, whatever was there.
func writeJSONIn(r *os.Root, name string, v any) error {
	text, err := json.Marshal(v, jsontext.WithIndent("  "))
	if err != nil {
		return err
	}
	if err := r.RemoveAll(name); err != nil {
		return err
	}
	f, err := r.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(append(text, '\n'))
	return errors.Join(err, f.Close())
}
