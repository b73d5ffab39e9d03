package storefaults

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/internal/rig"
	"github.com/picket-dev/picket/orchestrator/proof/calls"
	"github.com/picket-dev/picket/orchestrator/proof/kit"
)

var errInjected = errors.New("injected")

// faultPoints records the fault points that an engine passes, and makes one fail
// once.
type faultPoints struct {
	mu   sync.Mutex
	seen map[string]bool
	bad  string
}

func (p *faultPoints) at(point string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.seen[point] = true
	if point != p.bad {
		return nil
	}
	p.bad = ""
	return errInjected
}

// Fail makes the next pass of a point fail; it returns whether the one before
// was met.
func (p *faultPoints) fail(point string) (met bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	met = p.bad == ""
	p.bad = point
	return met
}

// At every named point around every script an error can be injected. What
// fails before the call was not sent, and reports it; what fails after it has an
// unknown outcome; repeated, the effect happens once.
func TestEveryFaultPointReal(t *testing.T) {
	s := rig.Real(t)
	watched := &faultPoints{seen: map[string]bool{}}
	p := calls.Setup{T: t, Store: s, Fault: watched.at}
	for _, c := range calls.All() {
		for point, like := range map[string]calls.Fault{".before": calls.Faults[0], ".after": calls.Faults[1]} {
			got, want := injected(p, c, "redis."+c.Script()+point, watched), p.Baseline(c, c.ExpectedSteps(like))
			if got != want {
				t.Errorf("%s, an error at redis.%s%s:\n%s", c.Name, c.Script(), point, kit.DiffLines(got, want))
			}
		}
	}
	readFaults(p, watched)

	want := []string{"witness.dirsync", "witness.fsync", "witness.rename", "witness.write"}
	for _, name := range append(kit.ScriptNames(), "events") {
		want = append(want, "redis."+name+".after", "redis."+name+".before")
	}
	slices.Sort(want)
	if got := slices.Sorted(maps.Keys(watched.seen)); !slices.Equal(got, want) {
		t.Errorf("the points passed are not those of the scripts:\n%s",
			kit.DiffLines(strings.Join(got, "\n"), strings.Join(want, "\n")))
	}
	t.Logf("%d fault points", len(want))
}

// injected runs a case with an error at a point, and repeats it.
func injected(p calls.Setup, c calls.Case, point string, watched *faultPoints) string {
	p.T.Helper()
	w := p.NewEnv()
	defer w.Close()
	c.Setup(w)
	watched.fail(point)
	answer, err := c.Call(w, w.Via)
	if !watched.fail("") {
		p.T.Errorf("%s does not pass %s", c.Name, point)
	}
	wrong := ""
	if c.NeverRepeated == "" {
		wrong = injectedAs(err, point, c.OverHTTP)
	}
	w.Pass(c.Pause())
	if c.NeverRepeated == "" {
		answer, err = c.Call(w, w.Via)
	}
	if err != nil {
		wrong += "\nthe repeat: " + err.Error()
	}
	return w.DumpAfterRead(c, answer) + wrong
}

// injectedAs tells what is wrong about the error that a caller got. Over HTTP the cause of an error is not told.
func injectedAs(err error, point string, overHTTP bool) string {
	unknown := errors.Is(err, picket.ErrUnknown)
	if picket.CodeOf(err) != picket.CodeUnavailable || !errors.Is(err, errInjected) && !overHTTP ||
		unknown != strings.HasSuffix(point, ".after") {
		return "\nthe caller got " + errText(err)
	}
	return ""
}

func errText(err error) string {
	if err == nil {
		return "no error"
	}
	return err.Error()
}

// readFaults injects errors around the scripts that only read: the reader is
// told, nothing changes, and the next reading works.
func readFaults(p calls.Setup, watched *faultPoints) {
	w := p.NewEnv()
	defer w.Close()
	calls.WithCapability(w)
	session := calls.TestSession
	calls.WithHandoff(w)
	calls.Confirmed(picket.TaskSpec{})(w)
	kept := kit.BundleOf(7, 'a')
	_, err := w.Direct.RunBundlePiece(w.Ctx, w.Held, kept.Piece(0))
	kit.OK(p.T, err)
	kit.OK(p.T, w.Direct.RunBundle(w.Ctx, w.Held, kept.About()))
	calls := []struct {
		of   string
		call func() error
	}{
		{"agent", func() error { _, _, err := w.Via.Agent(w.Ctx, "m1"); return err }},
		{"agents", func() error { _, err := w.Via.Agents(w.Ctx, picket.AgentQuery{}); return err }},
		{"pools", func() error { _, err := w.Via.Pools(w.Ctx, "", ""); return err }},
		{"evidence", func() error { _, err := w.Via.Evidence(w.Ctx, w.Task.TaskID, ""); return err }},
		{"bundle", func() error { _, err := w.Via.Bundle(w.Ctx, w.Task.TaskID); return err }},
		{"bundle_read", func() error {
			_, err := w.Via.BundlePiece(w.Ctx, w.Task.TaskID, kept.Digest(), 0)
			return err
		}},
		{"conversation", func() error {
			_, err := w.Via.Messages(w.Ctx, kit.Operator, w.Task.TaskID, picket.MessageQuery{})
			return err
		}},
		{"explain", func() error { _, err := w.Via.Explain(w.Ctx, w.Task.TaskID); return err }},
		{"handoffs", func() error { _, err := w.Via.Handoffs(w.Ctx, picket.HandoffQuery{}); return err }},
		{"identify", func() error { return kit.EnsureAdopted(w.Ctx, w.Via) }},
		{"keys", func() error { _, err := w.Via.Keys(w.Ctx); return err }},
		{"leases", func() error { _, err := w.Via.Leases(w.Ctx); return err }},
		{"list", func() error { _, err := w.Via.Tasks(w.Ctx, picket.TaskQuery{}); return err }},
		{"client_tasks", func() error { _, err := w.Via.ClientTasks(w.Ctx, picket.ClientTaskQuery{}); return err }},
		{"push_list", func() error { // the task is of no client
			_, err := w.Via.PushConfigs(w.Ctx, kit.Operator, w.Task.TaskID)
			if picket.CodeOf(err) == picket.CodeNotFound {
				return nil
			}
			return err
		}},
		{"log", func() error { _, err := w.Via.Log(w.Ctx, w.Task.TaskID, "", "stdout", 0, 10); return err }},
		{"reports", func() error { _, err := w.Via.Reports(w.Ctx, w.Task.TaskID); return err }},
		{"reviews", func() error { _, err := w.Via.Reviews(w.Ctx, picket.ReviewQuery{}); return err }},
		{"webhook_list", func() error { _, err := w.Via.Webhooks(w.Ctx); return err }},
		{"review_ids", func() error {
			_, err := w.Via.ApproveAll(w.Ctx, calls.Asked("5"),
				picket.BulkApproval{Filter: picket.ReviewFilter{Role: "none"}, Count: 1})
			if picket.CodeOf(err) == picket.CodeVersion { // read, and nothing is meant
				return nil
			}
			return err
		}},
		{"envelope", func() error { _, err := w.Via.Envelope(w.Ctx, w.Task.TaskID); return err }},
		{"ledger", func() error { _, err := w.Via.Ledger(w.Ctx, picket.LedgerQuery{}); return err }},
		{"await_exec", func() error { _, _, err := w.Via.AwaitExec(w.Ctx, w.Held, "c1", 0); return err }},
		{"can_exec", func() error { _, err := w.Via.CanExec(w.Ctx, w.Held); return err }},
		{"spending", func() error { _, err := w.Via.Spending(w.Ctx, picket.SpendingQuery{}); return err }},
		{"totals", func() error { _, err := w.Via.Totals(w.Ctx); return err }},
		{"agent_sessions", func() error {
			_, err := w.Via.AgentSessions(w.Ctx, picket.AgentSessionQuery{})
			return err
		}},
		{"prompt", func() error {
			_, err := w.Via.SessionPrompt(w.Ctx, session, w.Prompt, 0, 0)
			return err
		}},
		{"prompts", func() error { _, err := w.Via.SessionPrompts(w.Ctx, session, 0, 0); return err }},
		{"wakes", func() error { _, err := w.Via.Wakes(w.Ctx, "ann", picket.WakeQuery{}); return err }},
		{"wake_facts", func() error {
			_, err := w.Via.Wake(w.Ctx, kit.OtherOperator, "ann", picket.WakeRequest{SessionID: session, DryRun: true})
			return err
		}},
		{"session_capability", func() error { _, err := w.Via.SessionCapability(w.Ctx, w.Session); return err }},
		{"agent_context", func() error { _, err := w.Via.AgentContext(w.Ctx, w.Session); return err }},
		{"owns_name", func() error {
			err := w.Via.CheckOwnsName(w.Ctx, kit.AgentOwner.Actor, "ann")
			if picket.CodeOf(err) == picket.CodeForbidden { // nobody owns it
				return nil
			}
			return err
		}},
		{"policy", func() error { _, err := w.Via.WakePolicy(w.Ctx, "ann"); return err }},
		{"policy_history", func() error {
			_, err := w.Via.PolicyHistory(w.Ctx, "ann", picket.PolicyHistoryQuery{})
			return err
		}},
		{"policies", func() error { _, err := w.Via.Policies(w.Ctx, picket.PolicyQuery{}); return err }},
		{"stats", func() error { _, err := w.Via.Stats(w.Ctx); return err }},
		// no script
		{"events", func() error { _, err := w.Via.Events(w.Ctx, picket.EventQuery{After: 1}); return err }},
		{"events", func() error { _, err := w.Via.LastSeq(w.Ctx); return err }},
		{"task", func() error { _, err := w.Via.Task(w.Ctx, w.Task.TaskID); return err }},
	}
	before, err := kit.Dump(w.Ctx, w.Raw, nil)
	kit.OK(p.T, err)
	for _, c := range calls {
		for _, point := range []string{"redis." + c.of + ".before", "redis." + c.of + ".after"} {
			watched.fail(point)
			if wrong := injectedAs(c.call(), point, false); wrong != "" {
				p.T.Errorf("%s:%s", point, wrong)
			}
			if err := c.call(); !watched.fail("") || err != nil {
				p.T.Errorf("%s: the next call got %v", point, err)
			}
		}
	}
	after, err := kit.Dump(w.Ctx, w.Raw, nil)
	kit.OK(p.T, err)
	if after != before {
		p.T.Errorf("reading changed the store:\n%s", kit.DiffLines(after, before))
	}
}
