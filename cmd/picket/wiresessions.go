package main

import (
	"github.com/picket-dev/picket/budget"
	"github.com/picket-dev/picket/cmd/picket/settings"
	"github.com/picket-dev/picket/orchestrator"
)

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
