package settings

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/adapter/agents"
	"github.com/picket-dev/picket/budget"
	"github.com/picket-dev/picket/cmd/picket/cli/exit"
	"github.com/picket-dev/picket/cmd/picket/cli/term"
)

// Agent is an entry under agents in picket.yaml. It describes the workers of a role, and the
// tasks of the role that do not say otherwise. A key that is not given has the zero value.
// The first nine keys are those of RFC-0016 section 12.
type Agent struct {
	Name string // of the entry

	RoleID       string   `yaml:"role_id" field:"/role_id" doc:"The role that its workers have and its tasks name. The default is the name of the entry."`
	Capabilities []string `yaml:"capabilities" field:"/capabilities" doc:"What its workers offer."`
	Capacity     struct {
		MaxConcurrentTasks *int `yaml:"max_concurrent_tasks" check:"number" field:"/capacity/max_concurrent_tasks" doc:"How many leases a worker holds at once."`
	} `yaml:"capacity"`
	// Heartbeat has the fields of picket.Thresholds.
	Heartbeat struct {
		IntervalSeconds       *int `yaml:"interval_seconds" check:"number" field:"/heartbeat_config/interval_seconds" doc:"How often a worker sends a heartbeat."`
		UnhealthyAfterSeconds *int `yaml:"unhealthy_after_seconds" check:"number" field:"/heartbeat_config/unhealthy_after_seconds" doc:"The silence after which a worker is unhealthy."`
		DeadAfterSeconds      *int `yaml:"dead_after_seconds" check:"number" field:"/heartbeat_config/dead_after_seconds" doc:"The silence after which a worker is dead and its leases end."`
	} `yaml:"heartbeat"`
	DrainTimeoutSeconds *int `yaml:"drain_timeout_seconds" check:"number" field:"/drain_timeout_seconds" doc:"How long a drain waits for the worker's tasks."`
	// Pool has the fields of picket.PoolAdvice. Nothing enforces it.
	Pool struct {
		MinInstances *int `yaml:"min_instances" check:"number" doc:"The least number of workers, as advice for anyone who starts workers."`
		MaxInstances *int `yaml:"max_instances" check:"number" doc:"The greatest number of workers, as advice as well."`
	} `yaml:"pool"`
	Launch struct {
		Preset  string   `yaml:"preset" check:"preset" field:"Preset" doc:"The coding agent that a worker starts: claude, codex, gemini or opencode. exec stands for launch.command."`
		Command []string `yaml:"command" check:"argument" field:"Command" show:"shell" doc:"What a worker starts for each task: a program and its arguments."`
		Env     []string `yaml:"env" check:"variable" field:"Env" doc:"The names of the variables that the agent gets in addition to the usual ones."`
	} `yaml:"launch"`
	Remote  Remote `yaml:"remote"`
	Session struct {
		Max      int                `yaml:"max" check:"sessions" doc:"How many sessions of the coding agent a worker keeps, which people can prompt."`
		Only     bool               `yaml:"only" check:"yes_no" doc:"Whether its workers take tasks only when a session asks for one."`
		Kind     picket.SessionKind `yaml:"kind" check:"kind" doc:"How its sessions are kept: resumable or resident. The default is the one of the coding agent."`
		IdleStop time.Duration      `yaml:"idle_stop" check:"duration" doc:"The process of a resident session is ended when it got no prompt for this time. The next prompt starts it again. The default is never."`
	} `yaml:"session"`
	Unmetered     bool           `yaml:"unmetered" check:"yes_no" doc:"Whether the scheduler may wake those of its sessions whose model calls do not go through the tool proxy, so that no budget limits what a wake costs. The server reads it."`
	WakeBudget    *budget.Money  `yaml:"wake_budget" check:"dollars" doc:"The dollars that the wakes of its sessions may spend through the tool proxy on a UTC day. The default is 0.5. The server reads it."`
	PromptsBudget *budget.Money  `yaml:"prompts_budget" check:"dollars" doc:"The dollars that the prompts of people to its sessions may spend through the tool proxy on a UTC day. The default is 2. The server reads it."`
	PromptBudget  *budget.Money  `yaml:"prompt_budget" check:"dollars" doc:"The dollars that one prompt or wake of its sessions may spend through the tool proxy. The default is 0.1. The server reads it."`
	Linger        *time.Duration `yaml:"linger" check:"keep" doc:"The time that an agent gets to exit after it handed in its result."`
	// Launcher, Workspace, Timeout and StallAfter override the keys of General with the same names.
	Launcher struct {
		HeartbeatInterval *time.Duration `yaml:"heartbeat_interval" check:"tick" doc:"How often its running agents are reported by the event agent-heartbeat."`
		TimeoutWarning    *Share         `yaml:"timeout_warning" check:"share" doc:"The share of a run's timeout after which one warning is written."`
	} `yaml:"launcher"`
	Workspace struct {
		Source string         `yaml:"source" check:"source" doc:"Where its agents work: here, worktree, copy or empty."`
		Resume string         `yaml:"resume" check:"resume" doc:"What the next run of a task begins with: reuse, copy or fresh."`
		Keep   *time.Duration `yaml:"keep" check:"keep" doc:"How long a workspace is kept at least after its run."`
	} `yaml:"workspace"`
	Timeout    *time.Duration `yaml:"timeout" check:"timeout" field:"/timeoutSeconds" doc:"A run of its tasks is killed after this time."`
	StallAfter time.Duration  `yaml:"stall_after" check:"stall" field:"/stallAfterSeconds" doc:"A run without a sign of life for this time is nudged, and it is ended after twice this time."`
	Budget     *budget.Money  `yaml:"budget" check:"dollars" field:"/budgetEnvelope" doc:"The dollars that the paid calls of its tasks may cost."`
	Retry      struct {
		MaxAttempts *int               `yaml:"max_attempts" check:"number" field:"/retry/maxAttempts" doc:"How many failed runs its tasks get at most."`
		On          []picket.ExitClass `yaml:"on" field:"/retry/on" doc:"The failures that are tried again: crash, timeout, stalled or no_result."`
		Backoff     *time.Duration     `yaml:"backoff" check:"keep" field:"/retry/backoffSeconds" doc:"The pause before the second retry. It doubles with each one."`
	} `yaml:"retry"`
	Escalate picket.Escalate `yaml:"escalate" field:"/escalate" doc:"Where a task goes that is not retried: human or fail."`
	Review   picket.ReviewBy `yaml:"review" field:"/review" doc:"Who decides the result: human or none."`
	OnExit   picket.OnExit   `yaml:"on_exit" field:"/onExit" doc:"What exit 0 without mark_complete means: fail or complete."`

	A2A    A2A              `yaml:"a2a"`
	Card   Card             `yaml:"card"`
	Skills map[string]Skill `yaml:"skills" name:"capability"` // by capability

	values map[string]Value // of the settings that the entry is part of
}

// AgentEntries returns all entries, by name.
func (s Settings) AgentEntries() []Agent {
	return slices.SortedFunc(maps.Values(s.Agents), func(a, b Agent) int { return cmp.Compare(a.Name, b.Name) })
}

// AgentNamed returns the entry of a name. The error names the entries that exist.
func (s Settings) AgentNamed(name string) (Agent, error) {
	if e, ok := s.Agents[name]; ok {
		return e, nil
	}
	names := slices.Sorted(maps.Keys(s.Agents))
	err := exit.Usagef("picket.yaml has no agent %s", term.ShellQuote(name))
	switch near := term.Nearest(name, names); {
	case near != "":
		err.Remedy = "Did you mean " + term.ShellQuote(near) + "?"
	case len(names) > 0:
		err.Remedy = "Choose one of: " + strings.Join(names, ", ")
	default:
		err.Remedy = "Add it under agents: in picket.yaml, or leave --as out and give flags."
	}
	return Agent{}, err
}

// AgentOfRole returns the entry of a role.
func (s Settings) AgentOfRole(role string) (Agent, bool) {
	for _, e := range s.AgentEntries() {
		if role != "" && e.Role() == role {
			return e, true
		}
	}
	return Agent{}, false
}

// ForRole returns the settings as they hold for a role. What its entry gives stands between
// the environment and the general keys of the file.
func (s Settings) ForRole(role string) Settings {
	e, ok := s.AgentOfRole(role)
	if !ok {
		return s
	}
	yields := func(key string) bool { return !s.values[key].overrides }
	if e.Timeout != nil && yields("timeout") {
		s.Timeout = *e.Timeout
	}
	if e.StallAfter != 0 && yields("stall_after") {
		s.StallAfter = e.StallAfter
	}
	if d := e.Launcher.HeartbeatInterval; d != nil && yields("launcher.heartbeat_interval") {
		s.Launcher.HeartbeatInterval = *d
	}
	if w := e.Launcher.TimeoutWarning; w != nil && yields("launcher.timeout_warning") {
		s.Launcher.TimeoutWarning = *w
	}
	if e.Workspace.Source != "" && yields("workspace.source") {
		s.Workspace.Source = e.Workspace.Source
	}
	if e.Workspace.Resume != "" && yields("workspace.resume") {
		s.Workspace.Resume = e.Workspace.Resume
	}
	if e.Workspace.Keep != nil && yields("workspace.keep") {
		s.Workspace.Keep = *e.Workspace.Keep
	}
	return s
}

// ForPreset returns the settings for a coding agent: a limit that nothing sets is that of its
// preset.
func (s Settings) ForPreset(p agents.Preset) Settings {
	s.Timeout = cmp.Or(s.Timeout, p.Timeout())
	s.StallAfter = cmp.Or(s.StallAfter, p.StallAfter())
	return s
}

// fillPresetLimits gives every entry of a coding agent the limits of its preset, unless the
// entry or a general key sets them.
func (s Settings) fillPresetLimits() {
	for name, e := range s.Agents {
		p := agents.Preset(e.Launch.Preset)
		if d := p.Timeout(); d > 0 && e.Timeout == nil && s.Timeout == 0 {
			e.Timeout = &d
			s.values[agentKey(name, "timeout")] = Value{Text: d.String(), Origin: "default"}
		}
		if d := p.StallAfter(); d > 0 && e.StallAfter == 0 && s.StallAfter == 0 {
			e.StallAfter = d
			s.values[agentKey(name, "stall_after")] = Value{Text: d.String(), Origin: "default"}
		}
		s.Agents[name] = e
	}
}

// seconds returns d in whole seconds, rounded up; nil if it is not given.
func seconds(d *time.Duration) *int {
	if d == nil {
		return nil
	}
	return new(int(math.Ceil(d.Seconds())))
}

// Origin returns the place of a key, of its section, or of the entry.
func (e Agent) Origin(key string) string {
	section, _, _ := strings.Cut(key, ".")
	for _, at := range []string{key, section} {
		if v, ok := e.values[agentKey(e.Name, at)]; ok {
			return v.Origin
		}
	}
	return e.values[agentKey(e.Name, "")].Origin
}

// Role is the role of the entry: its role_id, or else its name.
func (e Agent) Role() string { return cmp.Or(e.RoleID, e.Name) }

// registration is what a worker of the entry says about itself.
func (e Agent) registration() picket.Registration {
	reg := picket.Registration{
		RoleID:              e.Role(),
		Capabilities:        e.Capabilities,
		DrainTimeoutSeconds: e.DrainTimeoutSeconds,
		Heartbeat:           new(picket.Thresholds(e.Heartbeat)),
	}
	if n := e.Capacity.MaxConcurrentTasks; n != nil {
		reg.Capacity = &picket.DeclaredCapacity{MaxConcurrentTasks: n}
	}
	return reg
}

// TaskOf is what a task of the entry's role is like if the person who submits it says nothing
// else. timeout and stall_after come through [Settings.ForRole].
func (s Settings) TaskOf(e Agent) picket.TaskSpec {
	spec := picket.TaskSpec{
		Role: e.Role(), Escalate: e.Escalate, Review: e.Review, OnExit: e.OnExit,
	}
	if e.Budget != nil {
		spec.BudgetEnvelope = &budget.Envelope{USD: *e.Budget, Tokens: s.Budget.Default.Tokens}
	}
	if r := e.Retry; r.MaxAttempts != nil || r.Backoff != nil || len(r.On) > 0 {
		spec.Retry = &picket.Retry{MaxAttempts: r.MaxAttempts, BackoffSeconds: seconds(r.Backoff), On: r.On}
	}
	return spec
}

// Env returns the variables of the entry and those of the command line.
func (e Agent) Env(more []string) []string {
	all := slices.Clone(e.Launch.Env)
	for _, name := range more {
		if !slices.Contains(all, name) {
			all = append(all, name)
		}
	}
	return all
}

// Advice returns the advice of all pools that have any, by role.
func (s Settings) Advice() map[string]picket.PoolAdvice {
	all := map[string]picket.PoolAdvice{}
	for _, e := range s.Agents {
		if e.Pool.MinInstances != nil || e.Pool.MaxInstances != nil {
			all[e.Role()] = picket.PoolAdvice(e.Pool)
		}
	}
	return all
}

// checkAgents holds every entry against what the server would accept.
func (s Settings) checkAgents() error {
	roles := map[string]Agent{}
	for _, e := range s.AgentEntries() {
		if other, taken := roles[e.Role()]; taken {
			return picket.Refuse(exit.CodeUsage,
				"A role is one pool: write one entry for it, or give one of them another role_id.",
				"%s: the role %s is that of agents.%s already, at %s", e.Origin("role_id"), term.ShellQuote(e.Role()), other.Name, other.Origin("role_id"))
		}
		roles[e.Role()] = e
		if err := e.check(s.TaskOf(e)); err != nil {
			return err
		}
	}
	return nil
}

func (e Agent) check(spec picket.TaskSpec) error {
	reg := e.registration()
	spec.Title = e.Name
	for _, refusal := range []error{reg.Normalize(), spec.Normalize()} {
		if refusal != nil {
			return e.settingError(refusal)
		}
	}
	refuse := e.refuse
	command := e.Launch.Command
	switch least, most := e.Pool.MinInstances, e.Pool.MaxInstances; {
	case least != nil && most != nil && *least > *most:
		return refuse("pool.min_instances", fmt.Sprintf("is %d, more than max_instances (%d)", *least, *most),
			"Make min_instances at most max_instances.")
	case command != nil && (len(command) == 0 || command[0] == ""):
		return refuse("launch.command", "names no program", "Write a program and its arguments: [./agent.sh, --fast]")
	case e.Launch.Preset == string(agents.PresetExec) && len(command) == 0:
		return refuse("launch.preset", "is exec, and no command is given",
			"Add the command: launch: {preset: exec, command: [./agent.sh]}")
	}
	return cmp.Or(e.checkRemote(), e.checkSession(refuse), e.checkA2A(), e.checkCard(), e.checkSkills())
}

// refuse is the refusal of a key of the entry, whose message begins with the place and the name of the key.
func (e Agent) refuse(key, message, remedy string) error {
	return picket.Refuse(exit.CodeUsage, remedy, "%s: agents.%s.%s %s", e.Origin(key), e.Name,
		strings.ReplaceAll(key, PathSep, "."), message)
}

// checkSession refuses sessions that the coding agent cannot have. The agent may be named elsewhere: then the worker
// checks it.
func (e Agent) checkSession(refuse func(key, message, remedy string) error) error {
	preset := agents.Preset(e.Launch.Preset)
	if preset == "" && len(e.Launch.Command) > 0 {
		preset = agents.PresetExec
	}
	kind := e.Session.Kind
	if preset != "" {
		kinds := preset.SessionKinds()
		kind = cmp.Or(kind, kinds[0])
		if !slices.Contains(kinds, kind) {
			return refuse("session.kind", fmt.Sprintf("is %s, and %s", kind, preset.SessionKindRefusal()),
				fmt.Sprintf("Leave session.kind out, or write %s.", kinds[0]))
		}
	}
	switch {
	case e.Session.IdleStop > 0 && kind == picket.SessionResumable:
		return refuse("session.idle_stop", "is given, and a resumable session has no process between prompts",
			"Leave session.idle_stop out, or set session.kind to resident if the agent can be kept so.")
	case e.Session.IdleStop > 0 && e.Session.Max == 0:
		return refuse("session.idle_stop", "is given, and a worker keeps no sessions",
			"Set session.max to at least 1, or leave session.idle_stop out.")
	}
	return nil
}

// settingError puts the refusal of a request into the words and to the place of the
// key that filled it.
func (e Agent) settingError(err error) error {
	var refusal *picket.Error
	if !errors.As(err, &refusal) {
		return err
	}
	given, _ := refusal.Facts["field"].(string)
	for _, k := range keysOf(reflect.ValueOf(e)) {
		field := k.tag.Get("field")
		if field == "" || given != field && !strings.HasPrefix(given, field+"/") {
			continue
		}
		at, key := *refusal, "agents."+e.Name+"."+k.Name
		at.Facts = nil
		at.Message = strings.ReplaceAll(refusal.Message, given, key)
		if at.Message == refusal.Message {
			at.Message = key + ": " + at.Message
		}
		at.Message = e.Origin(k.Name) + ": " + at.Message
		at.Remedy = strings.ReplaceAll(refusal.Remedy, given, k.Name)
		if rest, ok := strings.CutPrefix(at.Remedy, "Send "); ok {
			at.Remedy = "Give " + rest
		}
		return &at
	}
	return err
}

// LocalWorkerCommand is the command that starts a worker as picket.yaml describes it,
// where a suggested one starts any worker of its role.
func (s Settings) LocalWorkerCommand(suggested string) string {
	role, ok := strings.CutPrefix(suggested, "picket adapter --role ")
	role, placeholder := strings.CutSuffix(role, " -- COMMAND")
	if e, known := s.AgentOfRole(role); ok && placeholder && known &&
		(e.Remote.URL != "" || len(e.Launch.Command) > 0 || agents.Preset(e.Launch.Preset).CodingAgent()) {
		return "picket adapter --as " + e.Name
	}
	return suggested
}
