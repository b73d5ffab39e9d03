package settings

import (
	"errors"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/adapter/agents"
	"github.com/picket-dev/picket/cmd/picket/cli/exit"
	"github.com/picket-dev/picket/cmd/picket/cli/term"
)

// AgentEntry is an entry under agents in picket.yaml: what workers of a role
// are like, and what tasks of the role are like that say nothing else.
type AgentEntry struct {
	Name string
	In   Settings
}

// AgentEntries are all entries, by name.
func (s Settings) AgentEntries() []AgentEntry {
	var all []AgentEntry
	for _, key := range slices.Sorted(maps.Keys(s)) {
		if name, ok := strings.CutSuffix(key, ":"); ok {
			all = append(all, AgentEntry{strings.TrimPrefix(name, agentsPrefix), s})
		}
	}
	return all
}

// AgentNamed is the entry of a name; the error names those there are.
func (s Settings) AgentNamed(name string) (AgentEntry, error) {
	var names []string
	for _, e := range s.AgentEntries() {
		if e.Name == name {
			return e, nil
		}
		names = append(names, e.Name)
	}
	err := exit.Usagef("picket.yaml has no agent %s", term.ShellQuote(name))
	switch near := term.Nearest(name, names); {
	case near != "":
		err.Remedy = "Did you mean " + term.ShellQuote(near) + "?"
	case len(names) > 0:
		err.Remedy = "Choose one of: " + strings.Join(names, ", ")
	default:
		err.Remedy = "Add it under agents: in picket.yaml, or leave --as out and give flags."
	}
	return AgentEntry{}, err
}

// AgentOfRole is the entry whose role it is.
func (s Settings) AgentOfRole(role string) (AgentEntry, bool) {
	for _, e := range s.AgentEntries() {
		if role != "" && e.Role() == role {
			return e, true
		}
	}
	return AgentEntry{}, false
}

// Value is what the entry gives for one of its keys, and whether it gives it.
func (e AgentEntry) Value(key string) (Value, bool) {
	v, ok := e.In[EntryKey(e.Name, key)]
	return v, ok && v.Items != nil
}

// Text is the value of a key, "" when it is not given.
func (e AgentEntry) Text(key string) string {
	if v, ok := e.Value(key); ok {
		return v.Items[0]
	}
	return ""
}

// List are the items of a key of the entry; nil when it does not give it.
func (e AgentEntry) List(key string) []string {
	v, _ := e.Value(key)
	return v.Items
}

// Number is the value of a key that checkNumber has checked; nil when it is not
// given.
func (e AgentEntry) Number(key string) *int {
	v, ok := e.Value(key)
	if !ok {
		return nil
	}
	n, _ := strconv.Atoi(v.Items[0])
	return &n
}

// Duration is the value of a key whose check has read it.
func (e AgentEntry) Duration(key string) (d time.Duration, given bool) {
	v, ok := e.Value(key)
	if !ok {
		return 0, false
	}
	d, _ = time.ParseDuration(v.Items[0])
	return d, true
}

// seconds is duration in whole seconds, rounded up; nil when it is not given.
func (e AgentEntry) seconds(key string) *int {
	d, ok := e.Duration(key)
	if !ok {
		return nil
	}
	n := int(math.Ceil(d.Seconds()))
	return &n
}

// Origin is the place of a key, of its section, or of the entry.
func (e AgentEntry) Origin(key string) string {
	section, _, _ := strings.Cut(key, ".")
	for _, at := range []string{key, section} {
		if v, ok := e.In[EntryKey(e.Name, at)]; ok {
			return v.Origin
		}
	}
	return e.In[EntryKey(e.Name, "")].Origin
}

// Role is the role of the entry: its role_id, else its name.
func (e AgentEntry) Role() string {
	if role := e.Text("role_id"); role != "" {
		return role
	}
	return e.Name
}

// registration is what a worker of the entry says of itself.
func (e AgentEntry) registration() picket.Registration {
	reg := picket.Registration{
		RoleID: e.Role(), Capabilities: e.List("capabilities"), DrainTimeoutSeconds: e.Number("drain_timeout_seconds"),
		Heartbeat: &picket.Thresholds{
			IntervalSeconds:       e.Number("heartbeat.interval_seconds"),
			UnhealthyAfterSeconds: e.Number("heartbeat.unhealthy_after_seconds"),
			DeadAfterSeconds:      e.Number("heartbeat.dead_after_seconds"),
		},
	}
	if n := e.Number("capacity.max_concurrent_tasks"); n != nil {
		reg.Capacity = &picket.DeclaredCapacity{MaxConcurrentTasks: n}
	}
	return reg
}

// Task is what a task of the entry's role is like when its maker says nothing
// else. stall_after comes through [settings.forRole].
func (e AgentEntry) Task() picket.TaskSpec {
	spec := picket.TaskSpec{
		Role: e.Role(), TimeoutSeconds: e.seconds("timeout"), Escalate: picket.Escalate(e.Text("escalate")),
		Review: picket.ReviewBy(e.Text("review")), OnExit: picket.OnExit(e.Text("on_exit")),
	}
	if text := e.Text("budget"); text != "" {
		envelope, _ := e.In.EnvelopeOf(text)
		spec.BudgetEnvelope = &envelope
	}
	retry := picket.Retry{MaxAttempts: e.Number("retry.max_attempts"), BackoffSeconds: e.seconds("retry.backoff")}
	for _, class := range e.List("retry.on") {
		retry.On = append(retry.On, picket.ExitClass(class))
	}
	if retry.MaxAttempts != nil || retry.BackoffSeconds != nil || retry.On != nil {
		spec.Retry = &retry
	}
	return spec
}

// Env are the variables of the entry and those of the command line.
func (e AgentEntry) Env(more []string) []string {
	all := slices.Clone(e.List("launch.env"))
	for _, name := range more {
		if !slices.Contains(all, name) {
			all = append(all, name)
		}
	}
	return all
}

// advice is what the entry says of its pool; nil when it says nothing.
func (e AgentEntry) advice() *picket.PoolAdvice {
	a := picket.PoolAdvice{MinInstances: e.Number("pool.min_instances"), MaxInstances: e.Number("pool.max_instances")}
	if a.MinInstances == nil && a.MaxInstances == nil {
		return nil
	}
	return &a
}

// Advice is that of all pools, by role.
func (s Settings) Advice() map[string]picket.PoolAdvice {
	all := map[string]picket.PoolAdvice{}
	for _, e := range s.AgentEntries() {
		if a := e.advice(); a != nil {
			all[e.Role()] = *a
		}
	}
	return all
}

// checkAgents holds every entry against what the server would accept.
func (s Settings) checkAgents() error {
	roles := map[string]AgentEntry{}
	for _, e := range s.AgentEntries() {
		if other, taken := roles[e.Role()]; taken {
			err := exit.Usagef("%s: the role %s is that of agents.%s already, at %s", e.Origin("role_id"),
				term.ShellQuote(e.Role()),
				other.Name, other.Origin("role_id"))
			err.Remedy = "A role is one pool: write one entry for it, or give one of them another role_id."
			return err
		}
		roles[e.Role()] = e
		if err := e.check(); err != nil {
			return err
		}
	}
	return nil
}

func (e AgentEntry) check() error {
	reg, spec := e.registration(), e.Task()
	spec.Title = e.Name
	for _, refusal := range []error{reg.Normalize(), spec.Normalize()} {
		if refusal != nil {
			return e.settingError(refusal)
		}
	}
	if a := e.advice(); a != nil && a.MinInstances != nil && a.MaxInstances != nil &&
		*a.MinInstances > *a.MaxInstances {
		err := exit.Usagef("%s: agents.%s.pool.min_instances is %d, more than max_instances (%d)",
			e.Origin("pool.min_instances"), e.Name, *a.MinInstances, *a.MaxInstances)
		err.Remedy = "Make min_instances at most max_instances."
		return err
	}
	if v, given := e.Value("launch.command"); given && (len(v.Items) == 0 || v.Items[0] == "") {
		err := exit.Usagef("%s: agents.%s.launch.command names no program", v.Origin, e.Name)
		err.Remedy = "Write a program and its arguments: [./agent.sh, --fast]"
		return err
	}
	if v, given := e.Value("launch.preset"); given && v.Items[0] == string(agents.PresetExec) &&
		len(e.List("launch.command")) == 0 {
		err := exit.Usagef("%s: agents.%s.launch.preset is exec, and no command is given", v.Origin, e.Name)
		err.Remedy = "Add the command: launch: {preset: exec, command: [./agent.sh]}"
		return err
	}
	return nil
}

// settingError puts the refusal of a request into the words and to the place of the
// key that filled it.
func (e AgentEntry) settingError(err error) error {
	var refusal *picket.Error
	if !errors.As(err, &refusal) {
		return err
	}
	field, _ := refusal.Facts["field"].(string)
	for _, k := range AgentSettings {
		if k.field == "" || field != k.field && !strings.HasPrefix(field, k.field+"/") {
			continue
		}
		said := *refusal
		said.Facts = nil
		key := DisplayKey(EntryKey(e.Name, k.Key))
		said.Message = strings.ReplaceAll(refusal.Message, field, key)
		if said.Message == refusal.Message {
			said.Message = key + ": " + said.Message
		}
		said.Remedy = strings.ReplaceAll(refusal.Remedy, field, k.Key)
		if rest, ok := strings.CutPrefix(said.Remedy, "Send "); ok {
			said.Remedy = "Give " + rest
		}
		return atPosition(e.Origin(k.Key), &said)
	}
	return err
}

// LocalWorkerCommand is the command that starts a worker as picket.yaml describes it,
// where a suggested one starts any worker of its role.
func (s Settings) LocalWorkerCommand(suggested string) string {
	role, ok := strings.CutPrefix(suggested, "picket adapter --role ")
	role, placeholder := strings.CutSuffix(role, " -- COMMAND")
	if e, known := s.AgentOfRole(role); ok && placeholder && known &&
		(len(e.List("launch.command")) > 0 || agents.Preset(e.Text("launch.preset")).CodingAgent()) {
		return "picket adapter --as " + e.Name
	}
	return suggested
}
