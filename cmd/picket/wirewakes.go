package main

import (
	"fmt"
	"path"

	"github.com/picket-dev/picket/budget"
	"github.com/picket-dev/picket/cmd/picket/settings"
	"github.com/picket-dev/picket/orchestrator"
	"github.com/picket-dev/picket/orchestrator/heartbeat"
	"github.com/picket-dev/picket/orchestrator/mirror"
)

// wakeSettings are the settings of picket.yaml, and the defaults of those that it cannot set.
func wakeSettings(cfg settings.Settings) heartbeat.Settings {
	s, w := heartbeat.Defaults(), cfg.Wake
	if w == (settings.Wake{}) { // settings that no file was read for
		return s
	}
	s.Enabled, s.AllowActiveHoursPreferences = w.Enabled, w.AllowActiveHoursPreferences
	s.MinInterval, s.DefaultInterval = w.MinInterval, w.DefaultInterval
	s.MaxBodyBytes, s.Dir = w.MaxBodyBytes, w.Dir
	s.ContextProjectionBytes = min(w.ContextProjectionBytes, s.MaxBodyBytes)
	s.WakeCooldown, s.MaxWakesPerCycle, s.WakeEventRetention = w.WakeCooldown, w.MaxWakesPerCycle, w.WakeEventRetention
	s.SessionHealthHookMinInterval = w.SessionHealthHookMinInterval
	s.SessionHealthStaleAfter, s.WhenIdle = w.SessionHealthStaleAfter, w.WhenIdle
	return s
}

// unmeteredAgents are the agent names with unmetered: true.
func unmeteredAgents(cfg settings.Settings) map[string]bool {
	names := map[string]bool{}
	for _, a := range cfg.AgentEntries() {
		if a.Unmetered {
			names[a.Name] = true
		}
	}
	return names
}

// sessionLimits are what the settings let agent sessions spend.
func sessionLimits(cfg settings.Settings) *orchestrator.SessionLimits {
	limits := orchestrator.DefaultSessionLimits()
	if cfg.Wake != (settings.Wake{}) { // settings that a file was read for
		limits.Namespace = cfg.Wake.Budget
	}
	limits.Names = map[string]orchestrator.SessionNameLimits{}
	for _, a := range cfg.AgentEntries() {
		if a.WakeBudget == nil && a.PromptsBudget == nil && a.PromptBudget == nil {
			continue
		}
		own := limits.Others
		for to, given := range map[*budget.Money]*budget.Money{&own.Wakes: a.WakeBudget, &own.Prompts: a.PromptsBudget,
			&own.Each: a.PromptBudget} {
			if given != nil {
				*to = *given
			}
		}
		limits.Names[a.Name] = own
	}
	return &limits
}

// checkAgentFile refuses the text of a file of an agent name that the server would not use.
func checkAgentFile(at, text string) error {
	_, found := heartbeat.ParseInstructions([]byte(text), at)
	if path.Base(at) == "HEARTBEAT.md" {
		_, found = heartbeat.Parse([]byte(text), heartbeat.Options{Settings: heartbeat.Defaults(), SourcePath: at})
	}
	for _, d := range found {
		if d.Severity == heartbeat.SeverityError {
			return fmt.Errorf("%s:%d: %s", at, max(d.Line, 1), d.Message)
		}
	}
	return nil
}

// workspaceAgents are the trusted files of agent names beside picket.yaml.
func workspaceAgents(cfg settings.Settings) (map[string]mirror.WorkspaceAgent, error) {
	texts, err := cfg.TrustedAgentFiles()
	agents := map[string]mirror.WorkspaceAgent{}
	for at, text := range texts {
		dir, file := path.Split(at)
		name := path.Base(dir)
		a := agents[name]
		if file == "HEARTBEAT.md" {
			a.Policy = &text
		} else {
			a.Instructions = &text
		}
		agents[name] = a
	}
	return agents, err
}
