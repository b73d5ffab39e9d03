package adapter

import (
	"cmp"
	"context"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"path/filepath"
	"runtime"
	"sync"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/adapter/agents"
	"github.com/picket-dev/picket/adapter/process"
	"github.com/picket-dev/picket/adapter/renewals"
	"github.com/picket-dev/picket/adapter/workspace"
)

// Config says where leases come from and what is run for them.
type Config struct {
	// BaseURL is the orchestrator, such as http://127.0.0.1:7070. Required.
	BaseURL string
	// Key is an API key with scope agent. Defaults to none, which only a
	// server without keys accepts.
	Key picket.Secret
	// HTTP talks to orchestrator and proxy. Defaults to client.DefaultHTTP.
	HTTP *http.Client

	// AgentID names this worker. Defaults to agent_ and a ULID made here.
	AgentID string
	// Role is the role whose tasks are taken. Defaults to none: tasks that
	// name no role.
	Role string
	// Capabilities are what tasks may need. Defaults to none.
	Capabilities []string
	// PinnedOnly takes nothing but tasks pinned to AgentID, for an adapter that
	// serves one task. Defaults to false.
	PinnedOnly bool
	// Max is how many leases are held at once, 1 to 100. Defaults to 1.
	Max int
	// Wait is how long one request for a lease waits at the server, up to
	// 50 s. Defaults to 30 s.
	Wait time.Duration

	// Attached registers this worker in the role [picket.RoleAttached], which is in no pool. It is
	// for an adapter that serves one task, with a run key and PinnedOnly. If the registry
	// refuses it, the adapter works unregistered. Defaults to false.
	Attached bool
	// Name is what people call this worker, up to 256 characters. Defaults to
	// none.
	Name string
	// Health is when silence of this worker means what. Defaults to heartbeats
	// every 30 s, unhealthy after 90 s, dead after 300 s.
	Health HealthConfig
	// Metadata goes into this worker's record in addition to version, platform and
	// containment; everybody who may read the registry sees it. Defaults to none.
	Metadata map[string]any
	// WhileRegistered is called for each registration of this worker in a goroutine of its own. Its
	// context ends when the registration has ended, and after a drain when the last run has ended. The
	// worker waits until it returns. Defaults to none.
	WhileRegistered func(ctx context.Context, r Registered)
	// TakeOnRequest has Run lease no task on its own. Only [Registered.TakeTask] does. Defaults to false.
	TakeOnRequest bool
	// Unregistered leaves the registry alone: no record, no heartbeats, and
	// leases end by their own deadline only. Defaults to false: Run registers,
	// unless the server is of a version without a registry.
	Unregistered bool

	// Command is the agent: a program and its arguments, never a shell line.
	// Required unless Launcher or Preset is set.
	Command []string
	// Preset is the coding agent to start. Command, which then defaults to its
	// program on PATH, adds arguments to its own. Defaults to none: Command is
	// started as it is.
	Preset agents.Preset
	// PicketPath is the picket program, which agents may be told to call: see
	// PresetLauncher. Defaults to none.
	PicketPath string
	// Env names variables of the adapter's own environment that the agent gets
	// in addition to the usual ones. Defaults to none. Names with the prefix PICKET_
	// are refused: the lease is the only secret an agent gets.
	Env []string
	// Containment is how the agent's process tree is held together, one of
	// picket.Containments. Defaults to the best that works here. It is for
	// Command; a Launcher has its own way.
	Containment string
	// Limits bound what an agent, and the programs run beside it, take of the
	// machine. Defaults to 8192 processes for a tree, and for each program of the
	// tool exec to 2048 processes and half of the machine's memory. They are for
	// Command and Preset; a Launcher has its own way.
	Limits process.Limits
	// Launcher starts the agent process. Defaults to CommandLauncher for
	// Command.
	Launcher process.Launcher

	// Workspace says where the agent works. Defaults to workspace.Empty.
	Workspace workspace.Kind
	// WorkspaceRoot holds the directories of all kinds except workspace.Here. Defaults to
	// "workspaces" in StateDir.
	WorkspaceRoot string
	// Dir is the directory of workspace.Here, and what a copy or a worktree is
	// made of. Defaults to the current one.
	Dir string
	// Resume says what the next run of a task does with its directory. Defaults to workspace.ResumeReuse.
	Resume workspace.Resume
	// WorkspaceRemote is the URL of a git repository to which the branch of each run is pushed, and from
	// which another machine takes it. See workspace.CheckRemote. It needs workspace.Worktree. Defaults
	// to none.
	WorkspaceRemote string
	// KeepWorkspaces is how long a directory is kept at least after the end of
	// its run, though the server says that it is due. Defaults to 0.
	KeepWorkspaces time.Duration
	// StateDir holds one directory per run with its task, its last report and
	// its full output. Defaults to picket/adapter in $XDG_STATE_HOME, which
	// itself defaults to ~/.local/state.
	StateDir string
	// StateKey encrypts the credentials of leases in StateDir, which agents of the
	// same user can read. Adapters that give back each other's leases after a
	// crash need the same one. Defaults to Key.
	StateKey picket.Secret
	// KeepRuns is how long the state of an ended run is kept. Defaults to 7 days.
	KeepRuns time.Duration
	// LogLimit bounds the kept output of a run in bytes a stream. Defaults to
	// 64 MiB.
	LogLimit int64

	// Linger is how long an agent that called mark_complete or request_human_help may take to exit.
	// A negative value gives it no time. Defaults to 10 s, or a minute for a coding agent of
	// Preset, which tells what it has cost at its very end.
	Linger time.Duration
	// Grace is what lies between SIGTERM and SIGKILL; negative is nothing.
	// Defaults to 5 s.
	Grace time.Duration
	// ReportRetry is how long an ended run's report is retried after its lease
	// while the proxy does not answer. Defaults to 30 s.
	ReportRetry time.Duration

	// Timeout ends a run whose task sets no timeout, after 1 s to 7 days. A negative value sets
	// no limit. Defaults to none, or to Preset.Timeout for a coding agent of Preset.
	Timeout time.Duration
	// StallAfter is the silence, from 2 s to 24 h, after which a run is nudged, and ended after as
	// long again, if its task does not set it. A negative value means never. Defaults to
	// never, or to Preset.StallAfter for a coding agent of Preset.
	StallAfter time.Duration

	// AgentName is what launcher events call the agent, 1 to 128 letters, digits
	// or _ . -. Defaults to the first that there is of the task's role, Role, the
	// name of the program and AgentID.
	AgentName string
	// ProgressTick says how often a running agent is reported. Defaults to every 30 s, with a
	// warning when 80 % of the task's timeout are over.
	ProgressTick ProgressTickConfig
	// OnProgressTick is called at every progress tick with the time that the agent of a run has
	// run. It is a simpler form of OnEvent, is called from several goroutines, and must return
	// quickly. Defaults to nothing.
	OnProgressTick func(Elapsed)

	// Stdout and Stderr get a copy of the agents' output, the lease token
	// redacted. A writer that does not keep up loses output, not the agent
	// time. They are never written to at the same time. Default to none.
	Stdout io.Writer
	Stderr io.Writer
	// OutputOf is the task whose runs Stdout and Stderr get a copy of. Defaults
	// to every task's.
	OutputOf string
	// OnEvent is told what happens, from several goroutines; it must return
	// quickly. Defaults to nothing.
	OnEvent func(Event)
	// Log gets the adapter's own log. Defaults to none.
	Log *slog.Logger

	copying      *sync.Mutex          // held while Stdout or Stderr is written to: both may be the same terminal
	agentIDGiven bool                 // AgentID was given
	repo         workspace.Repository // that Dir is in; of workspace.Worktree
	onStep       func(point string)   // for tests: called for every step of a workspace
	pushEvery    time.Duration        // for tests: how often a branch that has moved is pushed or handed in

	// renewals are those of the leases of this process.
	renewals *renewals.Group
	// clock reads a clock that counts time in suspend, too.
	clock func() time.Duration
	// jitter picks a time from 0 up to d.
	jitter func(d time.Duration) time.Duration
}

// request is what is asked of the orchestrator to get up to n leases.
func (cfg *Config) request(n int) picket.AcquireRequest {
	wait := int(cfg.Wait / time.Second)
	req := picket.AcquireRequest{
		AgentID:      cfg.AgentID,
		Role:         cfg.Role,
		Capabilities: cfg.Capabilities,
		PinnedOnly:   cfg.PinnedOnly,
		Max:          &n,
		WaitSeconds:  &wait,
	}
	if cfg.Workspace != workspace.Here {
		req.WorkspaceRoot = cfg.WorkspaceRoot
	}
	return req
}

// requestWithJitter is request with a wait of its own length, at most a fifth shorter:
// workers that began to wait together do not come back together.
func (cfg *Config) requestWithJitter(n int) picket.AcquireRequest {
	req := cfg.request(n)
	*req.WaitSeconds -= int(cfg.jitter(cfg.Wait/5+1) / time.Second)
	return req
}

// launcher is what starts the agents of a configuration.
func (cfg *Config) launcher() (process.Launcher, error) {
	if cfg.Preset != "" {
		if err := cfg.Preset.Check(); err != nil {
			return nil, err
		}
	}
	command := process.CommandLauncher{
		Command:     cfg.Command,
		Env:         cfg.Env,
		Containment: cfg.Containment,
		Limits:      cfg.Limits,
	}
	switch {
	case cfg.Preset.CodingAgent():
		return PresetLauncher{
			CommandLauncher: command,
			Preset:          cfg.Preset,
			PicketPath:      cfg.PicketPath,
			Sessions:        filepath.Join(cfg.StateDir, "sessions"),
			HTTP:            cfg.HTTP,
		}, nil
	case len(cfg.Command) == 0:
		return nil, picket.Invalid("Command", "Name the program to run and its arguments.",
			"there is no command to run")
	}
	return command, nil
}

// instanceKey is the member of the metadata that distinguishes the registrations of one id. By it
// the next process on this machine knows that the process that registered is dead.
const instanceKey = "instance"

// registrationRequest is the registration of this adapter.
func (cfg *Config) registrationRequest(instance string) (picket.Registration, error) {
	about := map[string]any{"version": buildVersion(), "platform": runtime.GOOS + "/" + runtime.GOARCH}
	if h, ok := cfg.Launcher.(process.ContainmentPlanner); ok {
		about["containment"] = h.PlannedContainment()
	}
	if _, taken := cfg.Metadata[instanceKey]; taken {
		return picket.Registration{},
			picket.Invalid("Metadata", "Give it another name.", "the adapter sets %q itself", instanceKey)
	}
	maps.Copy(about, cfg.Metadata)
	about[instanceKey] = instance
	raw, err := json.Marshal(about, json.Deterministic(true))
	if err != nil {
		return picket.Registration{},
			picket.Invalid("Metadata", "Use what can be written as JSON.", "the metadata cannot be written: %v", err)
	}
	role := cfg.Role
	if cfg.Attached {
		role = picket.RoleAttached
	}
	drain := int(cfg.Health.DrainTimeout / time.Second)
	reg := picket.Registration{
		AgentID: cfg.AgentID, RoleID: role, Name: cfg.Name, Capabilities: cfg.Capabilities,
		Capacity: &picket.DeclaredCapacity{MaxConcurrentTasks: &cfg.Max}, Heartbeat: cfg.Health.thresholds(),
		DrainTimeoutSeconds: &drain, Metadata: raw,
	}
	return reg, reg.Normalize()
}

// agentName is what people call the agent: the first that there is of the
// configured name, the roles of task and adapter, the program and the worker.
func (cfg *Config) agentName(lease picket.Lease) string {
	program := ""
	if len(cfg.Command) > 0 {
		program = filepath.Base(cfg.Command[0])
		if picket.CheckName("", program) != nil {
			program = ""
		}
	}
	return cmp.Or(cfg.AgentName, lease.Task.Role, cfg.Role, program, cfg.AgentID)
}
