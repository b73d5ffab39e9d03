package adapter

import (
	"testing"

	"github.com/picket-dev/picket"
)

// Both credentials of a noted lease open with the key that they were sealed
// with, each only as what it is and beside the same run.
func TestTheCredentialsOfANotedLeaseAreSealed(t *testing.T) {
	lease := picket.Lease{LeaseToken: "the adapter's", AgentToken: "the agent's"}
	note := leaseRecord{RunID: "run_1", ProxyURL: "http://one"}
	if err := note.seal("key", lease); err != nil {
		t.Fatal(err)
	}
	if note.LeaseToken != "" || note.AgentToken != "" {
		t.Error("a credential is noted in plain text")
	}
	token, err := note.openLeaseToken("key")
	agents, bad := note.openAgentToken("key")
	if err != nil || bad != nil || token != lease.LeaseToken || agents != lease.AgentToken {
		t.Errorf("they open as %s and %s: %v, %v", token.Reveal(), agents.Reveal(), err, bad)
	}
	if _, err := note.openAgentToken("another"); err == nil {
		t.Error("the agent's credential opens with another key")
	}
	other := note
	other.RunID = "run_2"
	if _, err := other.openAgentToken("key"); err == nil {
		t.Error("the agent's credential opens beside another run")
	}
	note.SealedAgentToken = note.SealedLeaseToken
	if _, err := note.openAgentToken("key"); err == nil {
		t.Error("the adapter's credential opens as the agent's")
	}
}
