package orchestrator_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/orchestrator/heartbeat"
	"github.com/picket-dev/picket/orchestrator/mirror"
	"github.com/picket-dev/picket/orchestrator/proof/kit"
)

// instruct writes the file AGENT.md of a name, and has it published.
func (d *policyDir) instruct(t *testing.T, name, text string) {
	t.Helper()
	kit.OK(t, errors.Join(os.MkdirAll(filepath.Join(d.dir, name), 0o700),
		os.WriteFile(filepath.Join(d.dir, name, "AGENT.md"), []byte(text), 0o600)))
	d.pass(t)
}

// told is what an agent is told with its next prompt.
func (f *fixture) told(t *testing.T, agent string, incarnation int64, session string) string {
	t.Helper()
	_, err := f.PromptSession(f.Ctx, kit.Operator, session, picket.PromptRequest{Text: "hello"})
	kit.OK(t, err)
	got, err := f.PendingCommands(f.Ctx, kit.Operator, agent, picket.PendingQuery{Incarnation: incarnation})
	kit.OK(t, err)
	return got.Instructions
}

// An agent gets the standing instructions of its name with each lease and each prompt, and no other agent gets them.
func TestAgentsGetTheirInstructions(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		d := openPolicyDir(t, f, t.TempDir(), "a")
		n, id := f.sessionAgent(t, "a1"), newSessionID()
		kit.OK(t, f.report("a1", n, idleSession(id)))
		other, err := f.Register(f.Ctx, kit.Operator, picket.Registration{AgentID: "b1", RoleID: "coder"})
		kit.OK(t, err)
		f.MustSubmit(t, picket.TaskSpec{Role: "coder"})
		acquire := picket.AcquireRequest{AgentID: "a1", Role: "coder", Incarnation: n}
		first := f.AcquireOne(t, acquire)
		if first.Instructions != "" || f.told(t, "a1", n, id) != "" {
			t.Errorf("instructions that nobody has given: %q", first.Instructions)
		}

		d.instruct(t, "ann", "Never push.\n")
		f.MustSubmit(t, picket.TaskSpec{Role: "coder"})
		key := kit.Operator
		key.Idempotency = picket.Idempotency{Key: "same", Body: strings.Repeat("0", 64)}
		for range 2 {
			again, err := f.Acquire(f.Ctx, key, acquire)
			kit.OK(t, err)
			if len(again) != 1 || again[0].Instructions != "Never push." {
				t.Errorf("leases %+v", again)
			}
		}
		if got := f.told(t, "a1", n, id); got != "Never push." {
			t.Errorf("a prompt comes with %q", got)
		}
		got, err := f.PendingCommands(f.Ctx, kit.Operator, "a1", picket.PendingQuery{Incarnation: n})
		kit.OK(t, err)
		for _, c := range got.Sessions {
			if strings.Contains(c.Text, "Never push") {
				t.Error("the instructions are in the prompt itself")
			}
		}

		f.MustSubmit(t, picket.TaskSpec{Role: "coder"})
		l := f.AcquireOne(t, picket.AcquireRequest{AgentID: "b1", Role: "coder", Incarnation: other.Incarnation})
		if l.Instructions != "" {
			t.Errorf("an agent of no name gets %q", l.Instructions)
		}
		f.MustSubmit(t, picket.TaskSpec{Role: "coder"})
		if l := f.AcquireOne(t, picket.AcquireRequest{AgentID: "stray", Role: "coder"}); l.Instructions != "" {
			t.Errorf("an agent that is not registered gets %q", l.Instructions)
		}
	})
}

// The next leases of advance come with the instructions too.
func TestAdvanceAnswersInstructions(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		openPolicyDir(t, f, t.TempDir(), "a").instruct(t, "ann", "Be brief.")
		n := f.sessionAgent(t, "a1")
		acquire := picket.AcquireRequest{AgentID: "a1", Role: "coder", Incarnation: n}
		f.MustSubmit(t, picket.TaskSpec{Role: "coder"})
		f.MustSubmit(t, picket.TaskSpec{Role: "coder"})
		held := f.OpenLease(t, f.AcquireOne(t, acquire))
		got, err := f.Advance(f.Ctx, held, kit.Operator, picket.AdvanceRequest{Output: picket.RawJSON("1"),
			Acquire: acquire})
		kit.OK(t, err)
		if len(got.Leases) != 1 || got.Leases[0].Instructions != "Be brief." {
			t.Errorf("leases %+v", got.Leases)
		}
	})
}

// While a file is refused the instructions before it stay in force, also after a restart. If it is gone, they end.
func TestRefusedInstructionsKeepTheOldOnes(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		dir := t.TempDir()
		d := openPolicyDir(t, f, dir, "a")
		n, id := f.sessionAgent(t, "a1"), newSessionID()
		kit.OK(t, f.report("a1", n, idleSession(id)))
		d.instruct(t, "ann", "Never push.")
		d.instruct(t, "ann", strings.Repeat("x", heartbeat.MaxInstructions+1))
		kit.OK(t, f.PolicyStore().Release(f.Ctx, "a"))
		again := openPolicyDir(t, f, dir, "b")
		again.pass(t)
		if got := f.told(t, "a1", n, id); got != "Never push." {
			t.Errorf("a prompt comes with %.20q", got)
		}
		s, err := f.PolicyStatus(f.Ctx, "ann", 0)
		kit.OK(t, err)
		if i := s.Instructions; i == nil || i.Bytes != 0 || i.Path != "ann/AGENT.md" || len(i.Diagnostics) != 1 {
			t.Errorf("the status has %+v", i)
		}
		moved := filepath.Join(t.TempDir(), "moved")
		kit.OK(t, os.Rename(filepath.Join(dir, "ann"), moved))
		kit.OK(t, os.Symlink(moved, filepath.Join(dir, "ann")))
		again.pass(t)
		if got := f.told(t, "a1", n, id); got != "Never push." {
			t.Errorf("behind a link, a prompt comes with %.20q", got)
		}
		kit.OK(t, os.Remove(filepath.Join(dir, "ann")))
		kit.OK(t, os.Rename(moved, filepath.Join(dir, "ann")))
		kit.OK(t, os.Remove(filepath.Join(dir, "ann", "AGENT.md")))
		again.pass(t)
		if got := f.told(t, "a1", n, id); got != "" {
			t.Errorf("a prompt comes with %.20q", got)
		}
		if p := f.mustPolicy(t, "ann"); p.Instructions != nil {
			t.Errorf("the policy has %+v", p.Instructions)
		}
	})
}

// The policy of a name with trusted files beside picket.yaml is theirs alone, and no command changes it.
func TestThePolicyOfTheWorkspaceWins(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		session, n := f.wakeable(t)
		text := "---\nsummary: mine\n---\nLook.\n"
		agents := map[string]mirror.WorkspaceAgent{"ann": {Policy: &text}}
		files, err := mirror.New(mirror.Config{Dir: t.TempDir(), Namespace: "default", Holder: "a",
			Store: f.PolicyStore(), Settings: heartbeat.Defaults(),
			Workspace: func() (map[string]mirror.WorkspaceAgent, error) { return agents, nil }})
		kit.OK(t, err)
		f.RefreshPolicies("", files.Refresh)
		kit.OK(t, files.Pass(f.Ctx))
		kit.OK(t, f.report("a1", n, idleSession(session))) // reports from before the lock do not count
		p := f.mustPolicy(t, "ann")
		if p.Summary != "mine" || p.File == nil || p.File.State != picket.PolicyFileWorkspace ||
			p.File.Path != "picket/agents/ann/HEARTBEAT.md" {
			t.Errorf("the policy is %+v", p)
		}
		_, err = f.WritePolicy(f.Ctx, kit.OtherOperator, "ann",
			picket.PolicyWrite{Body: "two\n", PolicyCondition: expecting(p.Digest)})
		kit.Refused(t, err, picket.CodeStateConflict)
		var refusal *picket.Error
		if !errors.As(err, &refusal) || !strings.Contains(refusal.Remedy, "picket config trust") {
			t.Errorf("the refusal is %v", err)
		}
		_, err = f.DeletePolicy(f.Ctx, kit.OtherOperator, "ann", expecting(p.Digest))
		kit.Refused(t, err, picket.CodeStateConflict)
		f.wantWake(t, picket.WakeRequest{DryRun: true}, picket.WakeReasonSent)

		agents["ann"] = mirror.WorkspaceAgent{Instructions: &text} // no HEARTBEAT.md beside it
		kit.OK(t, files.Pass(f.Ctx))
		f.wantWake(t, picket.WakeRequest{DryRun: true}, picket.WakeReasonNoPolicy)
		if got := f.told(t, "a1", n, session); !strings.Contains(got, "Look.") {
			t.Errorf("a prompt comes with %q", got)
		}

		delete(agents, "ann")
		kit.OK(t, files.Pass(f.Ctx))
		f.JumpStoreTime(t, time.Second)
		if p := f.mustPolicy(t, "ann"); p.Body != wakePolicyText {
			t.Errorf("the policy of the store does not count again: %+v", p)
		}
	})
}
