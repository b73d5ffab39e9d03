package main

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
)

// agentEntry is an entry under agents in picket.yaml: what workers of a role
// are like, and what tasks of the role are like that say nothing else.
type agentEntry struct {
	name string
	in   settings
}

// agentEntries are all entries, by name.
func (s settings) agentEntries() []agentEntry {
	var all []agentEntry
	for _, key := range slices.Sorted(maps.Keys(s)) {
		if name, ok := strings.CutSuffix(key, ":"); ok {
			all = append(all, agentEntry{strings.TrimPrefix(name, agentsPrefix), s})
		}
	}
	return all
}

// agentNamed is the entry of a name; the error names those there are.
func (s settings) agentNamed(name string) (agentEntry, error) {
	var names []string
	for _, e := range s.agentEntries() {
		if e.name == name {
			return e, nil
		}
		names = append(names, e.name)
	}
	err := usageError("picket.yaml has no agent %s", shellQuote(name))
	switch near := nearest(name, names); {
	case near != "":
		err.Remedy = "Did you mean " + shellQuote(near) + "?"
	case len(names) > 0:
		err.Remedy = "Choose one of: " + strings.Join(names, ", ")
	default:
		err.Remedy = "Add it under agents: in picket.yaml, or leave --as out and give flags."
	}
	return agentEntry{}, err
}

// agentOfRole is the entry whose role it is.
func (s settings) agentOfRole(role string) (agentEntry, bool) {
	for _, e := range s.agentEntries() {
		if role != "" && e.role() == role {
			return e, true
		}
	}
	return agentEntry{}, false
}

func (e agentEntry) value(key string) (value, bool) {
	v, ok := e.in[entryKey(e.name, key)]
	return v, ok && v.items != nil
}

// text is the value of a key, "" when it is not given.
func (e agentEntry) text(key string) string {
	if v, ok := e.value(key); ok {
		return v.items[0]
	}
	return ""
}

func (e agentEntry) list(key string) []string {
	v, _ := e.value(key)
	return v.items
}

// number is the value of a key that checkNumber has checked; nil when it is not
// given.
func (e agentEntry) number(key string) *int {
	v, ok := e.value(key)
	if !ok {
		return nil
	}
	n, _ := strconv.Atoi(v.items[0])
	return &n
}

// duration is the value of a key whose check has read it.
func (e agentEntry) duration(key string) (d time.Duration, given bool) {
	v, ok := e.value(key)
	if !ok {
		return 0, false
	}
	d, _ = time.ParseDuration(v.items[0])
	return d, true
}

// seconds is duration in whole seconds, rounded up; nil when it is not given.
func (e agentEntry) seconds(key string) *int {
	d, ok := e.duration(key)
	if !ok {
		return nil
	}
	n := int(math.Ceil(d.Seconds()))
	return &n
}

// origin is the place of a key, of its section, or of the entry.
func (e agentEntry) origin(key string) string {
	section, _, _ := strings.Cut(key, ".")
	for _, at := range []string{key, section} {
		if v, ok := e.in[entryKey(e.name, at)]; ok {
			return v.origin
		}
	}
	return e.in[entryKey(e.name, "")].origin
}

func (e agentEntry) role() string {
	if role := e.text("role_id"); role != "" {
		return role
	}
	return e.name
}

// registration is what a worker of the entry says of itself.
func (e agentEntry) registration() picket.Registration {
	reg := picket.Registration{
		RoleID: e.role(), Capabilities: e.list("capabilities"), DrainTimeoutSeconds: e.number("drain_timeout_seconds"),
		Heartbeat: &picket.Thresholds{
			IntervalSeconds:       e.number("heartbeat.interval_seconds"),
			UnhealthyAfterSeconds: e.number("heartbeat.unhealthy_after_seconds"),
			DeadAfterSeconds:      e.number("heartbeat.dead_after_seconds"),
		},
	}
	if n := e.number("capacity.max_concurrent_tasks"); n != nil {
		reg.Capacity = &picket.DeclaredCapacity{MaxConcurrentTasks: n}
	}
	return reg
}

// task is what a task of the entry's role is like when its maker says nothing
// else. stall_after comes through [settings.forRole].
func (e agentEntry) task() picket.TaskSpec {
	spec := picket.TaskSpec{
		Role: e.role(), TimeoutSeconds: e.seconds("timeout"), Escalate: picket.Escalate(e.text("escalate")),
		Review: picket.ReviewBy(e.text("review")), OnExit: picket.OnExit(e.text("on_exit")),
	}
	if text := e.text("budget"); text != "" {
		envelope, _ := e.in.envelopeOf(text)
		spec.BudgetEnvelope = &envelope
	}
	retry := picket.Retry{MaxAttempts: e.number("retry.max_attempts"), BackoffSeconds: e.seconds("retry.backoff")}
	for _, class := range e.list("retry.on") {
		retry.On = append(retry.On, picket.ExitClass(class))
	}
	if retry.MaxAttempts != nil || retry.BackoffSeconds != nil || retry.On != nil {
		spec.Retry = &retry
	}
	return spec
}

// env are the variables of the entry and those of the command line.
func (e agentEntry) env(more []string) []string {
	all := slices.Clone(e.list("launch.env"))
	for _, name := range more {
		if !slices.Contains(all, name) {
			all = append(all, name)
		}
	}
	return all
}

// advice is what the entry says of its pool; nil when it says nothing.
func (e agentEntry) advice() *picket.PoolAdvice {
	a := picket.PoolAdvice{MinInstances: e.number("pool.min_instances"), MaxInstances: e.number("pool.max_instances")}
	if a.MinInstances == nil && a.MaxInstances == nil {
		return nil
	}
	return &a
}

// advice is that of all pools, by role.
func (s settings) advice() map[string]picket.PoolAdvice {
	all := map[string]picket.PoolAdvice{}
	for _, e := range s.agentEntries() {
		if a := e.advice(); a != nil {
			all[e.role()] = *a
		}
	}
	return all
}

// checkAgents holds every entry against what the server would accept.
func (s settings) checkAgents() error {
	roles := map[string]agentEntry{}
	for _, e := range s.agentEntries() {
		if other, taken := roles[e.role()]; taken {
			err := usageError("%s: the role %s is that of agents.%s already, at %s", e.origin("role_id"),
				shellQuote(e.role()),
				other.name, other.origin("role_id"))
			err.Remedy = "A role is one pool: write one entry for it, or give one of them another role_id."
			return err
		}
		roles[e.role()] = e
		if err := e.check(); err != nil {
			return err
		}
	}
	return nil
}

func (e agentEntry) check() error {
	reg, spec := e.registration(), e.task()
	spec.Title = e.name
	for _, refusal := range []error{reg.Normalize(), spec.Normalize()} {
		if refusal != nil {
			return e.settingError(refusal)
		}
	}
	if a := e.advice(); a != nil && a.MinInstances != nil && a.MaxInstances != nil &&
		*a.MinInstances > *a.MaxInstances {
		err := usageError("%s: agents.%s.pool.min_instances is %d, more than max_instances (%d)",
			e.origin("pool.min_instances"), e.name, *a.MinInstances, *a.MaxInstances)
		err.Remedy = "Make min_instances at most max_instances."
		return err
	}
	if v, given := e.value("launch.command"); given && (len(v.items) == 0 || v.items[0] == "") {
		err := usageError("%s: agents.%s.launch.command names no program", v.origin, e.name)
		err.Remedy = "Write a program and its arguments: [./agent.sh, --fast]"
		return err
	}
	if v, given := e.value("launch.preset"); given && v.items[0] == string(agents.PresetExec) &&
		len(e.list("launch.command")) == 0 {
		err := usageError("%s: agents.%s.launch.preset is exec, and no command is given", v.origin, e.name)
		err.Remedy = "Add the command: launch: {preset: exec, command: [./agent.sh]}"
		return err
	}
	return nil
}

// settingError puts the refusal of a request into the words and to the place of the
// key that filled it.
func (e agentEntry) settingError(err error) error {
	var refusal *picket.Error
	if !errors.As(err, &refusal) {
		return err
	}
	field, _ := refusal.Facts["field"].(string)
	for _, k := range agentSettings {
		if k.field == "" || field != k.field && !strings.HasPrefix(field, k.field+"/") {
			continue
		}
		said := *refusal
		said.Facts = nil
		key := displayKey(entryKey(e.name, k.key))
		said.Message = strings.ReplaceAll(refusal.Message, field, key)
		if said.Message == refusal.Message {
			said.Message = key + ": " + said.Message
		}
		said.Remedy = strings.ReplaceAll(refusal.Remedy, field, k.key)
		if rest, ok := strings.CutPrefix(said.Remedy, "Send "); ok {
			said.Remedy = "Give " + rest
		}
		return atPosition(e.origin(k.key), &said)
	}
	return err
}
