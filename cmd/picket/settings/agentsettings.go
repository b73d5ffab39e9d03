package settings

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/picket-dev/picket/adapter/agents"
	"github.com/picket-dev/picket/cmd/picket/cli/term"
)

// agentSetting is one key of an entry under `agents:` in picket.yaml. The first
// nine are those of RFC-0016 section 12.
type agentSetting struct {
	Key   string // dotted, inside the entry
	list  bool
	What  string
	check func(string) error // of each item; nil: any text
	field string             // of the request that its value goes into
}

// AgentSettings are all keys of an entry, in the order in which they are shown.
var AgentSettings = []agentSetting{
	{"role_id", false, "the role its workers have and its tasks name (default: the entry's name)", nil, "/role_id"},
	{"capabilities", true, "what its workers offer", nil, "/capabilities"},
	{"capacity.max_concurrent_tasks", false, "how many leases a worker holds at once", checkNumber,
		"/capacity/max_concurrent_tasks"},
	{"heartbeat.interval_seconds", false, "how often a worker tells the server that it lives", checkNumber,
		"/heartbeat_config/interval_seconds"},
	{"heartbeat.unhealthy_after_seconds", false, "silence after which it is unhealthy", checkNumber,
		"/heartbeat_config/unhealthy_after_seconds"},
	{"heartbeat.dead_after_seconds", false, "silence after which it is dead and its leases end", checkNumber,
		"/heartbeat_config/dead_after_seconds"},
	{"drain_timeout_seconds", false, "how long a drain waits for its tasks", checkNumber, "/drain_timeout_seconds"},
	{"pool.min_instances", false, "advice for anyone who starts workers: at least this many", checkNumber, ""},
	{"pool.max_instances", false, "and at most this many", checkNumber, ""},
	{"launch.preset", false,
		"the coding agent a worker starts: claude, codex, gemini, opencode, or exec for launch.command", checkPreset,
		"Preset"},
	{"launch.command", true, "what a worker starts for each task: a program and its arguments", checkArgument,
		"Command"},
	{"launch.env", true, "variables the agent gets beside the usual ones, by name", checkVariable, "Env"},
	{"linger", false, "time an agent gets to end on its own after it handed in its result", checkKeep, ""},
	{"workspace.source", false, "where its agents work: here, worktree, copy or empty", checkSource, ""},
	{"workspace.resume", false, "what the next run of a task begins with: reuse, copy or fresh", checkResume, ""},
	{"workspace.keep", false, "how long a workspace is kept at least after its run", checkKeep, ""},
	{"timeout", false, "a run of its tasks is killed after this time", checkTimeout, "/timeoutSeconds"},
	{"stall_after", false, "a run without a sign of life for this time is nudged, and ended after as long again",
		checkStall, "/stallAfterSeconds"},
	{"budget", false, "dollars that the paid calls of its tasks may cost", checkDollars, "/budgetEnvelope"},
	{"retry.max_attempts", false, "how many runs that fail its tasks get at most", checkNumber, "/retry/maxAttempts"},
	{"retry.on", true, "ends that are tried again: crash, timeout, stalled, no_result", nil, "/retry/on"},
	{"retry.backoff", false, "pause before the second retry, then doubling", checkKeep, "/retry/backoffSeconds"},
	{"escalate", false, "where a task goes that is not retried: human or fail", nil, "/escalate"},
	{"review", false, "who decides the result: human or none", nil, "/review"},
	{"on_exit", false, "exit 0 without mark_complete means: fail or complete", nil, "/onExit"},
}

func agentSettingNamed(key string) (agentSetting, bool) {
	for _, k := range AgentSettings {
		if k.Key == key {
			return k, true
		}
	}
	return agentSetting{}, false
}

// agentSection reports whether a word opens a mapping inside an entry.
func agentSection(word string) bool {
	for _, k := range AgentSettings {
		if strings.HasPrefix(k.Key, word+".") {
			return true
		}
	}
	return false
}

// agentSettingNames are the keys of a section; "" is the top of an entry.
func agentSettingNames(section string) []string {
	var names []string
	last := ""
	for _, k := range AgentSettings {
		rest, ok := strings.CutPrefix(k.Key, section)
		if section != "" && ok {
			rest, ok = strings.CutPrefix(rest, ".")
		}
		name, _, _ := strings.Cut(rest, ".")
		if ok && name != last {
			names, last = append(names, name), name
		}
	}
	return names
}

func checkNumber(text string) error {
	if n, err := strconv.Atoi(text); err != nil || n < 0 {
		return fmt.Errorf("%s is not a whole number", term.ShellQuote(text))
	}
	return nil
}

func checkPreset(text string) error {
	if slices.Contains(agents.Presets, agents.Preset(text)) {
		return nil
	}
	return fmt.Errorf("there is no agent called %s; choose one of: %s", term.ShellQuote(text), PresetNames())
}

func checkArgument(text string) error {
	if strings.ContainsRune(text, 0) {
		return errors.New("it holds a zero byte")
	}
	return nil
}

func checkVariable(text string) error {
	if name, _, given := strings.Cut(text, "="); given {
		return fmt.Errorf("%s: write only the name, %s; its value is taken from the worker's environment",
			term.ShellQuote(text),
			term.ShellQuote(name))
	}
	if strings.HasPrefix(text, "PICKET_") || text == "" || strings.ContainsRune(text, 0) {
		return fmt.Errorf("the variable %s cannot be passed to an agent", term.ShellQuote(text))
	}
	return nil
}

func checkTimeout(text string) error {
	if d, err := time.ParseDuration(text); err != nil || d < time.Second || d%time.Second != 0 {
		return fmt.Errorf("%s is not a whole number of seconds from 1s on, such as 10m", term.ShellQuote(text))
	}
	return nil
}

// PresetNames are all agents that are known, for people.
func PresetNames() string {
	var names []string
	for _, p := range agents.Presets {
		names = append(names, string(p))
	}
	return strings.Join(names, ", ")
}
