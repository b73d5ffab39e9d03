package main

import (
	"testing"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/budget"
	"github.com/picket-dev/picket/cmd/picket/settings"
)

// Agents of a role that has an endpoint have the address of theirs, and no other agents have.
func TestAgentEndpoint(t *testing.T) {
	var cfg settings.Settings
	if (serverProcess{cfg: cfg}).agentEndpoint("http://own") != nil {
		t.Error("without pools there are endpoints")
	}
	cfg.Agents = map[string]settings.Agent{"tester": {}, "builder": {Name: "builder",
		A2A: settings.A2A{Enabled: true, Budget: new(budget.Money), MaxQueue: new(5)}}}
	cfg.PublicURL = "https://picket.example/base/"
	of := serverProcess{cfg: cfg}.agentEndpoint("http://own")
	for want, at := range map[string][3]string{
		"https://picket.example/base/agents/builder/instances/b1":        {"default", "builder", "b1"},
		"https://picket.example/base/n/team/agents/builder/instances/b2": {"team", "builder", "b2"},
		"": {"default", "tester", "t1"},
	} {
		if got := of(at[0], picket.Agent{RoleID: at[1], AgentID: at[2]}); got != want {
			t.Errorf("%v: %s, want %s", at, got, want)
		}
	}
}
