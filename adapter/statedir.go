package adapter

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/adapter/process"
	"github.com/picket-dev/picket/adapter/workspace"
)

// checkStateDir makes the directory of runs and writes into it once. A worker that
// cannot keep a run would take task after task, fail each at once, and leave
// none for the workers that can.
func (cfg *Config) checkStateDir() error {
	err := os.MkdirAll(cfg.StateDir, 0o700)
	if err == nil {
		err = probeWrite(cfg.StateDir)
	}
	if err == nil {
		return nil
	}
	remedy := "Name a directory that you may write to: XDG_STATE_HOME in the environment, or StateDir."
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		remedy = "Free some space there, or name another directory: XDG_STATE_HOME in the environment, or StateDir."
	}
	return picket.Invalid("StateDir", remedy, "runs cannot be kept in %s: %v", cfg.StateDir, err)
}

func probeWrite(dir string) error {
	f, err := os.CreateTemp(dir, ".try-")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	_, err = f.Write(make([]byte, 4096))
	return errors.Join(err, f.Close())
}

func (cfg *Config) fillDirs() (err error) {
	if cfg.StateDir == "" {
		if cfg.StateDir, err = workspace.DefaultStateDir(); err != nil {
			return err
		}
	}
	cfg.Workspace = cmp.Or(cfg.Workspace, workspace.Empty)
	cfg.WorkspaceRoot = cmp.Or(cfg.WorkspaceRoot, filepath.Join(cfg.StateDir, "workspaces"))
	cfg.Dir = cmp.Or(cfg.Dir, ".")
	for _, dir := range []*string{&cfg.StateDir, &cfg.WorkspaceRoot, &cfg.Dir} {
		if *dir, err = filepath.Abs(*dir); err != nil {
			return fmt.Errorf("find directory: %w", err)
		}
	}
	named := cfg.WorkspaceRoot
	if cfg.WorkspaceRoot, err = workspace.RealPath(named); err != nil {
		return picket.Invalid("WorkspaceRoot",
			"Name a directory that you may write to: WorkspaceRoot, or XDG_STATE_HOME in the environment.",
			"the directory of workspaces cannot be found: %v", err)
	}
	if cfg.WorkspaceRoot != named && cfg.Log != nil {
		cfg.Log.Info("the directory of workspaces leads through a link; it is used as it is now", "named", named,
			"used", cfg.WorkspaceRoot)
	}
	if cfg.StateDir == cfg.WorkspaceRoot || cfg.StateDir == named {
		return picket.Invalid("WorkspaceRoot", "Leave WorkspaceRoot out, or name another directory.",
			"WorkspaceRoot and StateDir are the same directory")
	}
	return cfg.checkWorkspace()
}

// checkWorkspace fills in how directories are made, and says what is missing
// for it before a task is taken.
func (cfg *Config) checkWorkspace() (err error) {
	cfg.Resume = cmp.Or(cfg.Resume, workspace.ResumeReuse)
	if !slices.Contains([]workspace.Resume{workspace.ResumeReuse, workspace.ResumeCopy, workspace.ResumeFresh},
		cfg.Resume) {
		return picket.Invalid("Resume", "Use reuse, copy or fresh.", "there is no way to resume called %q", cfg.Resume)
	}
	if cfg.KeepWorkspaces < 0 {
		return picket.Invalid("KeepWorkspaces", "Use a duration from 0.", "workspaces cannot be kept for %s",
			cfg.KeepWorkspaces)
	}
	if remote := cfg.WorkspaceRemote; remote != "" {
		if err := workspace.CheckRemote(remote); err != nil {
			return picket.Invalid("WorkspaceRemote", "Name a repository to which you may push.", "%v", err)
		}
		if cfg.Workspace != workspace.Worktree {
			return picket.Invalid("WorkspaceRemote", "Use the workspace worktree, or leave the remote out.",
				"a workspace of kind %s has no branch to push", cfg.Workspace)
		}
	}
	switch cfg.Workspace {
	case workspace.Empty, workspace.Here, workspace.Copy:
		return nil
	case workspace.Worktree:
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		cfg.repo, err = workspace.FindRepository(ctx, cfg.Dir, cfg.gitContainment())
		return err
	}
	return picket.Invalid("Workspace", "Use here, worktree, copy or empty.", "there is no workspace of kind %q",
		cfg.Workspace)
}

// workspaceStore is the store of this configuration, for work beside any lease.
func (cfg *Config) workspaceStore() *workspace.Store {
	var sources []workspace.BranchSource
	if cfg.WorkspaceRemote != "" {
		sources = append(sources, workspace.RemoteSource(workspace.Remote(cfg.WorkspaceRemote)))
	}
	return &workspace.Store{
		Sources:  sources,
		StateDir: cfg.StateDir,
		Root:     cfg.WorkspaceRoot,
		Dir:      cfg.Dir,
		Kind:     cfg.Workspace,
		Resume:   cfg.Resume,
		Repo:     cfg.repo,
		Git:      cfg.gitContainment(),
		Log:      cfg.Log,
		OnStep:   cfg.onStep,
	}
}

// gitContainment is the one of agents that are started as configured.
func (cfg *Config) gitContainment() workspace.GitContainment {
	switch l := cfg.Launcher.(type) {
	case process.CommandLauncher:
		return workspace.GitContainment{Containment: l.Containment, Shim: l.Shim}
	case PresetLauncher:
		return workspace.GitContainment{Containment: l.Containment, Shim: l.Shim}
	}
	return workspace.GitContainment{Containment: cfg.Containment}
}
