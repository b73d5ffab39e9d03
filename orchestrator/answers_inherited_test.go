package orchestrator_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/picket-dev/picket"
)

// askAndAnswer takes the next task, asks, and has the question answered.
func (f *fixture) askAndAnswer(t *testing.T, question, answer string) {
	t.Helper()
	help, err := f.RequestHelp(f.ctx, f.openLease(t, f.acquireOne(t, picket.AcquireRequest{AgentID: "a1"})),
		picket.HelpRequest{Question: question})
	ok(t, err)
	_, err = f.Answer(f.ctx, operator, help.HandoffID, picket.AnswerRequest{Answer: picket.RawJSON(answer)})
	ok(t, err)
}

// cancelAndRetry cancels a task and makes it again.
func (f *fixture) cancelAndRetry(t *testing.T, id string) string {
	t.Helper()
	_, err := f.Cancel(f.ctx, operator, id, "")
	ok(t, err)
	by := picket.Caller{
		Actor:       "key_a",
		Idempotency: picket.Idempotency{Key: "anew " + id, Body: strings.Repeat("0", 64)},
	}
	first, err := f.Retry(f.ctx, by, id, "")
	ok(t, err)
	again, err := f.Retry(f.ctx, by, id, "") // its answer was lost
	ok(t, err)
	if first.TaskID == id || *first.Retries != id || again.TaskID != first.TaskID {
		t.Fatalf("%s was made again as %s, then %s", id, first.TaskID, again.TaskID)
	}
	return first.TaskID
}

func answerTexts(answers []picket.Answer) string {
	var said []string
	for _, a := range answers {
		said = append(said, a.Question+" "+string(a.Answer))
	}
	return strings.Join(said, ", ")
}

// What people answered on a task is told to the runs of what it is made again
// as, from the first one on and however often, also when the task itself has
// been deleted.
func TestARetriedTaskKnowsItsAnswers(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		first := f.mustSubmit(t, picket.TaskSpec{}).TaskID
		f.askAndAnswer(t, "where", `"here"`)
		f.askAndAnswer(t, "when", `"now"`)
		second := f.cancelAndRetry(t, first)
		f.askAndAnswer(t, "how", `"so"`)
		third := f.cancelAndRetry(t, second)
		for id, want := range map[string]string{
			first:  `where "here", when "now"`,
			second: `where "here", when "now", how "so"`,
			third:  `where "here", when "now", how "so"`,
		} {
			got, err := f.Task(f.ctx, id)
			ok(t, err)
			if said := answerTexts(got.Answers); said != want {
				t.Errorf("%s knows %s, want %s", id, said, want)
			}
		}
		l := f.acquireOne(t, picket.AcquireRequest{AgentID: "a1"})
		if said := answerTexts(l.Answers); l.TaskID != third || l.Attempt != 1 ||
			said != `where "here", when "now", how "so"` {
			t.Errorf("run %d of %s was told %s", l.Attempt, l.TaskID, said)
		}
		f.runReaperFor(t, time.Minute)
		_, err := f.ApplyRetention(f.ctx, picket.Retention{Tasks: time.Second, Events: time.Hour, MaxEvents: 1e6}, 100)
		ok(t, err)
		_, err = f.Task(f.ctx, first)
		refused(t, err, picket.CodeNotFound)
		got, err := f.Task(f.ctx, third)
		ok(t, err)
		if said := answerTexts(got.Answers); len(got.Answers) != 3 {
			t.Errorf("with the others deleted %s knows %s", third, said)
		}
	})
}

// Answers that are too long to be told to a run are not handed down either.
func TestInheritedAnswersAreBounded(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		id := f.mustSubmit(t, picket.TaskSpec{}).TaskID
		for _, n := range []string{"1", "2", "3", "4", "5", "6"} {
			f.askAndAnswer(t, n, `"`+strings.Repeat("x", 250_000)+`"`)
		}
		var told []string
		for range 3 {
			id = f.cancelAndRetry(t, id)
			for _, a := range f.acquireOne(t, picket.AcquireRequest{AgentID: "a1"}).Answers {
				told = append(told, a.Question)
			}
		}
		if want := slices.Repeat([]string{"3", "4", "5", "6"}, 3); !slices.Equal(told, want) {
			t.Errorf("told %v, want %v", told, want)
		}
	})
}
