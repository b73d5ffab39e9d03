package branches

import (
	"fmt"
	"testing"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/orchestrator/heartbeat"
	"github.com/picket-dev/picket/orchestrator/mirror"
	"github.com/picket-dev/picket/orchestrator/proof/kit"
)

// coverPolicies takes the ways of wake policies: they are made, replaced, deleted, restored and bounded.
func coverPolicies(t *testing.T, f *fixture) {
	digest := func(name string) picket.PolicyCondition {
		p, err := f.WakePolicy(f.Ctx, name)
		kit.OK(t, err)
		return picket.PolicyCondition{ExpectedDigest: p.Digest}
	}
	write := func(by picket.Caller, name, body string) (picket.WakePolicy, error) {
		return f.WritePolicy(f.Ctx, by, name, picket.PolicyWrite{Body: body, PolicyCondition: digest(name)})
	}
	f.CallTwice(t, func() error {
		_, err := f.WritePolicy(f.Ctx, kit.Idempotent("H"), "pol", picket.PolicyWrite{Body: "one\n"})
		return err
	})
	clash := kit.Idempotent("H")
	clash.Idempotency.Body = fmt.Sprintf("%064d", 1)
	_, err := write(clash, "pol", "other\n")
	kit.Refused(t, err, picket.CodeIdempotencyConflict)
	for n := range picket.MaxPolicyRevisions + 1 {
		_, err := write(kit.Operator, "pol", fmt.Sprintf("number %d\n", n))
		kit.OK(t, err)
	}
	_, err = f.WritePolicy(f.Ctx, kit.Idempotent("H"), "pol", picket.PolicyWrite{Body: "one\n"}) // not kept any more
	kit.Refused(t, err, picket.CodeRevisionNotFound)
	_, err = f.WritePolicy(f.Ctx, kit.Operator, "pol", picket.PolicyWrite{Body: "x\n"})
	kit.Refused(t, err, picket.CodePolicyConflict)
	_, err = f.DeletePolicy(f.Ctx, kit.Operator, "none", picket.PolicyCondition{})
	kit.Refused(t, err, picket.CodeNoPolicy)
	page, err := f.PolicyHistory(f.Ctx, "pol", picket.PolicyHistoryQuery{Limit: 2})
	kit.OK(t, err)
	_, err = f.PolicyHistory(f.Ctx, "pol", picket.PolicyHistoryQuery{Limit: 50, Cursor: page.Cursor})
	kit.OK(t, err)
	back := picket.PolicyRollback{RevisionID: page.Revisions[1].RevisionID, PolicyCondition: digest("pol")}
	_, err = f.RollbackPolicy(f.Ctx, kit.Operator, "pol", back)
	kit.OK(t, err)
	back.RevisionID = "revision_" + ulid.Make().String()
	_, err = f.RollbackPolicy(f.Ctx, kit.Operator, "pol", back)
	kit.Refused(t, err, picket.CodeRevisionNotFound)
	for n := range 199 {
		_, err := write(kit.Operator, fmt.Sprintf("pol-%d", n), "x\n")
		kit.OK(t, err)
	}
	_, err = write(kit.Operator, "pol-more", "x\n")
	kit.Refused(t, err, picket.CodeStateConflict)
	for _, name := range []string{"pol", "pol-0"} {
		_, err = f.DeletePolicy(f.Ctx, kit.Operator, name, digest(name))
		kit.OK(t, err)
		f.JumpStoreTime(t, time.Second)
	}
	for _, name := range []string{"pol-0", "pol-more"} { // the name pol makes room
		_, err = write(kit.Operator, name, "x\n")
		kit.OK(t, err)
	}
	coverLargeHistory(t, f, write)
	_, err = f.DeletePolicy(f.Ctx, kit.Operator, "pol-2", digest("pol-2")) // makes room
	kit.OK(t, err)
	coverPolicyFiles(t, f)
}

// coverPolicyFiles takes the ways of a directory of policy files: locked, renewed, taken over and released.
func coverPolicyFiles(t *testing.T, f *fixture) {
	files, store := []mirror.File{{Name: "direct", State: mirror.StateEdited, Digest: "sha256:x", Body: "x"}},
		f.PolicyStore()
	for _, holder := range []string{"a", "b", "a"} { // b does not get the lock
		_, _, err := store.Lock(f.Ctx, holder)
		kit.OK(t, err)
	}
	told := []mirror.Instructions{{Name: "direct", Path: "direct/AGENT.md", Digest: "sha256:x", Text: "x"},
		{Name: "other", Path: "other/AGENT.md", Diagnostics: []heartbeat.Diagnostic{{Code: heartbeat.CodeSecret}}}}
	kit.OK(t, store.Publish(f.Ctx, "a", files, told))
	kit.Refused(t, store.Publish(f.Ctx, "b", files, told), picket.CodeStateConflict)
	p, err := f.WakePolicy(f.Ctx, "direct")
	kit.OK(t, err)
	_, err = f.Policies(f.Ctx, picket.PolicyQuery{Limit: 2})
	kit.OK(t, err)
	_, err = f.DeletePolicy(f.Ctx, kit.Operator, "direct", picket.PolicyCondition{ExpectedDigest: p.Digest})
	kit.OK(t, err)
	f.JumpStoreTime(t, mirror.Lease)
	kit.Refused(t, store.Publish(f.Ctx, "a", files, nil), picket.CodeStateConflict)
	kit.OK(t, store.Release(f.Ctx, "b")) // which did not have it
	_, _, err = store.Lock(f.Ctx, "b")
	kit.OK(t, err)
	kit.OK(t, store.Release(f.Ctx, "b"))
	forgetDirectory(t, f)
}

// forgetDirectory leaves a store that has never known a directory of policy files. A known one that nobody has keeps
// wakes from being sent.
func forgetDirectory(t *testing.T, f *fixture) {
	kit.OK(t, f.Raw.Del(f.Ctx, "pk:{default}:policy-lock").Err())
}

// coverOwnedNames asks whether a key owns the name of an agent that participates, is silent for too long, or is gone.
func coverOwnedNames(t *testing.T, f *fixture) {
	f.MustRegister(t, picket.Registration{AgentID: "own", Metadata: picket.RawJSON(`{"agent_name":"olga"}`)})
	kit.OK(t, f.CheckOwnsName(f.Ctx, kit.AgentOwner.Actor, "olga"))
	f.JumpStoreTime(t, 10*time.Minute)
	kit.Refused(t, f.CheckOwnsName(f.Ctx, kit.AgentOwner.Actor, "olga"), picket.CodeForbidden)
	_, err := f.JudgeAgents(f.Ctx, 100)
	kit.OK(t, err)
}

// coverLargeHistory reads a history that has more bytes than one reply.
func coverLargeHistory(t *testing.T, f *fixture, write func(picket.Caller, string, string) (picket.WakePolicy, error)) {
	p, err := write(kit.Operator, "pol-1", "large\n")
	kit.OK(t, err)
	large := make([]byte, 5<<20)
	kit.OK(t, f.Raw.HSet(f.Ctx, "pk:{default}:policy-revision:"+p.RevisionID, "body", large).Err())
	_, err = f.PolicyHistory(f.Ctx, "pol-1", picket.PolicyHistoryQuery{})
	kit.OK(t, err)
	_, err = f.Policies(f.Ctx, picket.PolicyQuery{After: "pol-0"})
	kit.OK(t, err)
	kit.OK(t, f.Raw.HSet(f.Ctx, "pk:{default}:policy-revision:"+p.RevisionID, "body", "x\n").Err())
}
