package main

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/cmd/picket/cli/exit"
	"github.com/picket-dev/picket/internal/rig"
)

// manyReviews is a server with tasks in review whose runs can replace their evidence.
type manyReviews struct {
	*engineFixture
	tasks []string
	runs  []picket.LeaseCredential
	said  string // by the last command
}

// newManyReviews has n tasks with evidence, and after them one without evidence.
func newManyReviews(t *testing.T, n int) *manyReviews {
	m := &manyReviews{engineFixture: newEngineFixture(t)}
	for i := range n + 1 {
		task, err := m.Submit(t.Context(), tester, picket.TaskSpec{Title: fmt.Sprint("job ", i), Role: "coder"})
		m.must(err)
		leases, err := m.Acquire(t.Context(), tester, picket.AcquireRequest{AgentID: "agent-1", Role: "coder"})
		m.must(err)
		held, err := rig.Sealer().OpenLeaseToken(leases[0].LeaseToken.Reveal())
		m.must(err)
		_, err = m.Complete(t.Context(), held, picket.Completion{Output: picket.RawJSON(`"done"`)})
		m.must(err)
		m.tasks, m.runs = append(m.tasks, task.TaskID), append(m.runs, held)
		if i < n {
			m.handIn(i, "+good")
		}
	}
	return m
}

func (m *manyReviews) handIn(i int, diff string) {
	m.t.Helper()
	m.must(m.RunEvidence(m.t.Context(), m.runs[i],
		picket.Evidence{Branch: "picket/t", Base: "abc", Diff: diff, Files: []picket.ChangedFile{{Path: "a"}}}))
}

// review runs `picket review` and returns its exit code.
func (m *manyReviews) review(line string) int {
	m.t.Helper()
	var out bytes.Buffer
	root := newRoot()
	root.SetArgs(append([]string{"review"}, strings.Fields(line)...))
	root.SetIn(strings.NewReader(""))
	root.SetOut(&out)
	root.SetErr(&out)
	code := exit.Code(root.ExecuteContext(m.t.Context()))
	m.said = out.String()
	return code
}

func (m *manyReviews) state(i int) picket.TaskState {
	m.t.Helper()
	task, err := m.Task(m.t.Context(), m.tasks[i])
	m.must(err)
	return task.State
}

// wants checks which tasks are approved, and that the last command named each of
// the others with the command that shows it.
func (m *manyReviews) wants(approved ...bool) {
	m.t.Helper()
	for i, want := range approved {
		if got := m.state(i) == picket.TaskCompleted; got != want {
			m.t.Errorf("task %d approved: %v, want %v\n%s", i, got, want, m.said)
		}
		if !want && !strings.Contains(m.said, "picket review show "+m.tasks[i]) {
			m.t.Errorf("task %d is not named with the command that shows it:\n%s", i, m.said)
		}
	}
}

// A reviewer looks at the evidence in the console, and the run then replaces it.
// A filter approves only what this command line has shown, however it is confirmed.
func TestApprovingManySendsOnlyWhatWasShown(t *testing.T) {
	for _, confirmed := range []string{"--count 4", "--yes"} {
		t.Run(confirmed, func(t *testing.T) {
			m := newManyReviews(t, 3)
			for i := range 2 {
				if code := m.review("show " + m.tasks[i]); code != exit.OK {
					t.Fatalf("exit code %d: %s", code, m.said)
				}
			}
			m.handIn(1, "+swapped") // after it was shown here
			m.handIn(2, "+swapped") // after it was shown elsewhere
			if code := m.review("approve --role coder " + confirmed); code != exit.Conflict {
				t.Errorf("exit code %d", code)
			}
			m.wants(true, false, false, true)
			for _, text := range []string{m.tasks[1] + " was not approved [version_conflict]",
				m.tasks[2] + " was not approved [precondition_required]", "2 tasks approved, 2 lost"} {
				if !strings.Contains(m.said, text) {
					t.Errorf("%q is missing:\n%s", text, m.said)
				}
			}
			for i := range 2 {
				m.review("show " + m.tasks[i+1])
			}
			if code := m.review("approve --role coder --count 2"); code != exit.OK {
				t.Errorf("exit code %d after both were shown: %s", code, m.said)
			}
			m.wants(true, true, true, true)
		})
	}
}

// A format that prints no evidence does not count as having shown it.
func TestTheNameOfAReviewIsNotItsEvidence(t *testing.T) {
	m := newManyReviews(t, 1)
	if code := m.review("show " + m.tasks[0] + " -o name"); code != exit.OK {
		t.Fatalf("exit code %d: %s", code, m.said)
	}
	if code := m.review("approve --role coder --yes"); code != exit.Conflict {
		t.Errorf("exit code %d", code)
	}
	m.wants(false, true)
}
