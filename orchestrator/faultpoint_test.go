package orchestrator_test

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/internal/rig"
	"github.com/picket-dev/picket/orchestrator"
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
	p := replySetup{t: t, store: s, fault: watched.at}
	for _, c := range replyCases() {
		for point, like := range map[string]callFault{".before": callFaults[0], ".after": callFaults[1]} {
			got, want := p.injected(c, "redis."+c.script()+point, watched), p.baseline(c, c.expectedSteps(like))
			if got != want {
				t.Errorf("%s, an error at redis.%s%s:\n%s", c.name, c.script(), point, diffLines(got, want))
			}
		}
	}
	p.readFaults(watched)

	want := []string{"witness.dirsync", "witness.fsync", "witness.rename", "witness.write"}
	for _, name := range append(orchestrator.ScriptNames(), "events") {
		want = append(want, "redis."+name+".after", "redis."+name+".before")
	}
	slices.Sort(want)
	if got := slices.Sorted(maps.Keys(watched.seen)); !slices.Equal(got, want) {
		t.Errorf("the points passed are not those of the scripts:\n%s",
			diffLines(strings.Join(got, "\n"), strings.Join(want, "\n")))
	}
	t.Logf("%d fault points", len(want))
}

// injected runs a case with an error at a point, and repeats it.
func (p replySetup) injected(c replyCase, point string, watched *faultPoints) string {
	p.t.Helper()
	w := p.newEnv()
	defer w.close()
	c.setup(w)
	watched.fail(point)
	answer, err := c.call(w, w.via)
	if !watched.fail("") {
		p.t.Errorf("%s does not pass %s", c.name, point)
	}
	wrong := ""
	if c.neverRepeated == "" {
		wrong = injectedAs(err, point)
	}
	w.pass(c.pause())
	if c.neverRepeated == "" {
		answer, err = c.call(w, w.via)
	}
	if err != nil {
		wrong += "\nthe repeat: " + err.Error()
	}
	return w.dumpAfterRead(c, answer) + wrong
}

// injectedAs tells what is wrong about the error that a caller got.
func injectedAs(err error, point string) string {
	unknown := errors.Is(err, picket.ErrUnknown)
	if picket.CodeOf(err) != picket.CodeUnavailable || !errors.Is(err, errInjected) ||
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
func (p replySetup) readFaults(watched *faultPoints) {
	w := p.newEnv()
	defer w.close()
	withAgent(w)
	withHandoff(w)
	confirmed(picket.TaskSpec{})(w)
	calls := []struct {
		of   string
		call func() error
	}{
		{"agent", func() error { _, _, err := w.via.Agent(w.ctx, "m1"); return err }},
		{"agents", func() error { _, err := w.via.Agents(w.ctx, picket.AgentQuery{}); return err }},
		{"pools", func() error { _, err := w.via.Pools(w.ctx, "", ""); return err }},
		{"evidence", func() error { _, err := w.via.Evidence(w.ctx, w.task.TaskID, ""); return err }},
		{"explain", func() error { _, err := w.via.Explain(w.ctx, w.task.TaskID); return err }},
		{"handoffs", func() error { _, err := w.via.Handoffs(w.ctx, picket.HandoffQuery{}); return err }},
		{"identify", func() error { return orchestrator.EnsureAdopted(w.ctx, w.via) }},
		{"keys", func() error { _, err := w.via.Keys(w.ctx); return err }},
		{"leases", func() error { _, err := w.via.Leases(w.ctx); return err }},
		{"list", func() error { _, err := w.via.Tasks(w.ctx, picket.TaskQuery{}); return err }},
		{"log", func() error { _, err := w.via.Log(w.ctx, w.task.TaskID, "", "stdout", 0, 10); return err }},
		{"reports", func() error { _, err := w.via.Reports(w.ctx, w.task.TaskID); return err }},
		{"reviews", func() error { _, err := w.via.Reviews(w.ctx, picket.ReviewQuery{}); return err }},
		{"webhook_list", func() error { _, err := w.via.Webhooks(w.ctx); return err }},
		{"review_ids", func() error {
			_, err := w.via.ApproveAll(w.ctx, asked("5"),
				picket.BulkApproval{Filter: picket.ReviewFilter{Role: "none"}, Count: 1})
			if picket.CodeOf(err) == picket.CodeVersion { // read, and nothing is meant
				return nil
			}
			return err
		}},
		{"envelope", func() error { _, err := w.via.Envelope(w.ctx, w.task.TaskID); return err }},
		{"ledger", func() error { _, err := w.via.Ledger(w.ctx, picket.LedgerQuery{}); return err }},
		{"await_exec", func() error { _, _, err := w.via.AwaitExec(w.ctx, w.held, "c1", 0); return err }},
		{"can_exec", func() error { _, err := w.via.CanExec(w.ctx, w.held); return err }},
		{"stats", func() error { _, err := w.via.Stats(w.ctx); return err }},
		// no script
		{"events", func() error { _, err := w.via.Events(w.ctx, picket.EventQuery{After: 1}); return err }},
		{"events", func() error { _, err := w.via.LastSeq(w.ctx); return err }},
		{"task", func() error { _, err := w.via.Task(w.ctx, w.task.TaskID); return err }},
	}
	before, err := dump(w.ctx, w.raw, nil)
	ok(p.t, err)
	for _, c := range calls {
		for _, point := range []string{"redis." + c.of + ".before", "redis." + c.of + ".after"} {
			watched.fail(point)
			if wrong := injectedAs(c.call(), point); wrong != "" {
				p.t.Errorf("%s:%s", point, wrong)
			}
			if err := c.call(); !watched.fail("") || err != nil {
				p.t.Errorf("%s: the next call got %v", point, err)
			}
		}
	}
	after, err := dump(w.ctx, w.raw, nil)
	ok(p.t, err)
	if after != before {
		p.t.Errorf("reading changed the store:\n%s", diffLines(after, before))
	}
}
